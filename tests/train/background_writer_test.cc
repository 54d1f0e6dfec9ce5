// Checkpoints that are written while a run goes on.
#include "train/checkpoint/background_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "base/files.h"
#include "tests/message_of.h"
#include "tests/train/loop_fixture.h"
#include "train/extensions/snapshots.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

// Holds the writer of a checkpoint back: where a file of a later step lies in the folder, the writer sets it aside and
// says so before it writes, and what it says to waits here. Nobody else must log meanwhile.
class Gate {
 public:
  explicit Gate(const std::string& folder) {
    std::ofstream(folder + "/step-0000000099.ckpt") << "of another run";
    SetLogCallback([this](LogLevel, const std::string& message) {
      if (message.find("is of a later step") != std::string::npos) Pass();
    });
  }
  ~Gate() {
    Open();
    SetLogCallback(nullptr);
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void AwaitWriter() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return reached_; }));
  }
  bool passed_in_time() const { return in_time_; }

 private:
  void Pass() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    in_time_ = changed_.wait_for(lock, std::chrono::seconds(20), [&] { return open_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false, open_ = false, in_time_ = false;
};

class BackgroundWriterTest : public LoopTest {};

TEST_F(BackgroundWriterTest, StepsGoOnWhileACheckpointIsWritten) {
  Gate gate(folder_);
  Counter learner;
  Loop loop(&learner, UntilIteration(6));
  std::vector<std::pair<int64_t, std::string>> saved;
  loop.Extend(Snapshot(
      {.folder = folder_, .trigger = EveryIterations(3), .autoload = false, .on_save = [&](const std::string& path) {
         saved.emplace_back(loop.now().iteration, path);
       }}));
  std::vector<std::string> seen = {"not looked"};
  loop.Extend({.name = "opens", .trigger = AtIterations({5}), .run = [&](Loop&) {
                 gate.AwaitWriter();
                 seen = Checkpoints();
                 gate.Open();
               }});
  loop.Run();
  EXPECT_TRUE(gate.passed_in_time()) << "the run waited for the writer, or the writer for nobody";
  EXPECT_EQ(seen, std::vector<std::string>());  // the other run's was set aside, and this one's is being written
  // Both are there at the end, and have been told of, the last one at the end.
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved[0].second, folder_ + "/step-0000000003.ckpt");
  EXPECT_EQ(saved[1], std::pair(int64_t{6}, folder_ + "/step-0000000006.ckpt"));
  EXPECT_EQ(LoadCheckpoint(saved[0].second).step, 3);
  EXPECT_EQ(CheckpointStore(folder_).LoadNewest()->step, 6);
}

TEST_F(BackgroundWriterTest, ACopyIsWrittenNotWhatBecameOfIt) {
  Gate gate(folder_);
  BackgroundWriter writer(CheckpointStore(folder_, 3));
  Checkpoint checkpoint{.model = {.params = {{"w", HostTensor::Full(DType::kFloat32, {3}, 1)}}}, .step = 1};
  writer.Start(checkpoint);
  EXPECT_EQ(writer.Take(), std::nullopt);
  checkpoint.model.params["w"].Set(0, 7);
  gate.Open();
  EXPECT_EQ(writer.TakeWhenDone(), folder_ + "/step-0000000001.ckpt");
  EXPECT_EQ(writer.TakeWhenDone(), std::nullopt);  // it was taken
  EXPECT_EQ(LoadCheckpoint(folder_ + "/step-0000000001.ckpt").model.params.at("w").At(0), 1);
  // The bytes are those that are saved without it.
  checkpoint.model.params["w"].Set(0, 1);
  SaveCheckpoint(checkpoint, folder_ + "/alone");
  EXPECT_EQ(ReadFile(folder_ + "/alone"), ReadFile(folder_ + "/step-0000000001.ckpt"));
}

