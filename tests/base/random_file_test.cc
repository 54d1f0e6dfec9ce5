#include "base/random_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/message_of.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class RandomFileTest : public testing::Test {
 protected:
  RandomFileTest() { std::ofstream(path_, std::ios::binary) << "0123456789"; }

  static std::string Refused(const std::string& path) {
    return MessageOf<DataError>([&] { RandomFile file(path); });
  }
  static auto Descriptors() { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); }

  const TestFolder made_;
  const std::string folder_ = made_.path(), path_ = folder_ + "/file";
};

TEST_F(RandomFileTest, ReadsAnyPlace) {
  const RandomFile file(path_);
  EXPECT_EQ(file.path(), path_);
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(file.Read(7, 3), "789");
  EXPECT_EQ(file.Read(0, 10), "0123456789");
  EXPECT_EQ(file.Read(10, 0), "");
  char bytes[4] = "---";
  file.Read(4, 2, bytes);
  EXPECT_STREQ(bytes, "45-");
}

TEST_F(RandomFileTest, BeyondTheEndIsAnError) {
  const RandomFile file(path_);
  const std::string start = "DataError: cannot read \"" + path_ + "\": ";
  const auto error = [&](int64_t offset, int64_t size) {
    return MessageOf<DataError>([&] { file.Read(offset, size); });
  };
  EXPECT_EQ(error(8, 3), start + "there is no byte 10; it had 10 when it was opened");
  EXPECT_EQ(error(11, 1), start + "there is no byte 11; it had 10 when it was opened");
  EXPECT_THROW(file.Read(INT64_MAX - 1, 1), DataError);
  EXPECT_EQ(error(-1, 1), start + "Invalid argument (errno 22)");
}

TEST_F(RandomFileTest, SomeIsWhatThereIs) {
  const RandomFile file(path_);
  std::string bytes(20, '-');
  EXPECT_EQ(file.ReadSome(6, 20, bytes.data()), 4);
  EXPECT_EQ(bytes, "6789" + std::string(16, '-'));
  EXPECT_EQ(file.ReadSome(0, 3, bytes.data()), 3);
  EXPECT_EQ(file.ReadSome(10, 5, bytes.data()), 0);
  EXPECT_EQ(file.ReadSome(1000, 5, bytes.data()), 0);
  EXPECT_THROW(file.ReadSome(-1, 5, bytes.data()), DataError);
}

TEST_F(RandomFileTest, AFileThatShrinksOrGrows) {
  const RandomFile file(path_);
  fs::resize_file(path_, 4);
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(file.Read(0, 4), "0123");
  EXPECT_EQ(MessageOf<DataError>([&] { file.Read(2, 8); }),
            "DataError: cannot read \"" + path_ + "\": there is no byte 4; it had 10 when it was opened");
  fs::resize_file(path_, 12);
  EXPECT_EQ(file.Read(3, 9), "3" + std::string(8, '\0'));
}

TEST_F(RandomFileTest, OnlyRegularFiles) {
  const auto before = Descriptors();
  EXPECT_EQ(Refused(folder_ + "/none"),
            "DataError: cannot read \"" + folder_ + "/none\": No such file or directory (errno 2)");
  EXPECT_EQ(Refused(folder_), "DataError: cannot read \"" + folder_ + "\": not a regular file");
  EXPECT_EQ(Refused("/dev/null"), "DataError: cannot read \"/dev/null\": not a regular file");
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Refused(pipe), "DataError: cannot read \"" + pipe + "\": not a regular file");  // waits for no writer
  EXPECT_EQ(Refused(path_ + '\0' + ".txt"),
            "DataError: cannot read \"" + path_ + "\": the name contains a null character");
  EXPECT_EQ(Refused(std::string(1, '\0')), "DataError: cannot read \"\": the name contains a null character");
  EXPECT_EQ(Descriptors(), before);
}

TEST_F(RandomFileTest, ComplaintsAreTheReaders) {
  EXPECT_EQ(MessageOf<DataError>([&] { RandomFile(folder_, "the album"); }),
            "DataError: the album: not a regular file");
  const RandomFile file(path_, "the album");
  EXPECT_EQ(MessageOf<DataError>([&] { file.Read(9, 2); }),
            "DataError: the album: there is no byte 10; it had 10 when it was opened");
}

TEST_F(RandomFileTest, ClosesTheDescriptorThatItTakes) {
  const auto before = Descriptors();
  {
    const RandomFile file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC), "x", "the album");
    EXPECT_EQ(file.Read(2, 2), "23");
    EXPECT_EQ(file.path(), "x");
    EXPECT_EQ(Descriptors(), before + 1);
  }
  EXPECT_EQ(Descriptors(), before);
  EXPECT_EQ(MessageOf<DataError>([&] { RandomFile(::open(folder_.c_str(), O_RDONLY | O_CLOEXEC), "x", "the album"); }),
            "DataError: the album: not a regular file");
  EXPECT_EQ(Descriptors(), before);
  EXPECT_EQ(MessageOf<DataError>([] { RandomFile(-1, "x", "the album"); }),
            "DataError: the album: Bad file descriptor (errno 9)");
}

TEST_F(RandomFileTest, AnyThreadsMayRead) {
  const RandomFile file(path_);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 1000; ++i) wrong += file.Read(t, 4) != std::string("0123456789").substr(t, 4);
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace bindery
