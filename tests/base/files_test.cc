#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  static void Put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  size_t CountEntries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  // Expects DataError with all of `parts` in its message.
  template <class F>
  static void ExpectError(F f, std::initializer_list<std::string> parts) {
    try {
      f();
      FAIL() << "no error";
    } catch (const DataError& error) {
      for (const std::string& part : parts) {
        EXPECT_NE(error.message().find(part), std::string::npos) << part << " in: " << error.what();
      }
    }
  }

  const TestFolder made_;
  const std::string folder_ = made_.path();
};

TEST_F(FilesTest, ReadsBackWhatWasWritten) {
  std::string bytes;
  for (int i = 0; i < 3000000; ++i) bytes += static_cast<char>(i * 7 % 251);
  for (size_t size : {size_t{0}, size_t{1}, size_t{4096}, bytes.size()}) {
    WriteFileAtomically(Path("file"), bytes.substr(0, size));
    EXPECT_EQ(ReadFile(Path("file")), bytes.substr(0, size));
  }
  EXPECT_EQ(CountEntries(), 1u);
}

TEST_F(FilesTest, WritesPiecesInOrder) {
  std::string expected;
  WriteFileAtomically(Path("file"), [&](const ByteSink& sink) {
    for (int i = 0; i < 200; ++i) {
      // Small pieces, empty ones, and some larger than any buffer.
      const std::string piece(i % 50 == 7 ? 1500000 : i % 3 * 11, static_cast<char>('a' + i % 26));
      expected += piece;
      sink(piece.data(), static_cast<int64_t>(piece.size()));
    }
    sink(nullptr, 0);
  });
  EXPECT_EQ(ReadFile(Path("file")), expected);
}

TEST_F(FilesTest, ReadLimit) {
  Put(Path("file"), "12345");
  EXPECT_EQ(ReadFile(Path("file"), 5), "12345");
  ExpectError([&] { ReadFile(Path("file"), 4); }, {Path("file"), "limit is 4"});
  Put(Path("empty"), "");
  EXPECT_EQ(ReadFile(Path("empty"), 0), "");
}

TEST_F(FilesTest, TheLimitHoldsWhereTheSizeIsNotKnown) {
  EXPECT_FALSE(ReadFile("/proc/self/status").empty());  // claims 0 bytes
  ExpectError([] { ReadFile("/proc/self/status", 10); }, {"limit is 10"});
}

TEST_F(FilesTest, HugeSparseFilesAreAnErrorNotACrash) {
  Put(Path("sparse"), "");
  if (::truncate(Path("sparse").c_str(), int64_t{1} << 42) != 0) GTEST_SKIP() << "no file of 4 TiB here";
  ExpectError([&] { ReadFile(Path("sparse")); }, {"limit is 1099511627776"});
  ExpectError([&] { ReadFile(Path("sparse"), 1000); }, {"limit is 1000"});
}

TEST_F(FilesTest, ReadingRefusesWhatIsNotAFile) {
  ExpectError([&] { ReadFile(Path("absent")); }, {Path("absent"), "No such file", "errno 2"});
  ExpectError([&] { ReadFile(folder_); }, {folder_, "not a regular file"});
  ExpectError([&] { ReadFile("/dev/null"); }, {"not a regular file"});
  ExpectError([&] { ReadFile(""); }, {"No such file"});
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectError([&] { ReadFile(Path("pipe")); }, {"not a regular file"});  // and does not wait for a writer
  ExpectError([&] { ReadFile(Path("file") + '\0' + ".txt"); }, {"null character"});
  Put(Path("file"), "x");
  ExpectError([&] { ReadFile(Path("file/below")); }, {"Not a directory"});
  fs::create_symlink(Path("loop"), Path("loop"));
  ExpectError([&] { ReadFile(Path("loop")); }, {"symbolic links"});
}

