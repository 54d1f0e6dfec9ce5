// `mpirun -n 2 bindery train`: what several processes train, print, write and go on with.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "symbol/model.h"
#include "tests/tools/program.h"

namespace bindery {
namespace {

class ProcessesCommandsTest : public ProgramTest {
 protected:
  // Skipped where there is no Open MPI, or where it cannot start anything: in some containers.
  void SetUp() override {
    if (::access(kMpirun, X_OK) != 0) GTEST_SKIP() << "there is no " << kMpirun;
    // Its files for other processes have names of their own, too long behind a test's folder.
    ::setenv("TMPDIR", "/tmp", 1);
    if (const char* options = std::getenv("ASAN_OPTIONS")) {  // the leaks of Open MPI are its own
      ::setenv("ASAN_OPTIONS", (std::string(options) + ":detect_leaks=0").c_str(), 1);
    }
    const Outcome outcome = Run(2, {"/bin/true"});
    if (outcome.status != 0) GTEST_SKIP() << "mpirun cannot start two processes here: " << outcome;
  }

  Outcome Run(int processes, const Words& command) const {
    return Process(Mpirun(processes) + command, folder()).Wait(std::chrono::seconds(120));
  }
  Outcome InProcesses(int processes, const Words& arguments) const { return Run(processes, Command(arguments)); }
  static Words Mpirun(int processes) {
    return {kMpirun,
            "--allow-run-as-root",
            "--oversubscribe",
            "--bind-to",
            "none",
            "--mca",
            "btl_vader_single_copy_mechanism",
            "none",
            "-n",
            std::to_string(processes)};
  }
  double Difference(const std::string& a, const std::string& b) const {
    const Model one = LoadModel(PathOf(a)), other = LoadModel(PathOf(b));
    double most = 0;
    for (const auto& [name, value] : one.params) most = std::max(most, MaxAbsDiff(value, other.params.at(name)));
    return most;
  }

  static constexpr const char* kMpirun = "/usr/bin/mpirun";
};

int Count(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_F(ProcessesCommandsTest, TrainAsOneProcess) {
  const Words more = {"--optimizer", "sgd(lr=0.05, momentum=0.9)", "--save", "many.pb"};
  const Outcome many = InProcesses(2, Training(2, Words{"--device", "cpu"} + more));
  ASSERT_EQ(many.status, 0) << many;
  EXPECT_EQ(Count(many.out, "\nresult\n"), 1) << many;
  EXPECT_NE(many.out.find("cpu in each of 2 processes"), std::string::npos) << many;
  EXPECT_EQ(Count(many.err, "training mlp"), 1) << many;
  EXPECT_EQ(Files("bindery-checkpoints").size(), 2u) << many;  // of two epochs, by one process
  Succeeds(Training(2, {"--device", "cpu:0,cpu:1", "--checkpoints", "one", "--optimizer", "sgd(lr=0.05, momentum=0.9)",
                        "--save", "one.pb"}));
  EXPECT_LE(Difference("many.pb", "one.pb"), 1e-5);
}

TEST_F(ProcessesCommandsTest, GoOnWithAnotherNumberOfProcesses) {
  ASSERT_EQ(InProcesses(2, Training(1, {"--device", "cpu", "--log", "log"})).status, 0);
  const Outcome outcome = InProcesses(
      3, {"train", "--resume", "--epochs", "3", "--batch-size", "48", "--device", "cpu", "--save", "model.pb"});
  EXPECT_EQ(outcome.status, 5) << outcome;  // of another batch size
  EXPECT_EQ(Count(outcome.err, "was saved with another \"batch_size\""), 1) << outcome;
  const Outcome resumed =
      InProcesses(4, {"train", "--resume", "--epochs", "3", "--device", "cpu", "--save", "model.pb"});
  EXPECT_EQ(resumed.status, 0) << resumed;
  EXPECT_EQ(Count(Read("log"), "\"epoch\""), 3) << Read("log");
  EXPECT_NE(resumed.err.find("going on after step 2, in epoch 2"), std::string::npos) << resumed;
  const Outcome alone = Bindery({"train", "--resume", "--epochs", "4", "--device", "cpu"});
  EXPECT_EQ(alone.status, 0) << alone;
}

TEST_F(ProcessesCommandsTest, MistakesAreSaidOnce) {
  const Outcome usage = InProcesses(2, {"train", "--device", "cpu", "--epochs", "many"});
  EXPECT_EQ(usage.status, 2) << usage;
  EXPECT_EQ(Count(usage.err, "--epochs"), 1) << usage;
  // Of another one alone, the first one says it.
  std::vector<std::string> mixed = Mpirun(1) + Command(Training(1, {"--device", "cpu"}));
  mixed = mixed + std::vector<std::string>{":", "-n", "1"} + Command({"train", "--epochs", "many"});
  const Outcome other = Process(mixed, folder()).Wait(std::chrono::seconds(120));
  EXPECT_NE(other.status, 0) << other;
  EXPECT_EQ(Count(other.err, "process 1 of 2 has stopped: --epochs"), 1) << other;
  const Outcome batch = InProcesses(3, Training(1, {"--device", "cpu", "--batch-size", "50"}));
  EXPECT_EQ(batch.status, 2) << batch;
  EXPECT_EQ(Count(batch.err, "--batch-size 50: it is that of all processes together, but cannot be shared out among 3"),
            1)
      << batch;
  const Outcome missing = InProcesses(2, {"train", "--data", "csv:nowhere.csv", "--model", "mlp"});
  EXPECT_NE(missing.status, 0) << missing;
  EXPECT_EQ(Count(missing.err, "nowhere.csv"), 1) << missing;
  const Outcome events = InProcesses(2, {"train", "--data", "csv:nowhere.csv", "--model", "mlp", "--json"});
  EXPECT_EQ(Count(events.out, "\"event\":\"error\""), 1) << events;
  const Outcome bad = InProcesses(2, Training(2, {"--device", "cpu", "--optimizer", "sgd(lr=1e30)"}));
  EXPECT_NE(bad.status, 0) << bad;
  EXPECT_EQ(Count(bad.err, "training has diverged"), 1) << bad;
}

// The first one stops after some steps, since nobody reads what it prints, which the pipe soon has no room for; so the
// other one says that it waits for it.
TEST_F(ProcessesCommandsTest, OneThatWaitsInVainSaysSo) {
  std::string first = "mkfifo full && exec 3<>full && head -c 60000 /dev/zero >&3 && exec";
  for (const std::string& word : Command(Training(100'000, {"--device", "cpu", "--json", "--json-every", "1"}))) {
    first += " '" + word + "'";
  }
  std::vector<std::string> words = Mpirun(1) + std::vector<std::string>{"/bin/sh", "-c", first + " >full"};
  words = words + std::vector<std::string>{":", "-n", "1"} +
          Command(Training(100'000, {"--device", "cpu", "--device-timeout", "1"}));
  const Outcome outcome = Process(words, folder()).Wait(std::chrono::seconds(120));
  EXPECT_NE(outcome.status, 0) << outcome;
  EXPECT_EQ(Count(outcome.err, "bindery: process 1 of 2: "), 1) << outcome;
  EXPECT_NE(outcome.err.find("sum over processes"), std::string::npos) << outcome;
}

}  // namespace
}  // namespace bindery
