#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/philox.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_folder.h"
#include "train/checkpoint/checkpoint.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

Checkpoint At(int64_t step, int64_t elements = 10) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.model.params["w"] = HostTensor::Full(DType::kFloat32, {elements}, static_cast<double>(step));
  return checkpoint;
}

class CheckpointStoreTest : public testing::Test {
 protected:
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  void Damage(const std::string& name) const {
    std::fstream file(folder_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('!');
  }

  const TestFolder made_;
  const std::string parent_ = made_.path(), folder_ = parent_ + "/runs/one";
  LogLines warnings_{LogLevel::kWarning};
};

TEST_F(CheckpointStoreTest, KeepsTheNewest) {
  CheckpointStore store(folder_, 2);
  EXPECT_FALSE(store.LoadNewest().has_value());
  EXPECT_TRUE(store.List().empty());
  for (const int64_t step : {5, 10, 99, 100}) {
    EXPECT_EQ(store.Save(At(step)), fmt::format("{}/step-{:010}.ckpt", folder_, step));
    EXPECT_EQ(store.LoadNewest()->step, step);
  }
  EXPECT_EQ(Names(), (std::vector<std::string>{"step-0000000099.ckpt", "step-0000000100.ckpt"}));
  EXPECT_EQ(store.List(),
            (std::vector<std::string>{folder_ + "/step-0000000099.ckpt", folder_ + "/step-0000000100.ckpt"}));
  store.Save(At(20'000'000'000));  // more digits
  EXPECT_EQ(CheckpointStore(folder_).LoadNewest()->step, 20'000'000'000);
  store.Save(At(20'000'000'000));  // the same again
  EXPECT_EQ(Names().size(), 2u);
  EXPECT_EQ(warnings_.text(), "");
}

// A header is enough for it; the tensors are not looked at.
TEST_F(CheckpointStoreTest, TheInfoIsReadAlone) {
  CheckpointStore store(folder_);
  EXPECT_EQ(store.NewestInfo(), std::nullopt);
  for (const int64_t step : {1, 2}) {
    Checkpoint checkpoint = At(step);
    checkpoint.info["step"] = fmt::format("{}", step);
    store.Save(checkpoint);
  }
  EXPECT_EQ(store.NewestInfo()->at("step"), "2");
  Damage("step-0000000002.ckpt");
  EXPECT_EQ(LoadCheckpointInfo(store.List()[1]).at("step"), "2");
  EXPECT_THROW(LoadCheckpoint(store.List()[1]), CheckpointError);
  std::ofstream(store.List()[1]) << "BNDCKPT";
  EXPECT_THROW(LoadCheckpointInfo(store.List()[1]), CheckpointError);
  EXPECT_EQ(store.NewestInfo()->at("step"), "1");
  EXPECT_EQ(warnings_.text(), "");
}

TEST_F(CheckpointStoreTest, SkipsDamagedOnes) {
  CheckpointStore store(folder_);
  for (const int64_t step : {1, 2, 3}) store.Save(At(step));
  Damage("step-0000000003.ckpt");
  EXPECT_EQ(store.LoadNewest()->step, 2);
  ASSERT_EQ(warnings_.lines().size(), 1u);
  EXPECT_TRUE(warnings_.lines()[0].starts_with(
      fmt::format("skipping a damaged checkpoint: \"{}/step-0000000003.ckpt\": parameter \"w\", bytes ", folder_)))
      << warnings_.lines()[0];
  Damage("step-0000000001.ckpt");
  Damage("step-0000000002.ckpt");
  try {
    store.LoadNewest();
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_NE(
        error.message().find(fmt::format(
            "none of the 3 checkpoints in \"{}\" can be read; the newest: \"{}/step-0000000003.ckpt\": parameter \"w\"",
            folder_, folder_)),
        std::string::npos)
        << error.what();
  }
}

// As where the folder that it led to is not mounted: that is not one which a run has just removed.
TEST_F(CheckpointStoreTest, ALinkToNothingIsDamaged) {
  const CheckpointStore store(folder_);
  fs::create_directories(folder_);
  fs::create_symlink("nowhere", folder_ + "/step-0000000002.ckpt");
  EXPECT_NE(MessageOf<CheckpointError>([&] { store.LoadNewest(); }).find("none of the 1 checkpoints"),
            std::string::npos);
  CheckpointStore(folder_).Save(At(3));
  EXPECT_EQ(store.LoadNewest()->step, 3);
}

// What is listed may be gone when its turn comes: then there is a newer one.
TEST_F(CheckpointStoreTest, ReadsBesideARunThatGoesOn) {
  CheckpointStore store(folder_, 1);
  CheckpointStore(folder_).Save(At(1));
  CheckpointStore(folder_).Save(At(2));
  Damage("step-0000000002.ckpt");
  SetLogCallback([&, saved = false](LogLevel, const std::string&) mutable {  // between the two
    if (!std::exchange(saved, true)) store.Save(At(3));
  });
  EXPECT_EQ(store.LoadNewest()->step, 3);
  EXPECT_EQ(Names(), (std::vector<std::string>{"step-0000000003.ckpt"}));
}

TEST_F(CheckpointStoreTest, SetsLaterStepsAside) {
  CheckpointStore store(folder_, 1);
  store.Save(At(900));
  Damage("step-0000000900.ckpt");
  store.Save(At(50));  // resumed from before
  EXPECT_EQ(Names(), (std::vector<std::string>{"step-0000000050.ckpt", "step-0000000900.ckpt.old"}));
  EXPECT_EQ(store.LoadNewest()->step, 50);
  ASSERT_EQ(warnings_.lines().size(), 1u);
  EXPECT_EQ(warnings_.lines()[0],
            fmt::format("\"{0}/step-0000000900.ckpt\" is of a later step than this run's 50: it is kept "
                        "as \"{0}/step-0000000900.ckpt.old\"",
                        folder_));
  store.Save(At(900));
  store.Save(At(60));  // and once more: the first one is kept, too
  EXPECT_EQ(Names(), (std::vector<std::string>{"step-0000000060.ckpt", "step-0000000900.ckpt.old",
                                               "step-0000000900.ckpt.old2"}));
}

TEST_F(CheckpointStoreTest, LeavesOtherFilesAloneAndRemovesTemporaries) {
  fs::create_directories(folder_);
  for (const char* name :
       {"notes.txt", "step-12.ckpt", "step-000000000x.ckpt", ".bindery-0123.tmp", ".bindery-zz.tmp", "step-.ckpt"}) {
    std::ofstream(folder_ + "/" + name) << "text";
  }
  CheckpointStore store(folder_, 1);
  EXPECT_FALSE(store.LoadNewest().has_value());
  store.Save(At(3));
  store.Save(At(4));
  EXPECT_EQ(Names(), (std::vector<std::string>{"notes.txt", "step-.ckpt", "step-0000000004.ckpt",
                                               "step-000000000x.ckpt", "step-12.ckpt"}));
}

// Others write into the folder meanwhile: the best model so far, a plot.
TEST_F(CheckpointStoreTest, LeavesWhatIsBeingWrittenAlone) {
  CheckpointStore store(folder_, 1);
  store.Save(At(1));
  std::ofstream(folder_ + "/.bindery-0123.tmp") << "left behind";
  WriteFileAtomically(folder_ + "/best.pb", [&](const ByteSink& sink) {
    sink("whole", 5);
    store.Save(At(2));
  });
  EXPECT_EQ(Names(), (std::vector<std::string>{"best.pb", "step-0000000002.ckpt"}));
  EXPECT_EQ(ReadFile(folder_ + "/best.pb"), "whole");
}

TEST_F(CheckpointStoreTest, Errors) {
  EXPECT_THROW(CheckpointStore("", 1), Error);
  EXPECT_THROW(CheckpointStore(folder_, 0), Error);
  std::ofstream(parent_ + "/file") << "text";
  CheckpointStore store(parent_ + "/file");
  EXPECT_THROW(store.Save(At(1)), DataError);
  EXPECT_THROW(store.LoadNewest(), DataError);
}

[[noreturn]] void SaveUntilKilled(const std::string& folder, int keep, int64_t first, int report) {
  try {
    CheckpointStore store(folder, keep);
    for (int64_t step = first;; ++step) {
      store.Save(At(step, 300000));
      if (::write(report, &step, sizeof(step)) != sizeof(step)) break;
    }
  } catch (...) {  // the parent sees that nothing more was saved
  }
  ::_exit(1);
}

// A process that saves without end is killed at any moment: what it reported as saved, or something later, is there.
TEST_F(CheckpointStoreTest, KilledWhileSaving) {
  PhiloxStream random(1, "kill");
  int64_t saved = 0;
  for (int round = 0; round < 25; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(pipe_ends[0]);
      SaveUntilKilled(folder_, 1 + round % 2, saved + 1, pipe_ends[1]);
    }
    ::close(pipe_ends[1]);
    int64_t step = 0;
    if (round == 0) {  // let there be one
      ASSERT_EQ(::read(pipe_ends[0], &step, sizeof(step)), static_cast<ssize_t>(sizeof(step)));
    }
    ::usleep(static_cast<useconds_t>(random.Below(20000)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ::waitpid(child, nullptr, 0);
    while (::read(pipe_ends[0], &step, sizeof(step)) == static_cast<ssize_t>(sizeof(step))) {
    }
    ::close(pipe_ends[0]);
    saved = std::max(saved, step);
    const std::optional<Checkpoint> newest = CheckpointStore(folder_).LoadNewest();
    ASSERT_TRUE(newest.has_value());
    ASSERT_GE(newest->step, saved);
    ASSERT_EQ(newest->model.params.at("w"),
              HostTensor::Full(DType::kFloat32, {300000}, static_cast<double>(newest->step)));
    saved = newest->step;
  }
  EXPECT_EQ(warnings_.text(), "");  // nothing was ever half written under its name
  CheckpointStore(folder_, 1).Save(At(saved + 1));
  EXPECT_EQ(Names().size(), 1u);  // no temporaries
}

}  // namespace
}  // namespace bindery