TEST_F(FilesTest, WritingRefusesWhatIsNotAFile) {
  ExpectError([&] { WriteFileAtomically(Path("absent/file"), "x"); },
              {Path("absent/file"), "there is no folder \"" + Path("absent") + "\""});
  ExpectError([&] { WriteFileAtomically(folder_, "x"); }, {folder_, "not a regular file"});
  ExpectError([&] { WriteFileAtomically("/dev/null", "x"); }, {"not a regular file"});
  ExpectError([&] { WriteFileAtomically(Path(""), "x"); }, {"cannot write"});
  ExpectError([&] { WriteFileAtomically("", "x"); }, {"cannot"});
  ExpectError([&] { WriteFileAtomically(Path("file") + '\0', "x"); }, {"null character"});
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectError([&] { WriteFileAtomically(Path("pipe"), "x"); }, {"not a regular file"});
  ExpectError([&] { WriteFileAtomically(Path(std::string(300, 'n')), "x"); }, {"name too long"});
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
  EXPECT_EQ(CountEntries(), 1u);
}

TEST_F(FilesTest, LongestNameLeavesRoomForTheTemporary) {
  const std::string path = Path(std::string(255, 'n'));
  WriteFileAtomically(path, "x");
  EXPECT_EQ(ReadFile(path), "x");
}

TEST_F(FilesTest, AFailedWriterLeavesEverythingAsItWas) {
  Put(Path("file"), "old");
  const auto fail = [](const ByteSink& sink) {
    const std::string piece(3000000, 'x');
    sink(piece.data(), static_cast<int64_t>(piece.size()));
    throw NumericError("loss is not finite");
  };
  EXPECT_THROW(WriteFileAtomically(Path("file"), fail), NumericError);
  EXPECT_THROW(WriteFileAtomically(Path("new"), fail), NumericError);
  EXPECT_EQ(ReadFile(Path("file")), "old");
  EXPECT_EQ(CountEntries(), 1u);
}

TEST_F(FilesTest, AFullDiskLeavesEverythingAsItWas) {
  Put(Path("file"), "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    WriteFileAtomically(Path("file"), std::string(100000, 'x'));
  } catch (const DataError& error) {
    message = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_EQ(ReadFile(Path("file")), "old");
  EXPECT_EQ(CountEntries(), 1u);
  WriteFileAtomically(Path("file"), "new");  // works again once there is room
  EXPECT_EQ(ReadFile(Path("file")), "new");
}

TEST_F(FilesTest, AKilledProcessLeavesTheOldFile) {
  Put(Path("file"), "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    WriteFileAtomically(Path("file"), [](const ByteSink& sink) {
      const std::string piece(3000000, 'x');
      sink(piece.data(), static_cast<int64_t>(piece.size()));
      ::raise(SIGKILL);
    });
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(ReadFile(Path("file")), "old");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == "file" || (name.starts_with(".bindery-") && name.ends_with(".tmp"))) << name;
  }
}

TEST_F(FilesTest, ReadersSeeOneWholeVersion) {
  WriteFileAtomically(Path("file"), std::string(100000, 'a'));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 1; i <= 40; ++i)
      WriteFileAtomically(Path("file"), std::string(100000 + i, static_cast<char>('a' + i % 26)));
    stop = true;
  });
  while (!stop) {
    const std::string bytes = ReadFile(Path("file"));
    ASSERT_GE(bytes.size(), 100000u);
    ASSERT_EQ(bytes.find_first_not_of(bytes[0]), std::string::npos);
    ASSERT_EQ(bytes[0], static_cast<char>('a' + (bytes.size() - 100000) % 26));
  }
  writer.join();
  EXPECT_EQ(CountEntries(), 1u);
}

