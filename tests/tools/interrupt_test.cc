// Runs that are stopped, killed and resumed.
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/tools/program.h"

namespace bindery {
namespace {

class InterruptTest : public ProgramTest {
 protected:
  // Starts a training that saves a checkpoint after every step, and sends the signal after the first.
  Outcome Interrupt(int signal, const Words& training) {
    Process process(Command(training + Words{"--checkpoint-every", "1", "--checkpoints", "run"}), folder());
    while (process.Running() && !HasCheckpoint()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    process.Signal(signal);
    return process.Wait();
  }
  bool HasCheckpoint() const {
    if (!std::filesystem::exists(PathOf("run"))) return false;
    for (const std::string& name : Files("run")) {
      if (name.ends_with(".ckpt")) return true;
    }
    return false;
  }
};

// 400 steps: the signal comes long before they are done.
constexpr int kEpochs = 200;

TEST_F(InterruptTest, ASignalSavesAndTheResumedRunEndsInTheSameBits) {
  const Words rarely = {"--checkpoint-every", "1000000"};
  for (const char* name : {"whole", "stopped"}) std::filesystem::create_directory(PathOf(name));
  Succeeds(Training(kEpochs, Words{"--checkpoints=", "--save", "whole/model.pb"}));
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const Outcome stopped = Interrupt(signal, Training(kEpochs, {"--save", "stopped/model.pb", "--json"}));
    EXPECT_EQ(stopped.status, 75) << stopped;
    EXPECT_NE(stopped.err.find("stopping after this step"), std::string::npos) << stopped;
    EXPECT_NE(stopped.err.find("go on with --resume"), std::string::npos) << stopped;
    const std::string lines = stopped.out.substr(0, stopped.out.rfind('\n'));
    const nlohmann::json last = nlohmann::json::parse(lines.substr(lines.rfind('\n') + 1));
    const int steps = last.at("steps");
    EXPECT_EQ(last.at("stopped"), true);
    EXPECT_LT(steps, 2 * kEpochs);
    EXPECT_EQ(ModelFiles("stopped/model.pb").size(), 1u);

    const Words resume = Words{"--checkpoints", "run", "--resume", "--save", "stopped/model.pb"} + rarely;
    const Outcome resumed = Succeeds(Training(kEpochs, resume));
    EXPECT_NE(resumed.err.find("going on after step " + std::to_string(steps)), std::string::npos) << resumed;
    EXPECT_EQ(ModelFiles("stopped/model.pb"), ModelFiles("whole/model.pb"));
    std::filesystem::remove_all(PathOf("run"));
  }
}

// Within a step, which here takes long, without waiting for its end; what was saved before is whole.
TEST_F(InterruptTest, ASecondSignalEndsAtOnce) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove_all(PathOf("run"));
    Process process(Command({"train", "--model", "lenet", "--train-digits", "2048", "--test-digits", "10",
                             "--batch-size", "2048", "--epochs", "1000", "--threads", "1", "--checkpoint-every", "1",
                             "--checkpoints", "run", "--progress", "none"}),
                    folder());
    while (process.Running() && !HasCheckpoint()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    process.Signal(signal);
    while (process.Running() && process.Err().find("once more: at once") == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(process.Running()) << "the step was over too soon";
    process.Signal(signal);
    const Outcome outcome = process.Wait();
    EXPECT_EQ(outcome.status, 128 + signal) << outcome;
    EXPECT_EQ(outcome.err.find("stopped at step"), std::string::npos) << outcome;
    EXPECT_EQ(outcome.out, "");
    for (const std::string& name : Files("run")) {
      if (name.ends_with(".ckpt")) Succeeds({"verify", "run/" + name});
    }
  }
}

TEST_F(InterruptTest, AHangUpSavesAndTheRunGoesOn) {
  for (const char* name : {"whole", "hung-up"}) std::filesystem::create_directory(PathOf(name));
  Succeeds(Training(kEpochs, Words{"--checkpoints=", "--save", "whole/model.pb"}));
  const Words rarely = {"--checkpoint-every", "1000000", "--checkpoints", "run", "--save", "hung-up/model.pb"};
  Process process(Command(Training(kEpochs, rarely)), folder());
  while (process.Running() && process.Err().find("epoch 1/") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(HasCheckpoint());
  process.Signal(SIGHUP);
  while (process.Running() && !HasCheckpoint()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(process.Running());
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.err.find("saving a checkpoint after this step, then going on"), std::string::npos) << outcome;
  EXPECT_EQ(Files("run").size(), 2u);  // that one and the last
  EXPECT_EQ(ModelFiles("hung-up/model.pb"), ModelFiles("whole/model.pb"));
}

TEST_F(InterruptTest, ResumingIsNotMixedUp) {
  const Words run = {"--checkpoints", "run", "--resume"};
  EXPECT_NE(
      Succeeds(Training(1, run)).err.find("warning: resume: there is no checkpoint in \"run\" yet: starting anew"),
      std::string::npos);
  const Outcome mistyped = Succeeds(Training(1, {"--checkpoints", "rnu/", "--resume"}));
  EXPECT_NE(mistyped.err.find("warning: --resume: \"rnu/\" has no checkpoints, but \"run\" beside it has"),
            std::string::npos)
      << mistyped;
  // Who does not say what is trained means a run that is there: digits are not drawn in its place.
  const Outcome nothing =
      Fails(5, "--resume: there is no checkpoint in \"rum\" to go on from; for a new run, say --model and --data",
            {"train", "--resume", "--checkpoints", "rum", "--epochs", "3"});
  EXPECT_NE(nothing.err.find("\"rum\" has no checkpoints, but \"run\" beside it has"), std::string::npos) << nothing;
  EXPECT_FALSE(std::filesystem::exists(PathOf("rum")));
  EXPECT_NE(Succeeds(Training(1, run)).err.find("has 1 epochs already: nothing is left to train"), std::string::npos);
  const Words other_model = {"train", "--model",  "lenet", "--train-digits", "100", "--test-digits",
                             "50",    "--epochs", "2"};
  Fails(5, "the checkpoint is of another model: it has no \"conv1_weight\"", other_model + run);
  Fails(5, "saved with another \"batch_size\": 64, but here it is 32", Training(2, run + Words{"--batch-size", "32"}));
  Fails(5, "saved with other data", Training(2, run + Words{"--digits-seed", "2"}));
  Fails(5, "saved with another \"seed\": 0, but here it is 1", Training(2, run + Words{"--seed", "1"}));
  Fails(5, "another graph", Training(2, run + Words{"--dropout", "0.2"}));
  EXPECT_EQ(Files("run"), Words{"step-0000000002.ckpt"});
  Fails(0, "results are equal up to rounding, not to the bit", Training(2, run + Words{"--workload", "1,3"}));
  EXPECT_EQ(Files("run").size(), 2u);
  Fails(0, "was trained on cpu:0,cpu:1 with workload 1,3, this run goes on on cpu:0:",
        Training(3, run + Words{"--devices", "cpu:0"}));
  // Forgetting --resume replaces nothing.
  const Words kept = Files("run");
  Fails(2, "step-0000000006.ckpt\" is of an earlier run: --resume goes on with it",
        Training(1, {"--checkpoints", "run"}));
  Fails(2, "not both", Training(1, run + Words{"--overwrite"}));
  EXPECT_EQ(Files("run"), kept);
  Succeeds(Training(1, {"--checkpoints", "run", "--overwrite"}));
  EXPECT_EQ(Files("run")[0], "step-0000000002.ckpt");
  EXPECT_EQ(Files("run").back(), "step-0000000006.ckpt.old");
}

// Each would remove the other's files.
TEST_F(InterruptTest, OneTrainingAtATimeInAFolder) {
  Process first(Command(Training(1'000'000, {"--checkpoints", "run", "--keep", "1000"})), folder());
  while (first.Running() && !HasCheckpoint()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Fails(4, "--checkpoints: another training is writing to \"run\"", Training(1, {"--checkpoints", "run", "--resume"}));
  Succeeds({"test", "--checkpoints", "run", "--test-digits", "50"});
  EXPECT_TRUE(first.Running());
  first.Signal(SIGKILL);
  EXPECT_EQ(first.Wait().status, 128 + SIGKILL);
  Succeeds(Training(1, {"--checkpoints", "run", "--resume"}));  // nothing is left of the lock
}

TEST_F(InterruptTest, KilledAnywhereItEndsInTheSameBits) {
  const std::string tools = Command({})[0].substr(0, Command({})[0].rfind('/'));
  const Words script = {tools + "/kill_and_resume.sh", "--kills", "6", "--program", tools + "/bindery"};
  // Digits; and images, which are augmented and read by two workers.
  const Words digits = {"--", "--model",   "mlp", "--train-digits", "200", "--test-digits", "20", "--epochs",
                        "6",  "--dropout", "0.5", "--threads",      "1"};
  for (const Words& options : {digits, Words{}}) {
    const Outcome outcome = Process(script + options, folder()).Wait();
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_NE(outcome.out.find("6 kills in "), std::string::npos) << outcome;
    EXPECT_NE(outcome.out.find("bit for bit"), std::string::npos) << outcome;
  }
}

// A write, fsync or rename fails, or is the program's last call; three of them, drawn.
TEST_F(InterruptTest, SystemCallsThatFailLeaveAGoodCheckpoint) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' own threads and calls do not go with strace";
#endif
  const Words strace = {"/bin/sh", "-c",
                        "strace -f --seccomp-bpf -o trace -e trace=rename -e inject=rename:error=EIO true"};
  if (Process(strace, folder()).Wait().status != 0) GTEST_SKIP() << "there is no strace, or it may not trace";
  const std::string tools = Command({})[0].substr(0, Command({})[0].rfind('/'));
  const Outcome outcome =
      Process({tools + "/kill_and_resume.sh", "--faults", "3", "--program", tools + "/bindery", "--", "--model", "mlp",
               "--train-digits", "200", "--test-digits", "20", "--epochs", "6", "--dropout", "0.5", "--threads", "1"},
              folder())
          .Wait(std::chrono::minutes(2));
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.out.find("3 faults in "), std::string::npos) << outcome;
  EXPECT_NE(outcome.out.find("bit for bit"), std::string::npos) << outcome;
}

}  // namespace
}  // namespace bindery