// An error is the next step's, or the end's, and a run that goes on saves again.
TEST_F(BackgroundWriterTest, ErrorsAreNotLost) {
  const std::string folder = folder_ + "/run";
  std::ofstream(folder) << "no folder";
  {
    Counter learner;
    Loop loop(&learner, UntilIteration(1'000'000));
    loop.Extend(Snapshot({.folder = folder, .trigger = AtIterations({3}), .autoload = false}));
    const std::string message = MessageOf<DataError>([&] { loop.Run(); });
    EXPECT_EQ(message.find("DataError: cannot make the folder \"" + folder + "\""), 0u) << message;
    EXPECT_LT(loop.now().iteration, 1'000'000);
    EXPECT_GT(loop.now().iteration, 3);
    EXPECT_TRUE(loop.failed());
    fs::remove(folder);
    loop.Stop();
    loop.Run();
    EXPECT_EQ(CheckpointStore(folder).LoadNewest()->step, loop.now().iteration);
    fs::remove_all(folder);
  }
  std::ofstream(folder) << "no folder";
  Counter learner;
  Loop loop(&learner, UntilIteration(3));
  loop.Extend(Snapshot({.folder = folder, .trigger = Never(), .autoload = false}));
  EXPECT_EQ(MessageOf<DataError>([&] { loop.Run(); }).find("DataError: cannot make the folder"), 0u);
  // One of nobody who asks is logged.
  std::string logged;
  SetLogCallback([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::kError) logged = line;
  });
  { BackgroundWriter(CheckpointStore(folder, 1)).Start({.step = 1}); }
  SetLogCallback(nullptr);
  EXPECT_EQ(logged.find("a checkpoint was not written: DataError: cannot make the folder"), 0u) << logged;
}

// A run that fails while one is being written has written it.
TEST_F(BackgroundWriterTest, AFailedRunWaitsForTheWriter) {
  Counter learner;
  learner.fails_at = 4;
  Loop loop(&learner, UntilIteration(9));
  loop.Extend(Snapshot({.folder = folder_, .trigger = EveryIterations(3), .autoload = false}));
  EXPECT_THROW(loop.Run(), DataError);
  EXPECT_EQ(Checkpoints(), (std::vector<std::string>{"step-0000000003.ckpt"}));
}

// In the process that is to end: the writer is held back until exit() has begun.
[[noreturn]] void EndWhileWriting(const std::string& folder, int status) {
  static std::optional<Gate> gate;
  gate.emplace(folder);
  Counter learner;
  Loop loop(&learner, UntilIteration(6));
  loop.Extend(Snapshot({.folder = folder, .trigger = AtIterations({3}), .autoload = false}));
  loop.Extend({.name = "ends", .trigger = AtIterations({4}), .run = [&](Loop&) {
                 gate->AwaitWriter();
                 std::atexit([] { gate->Open(); });
                 std::exit(status);
               }});
  loop.Run();
  _exit(99);
}

using BackgroundWriterDeathTest = BackgroundWriterTest;

TEST_F(BackgroundWriterDeathTest, AProcessThatEndsWaitsForTheWriter) {
  SetLogCallback(nullptr);
  EXPECT_EXIT(EndWhileWriting(folder_, 7), testing::ExitedWithCode(7), "");
  EXPECT_EQ(Checkpoints(), (std::vector<std::string>{"step-0000000003.ckpt"}));
  EXPECT_EQ(CheckpointStore(folder_).LoadNewest()->step, 3);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".bindery-")) << entry.path();
  }
}

// A run has its folder for itself, from its first step to its last.
TEST_F(BackgroundWriterTest, OneRunAtATimeWritesToAFolder) {
  const SnapshotOptions options{.folder = folder_, .trigger = EveryIterations(2), .autoload = false};
  Counter learner;
  Loop loop(&learner, UntilIteration(3));
  loop.Extend(Snapshot(options));
  std::string said;
  loop.Extend({.name = "other", .trigger = AtIterations({2}), .run = [&](Loop&) {
                 std::thread([&] {
                   Counter another;
                   Loop second(&another, UntilIteration(5));
                   second.Extend(Snapshot(options));
                   said = MessageOf<DataError>([&] { second.Run(); });
                   EXPECT_EQ(second.now().iteration, 0);
                 }).join();
               }});
  loop.Run();
  EXPECT_EQ(said, "DataError: another training is writing to \"" + folder_ + "\": another thread of this process");
  EXPECT_EQ(Checkpoints(), (std::vector<std::string>{"step-0000000002.ckpt", "step-0000000003.ckpt"}));
  EXPECT_FALSE(fs::exists(folder_ + "/.lock"));
  Counter another;  // an error ends it, too
  another.fails_at = 3;
  Loop second(&another, UntilIteration(5));
  second.Extend(Snapshot(options));
  EXPECT_THROW(second.Run(), DataError);
  EXPECT_FALSE(fs::exists(folder_ + "/.lock"));
}

}  // namespace
}  // namespace bindery