TEST_F(FilesTest, LinksStayLinks) {
  fs::create_directory(Path("sub"));
  Put(Path("sub/target"), "old");
  fs::create_symlink("sub/target", Path("link"));
  WriteFileAtomically(Path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_FALSE(fs::is_symlink(Path("sub/target")));
  EXPECT_EQ(ReadFile(Path("sub/target")), "new");
  EXPECT_EQ(ReadFile(Path("link")), "new");
  EXPECT_EQ(CountEntries(), 2u);
  fs::create_symlink(Path("nowhere"), Path("dangling"));
  ExpectError([&] { WriteFileAtomically(Path("dangling"), "x"); }, {Path("dangling"), "No such file"});
  fs::create_symlink("/dev/null", Path("device"));
  ExpectError([&] { WriteFileAtomically(Path("device"), "x"); }, {"not a regular file"});
}

TEST_F(FilesTest, PermissionsOfTheOldFileStay) {
  Put(Path("secret"), "old");
  fs::permissions(Path("secret"), fs::perms(0600));
  WriteFileAtomically(Path("secret"), "new");
  EXPECT_EQ(fs::status(Path("secret")).permissions(), fs::perms(0600));
  const mode_t mask = ::umask(027);
  WriteFileAtomically(Path("fresh"), "new");
  ::umask(mask);
  EXPECT_EQ(fs::status(Path("fresh")).permissions(), fs::perms(0640));
}

TEST_F(FilesTest, RelativePathsAreInTheCurrentFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  WriteFileAtomically("file", "x");
  const std::string bytes = ReadFile("file");
  fs::current_path(before);
  EXPECT_EQ(bytes, "x");
  EXPECT_EQ(ReadFile(Path("file")), "x");
}

TEST_F(FilesTest, MakesFolders) {
  MakeFolder(Path("a/b/c"));
  MakeFolder(Path("a/b/c"));  // it is there
  EXPECT_TRUE(fs::is_directory(Path("a/b/c")));
  MakeFolderOf(Path("d/e/file"));
  EXPECT_TRUE(fs::is_directory(Path("d/e")));
  EXPECT_FALSE(fs::exists(Path("d/e/file")));
  MakeFolderOf("file");   // in the current folder
  MakeFolderOf("/file");  // in the root
  Put(Path("file"), "x");
  ExpectError([&] { MakeFolder(Path("file")); }, {"cannot make the folder \"" + Path("file") + "\": ", "errno"});
  ExpectError([&] { MakeFolder(Path("file/below")); }, {Path("file/below"), "Not a directory (errno 20)"});
  ExpectError([&] { MakeFolderOf(Path("file/below/x")); }, {Path("file/below"), "Not a directory (errno 20)"});
  ExpectError([&] { MakeFolder(Path("f") + '\0' + "g"); }, {"null character"});
  ExpectError([&] { MakeFolder(""); }, {"cannot make the folder \"\": "});
  EXPECT_EQ(CountEntries(), 3u);
}

TEST_F(FilesTest, NoDescriptorsLeak) {
  const auto count = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  const auto before = count();
  for (int i = 0; i < 20; ++i) {
    WriteFileAtomically(Path("file"), "x");
    ReadFile(Path("file"));
    EXPECT_THROW(ReadFile(folder_), DataError);
    EXPECT_THROW(ReadFile(Path("file"), 0), DataError);
    EXPECT_THROW(WriteFileAtomically(Path("file"), [](const ByteSink&) { throw Error("stop"); }), Error);
  }
  EXPECT_EQ(count(), before);
}

TEST(ChecksumTest, IsXxh3) {
  // XXH3_64bits of the empty input with seed 0, as published with the algorithm.
  EXPECT_EQ(Checksum(nullptr, 0), 0x2d06800538d394c2u);
  const std::string text = "bindery";
  EXPECT_EQ(Checksum(text.data(), 7), Checksum(std::string(text).data(), 7));
  EXPECT_NE(Checksum(text.data(), 7), Checksum(text.data(), 6));
  EXPECT_NE(Checksum(text.data(), 7, 1), Checksum(text.data(), 7, 2));
}

TEST(ChecksumTest, EveryBitCounts) {
  std::string bytes(1000, '\0');
  const uint64_t original = Checksum(bytes.data(), 1000);
  for (size_t bit = 0; bit < 8000; ++bit) {
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ASSERT_NE(Checksum(bytes.data(), 1000), original) << bit;
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
}

}  // namespace
}  // namespace bindery
