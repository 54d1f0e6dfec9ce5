#include "train/checkpoint/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/error.h"
#include "tests/message_of.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

class FolderLockTest : public testing::Test {
 protected:
  std::string Refusal() const {
    return MessageOf<DataError>([&] { FolderLock lock(folder_); });
  }

  const TestFolder made_;
  const std::string folder_ = made_.path() + "/runs/one", file_ = folder_ + "/.lock";
};

// A process that holds the folder until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& folder) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    process_ = fork();
    if (process_ == 0) {
      const FolderLock lock(folder);
      (void)!write(ends[1], "x", 1);
      for (;;) pause();
    }
    close(ends[1]);
    char said = 0;
    EXPECT_EQ(read(ends[0], &said, 1), 1);
    close(ends[0]);
  }
  ~Holder() { Kill(); }
  void Kill() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    EXPECT_EQ(waitpid(process_, nullptr, 0), process_);
    process_ = 0;
  }
  pid_t process() const { return process_; }

 private:
  pid_t process_ = 0;
};

TEST_F(FolderLockTest, IsOfOneThread) {
  std::optional<FolderLock> lock(folder_), again(folder_ + "/../one/");
  EXPECT_TRUE(std::filesystem::exists(file_));
  const std::string expected =
      "DataError: another training is writing to \"" + folder_ + "\": another thread of this process";
  std::thread([&] { EXPECT_EQ(Refusal(), expected); }).join();
  lock.reset();
  std::thread([&] { EXPECT_EQ(Refusal(), expected); }).join();
  again.reset();
  EXPECT_FALSE(std::filesystem::exists(file_));  // nothing is left of it
  std::thread([&] { EXPECT_EQ(Refusal(), "nothing was thrown"); }).join();
}

TEST_F(FolderLockTest, NamesTheProcessUntilThatHasEndedHoweverItDid) {
  Holder holder(folder_);
  const std::string message = Refusal();
  EXPECT_TRUE(message.starts_with("DataError: another training is writing to \"" + folder_ + "\": process " +
                                  std::to_string(holder.process()) + " on "))
      << message;
  EXPECT_EQ(Refusal(), message);
  std::ofstream(file_) << "\x1b[31m\nno process";
  EXPECT_NE(Refusal().find("a process that has not said which"), std::string::npos) << Refusal();
  holder.Kill();
  EXPECT_TRUE(std::filesystem::exists(file_));
  EXPECT_EQ(Refusal(), "nothing was thrown");
  EXPECT_FALSE(std::filesystem::exists(file_));
}

// A fork has the descriptor, too, but what it does with its copy is not the holder's affair.
TEST_F(FolderLockTest, AForkIsNotTheHolder) {
  std::optional<FolderLock> lock(folder_);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = Refusal().find("is writing to") != std::string::npos;
    lock.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::exists(file_));
  std::thread([&] { EXPECT_NE(Refusal(), "nothing was thrown"); }).join();
}

TEST_F(FolderLockTest, WhatIsAnothersIsNotRemoved) {
  std::optional<FolderLock> lock(folder_);
  std::filesystem::remove_all(folder_);
  const Holder holder(folder_);
  lock.reset();
  EXPECT_TRUE(std::filesystem::exists(file_));
  EXPECT_NE(Refusal(), "nothing was thrown");
}

// Nobody writes there: those who try say why they cannot.
TEST_F(FolderLockTest, WhereNoFileCanBeMadeThereIsNone) {
  EXPECT_NO_THROW(FolderLock("/proc/self"));
  std::ofstream(made_.path() + "/file") << "no folder";
  EXPECT_NO_THROW(FolderLock(made_.path() + "/file"));
}

}  // namespace
}  // namespace bindery
