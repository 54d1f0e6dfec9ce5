// Data of more files than a process may have open at once.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "tests/message_of.h"
#include "train/data/gunzip.h"
#include "train/data/records/tar.h"
#include "train/data/records/tf_record.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;
const std::string kFolder = "tests/train/stored/";
constexpr int kFiles = 300;

class ManyFilesTest : public testing::Test {
 protected:
  ManyFilesTest() : folder_(testing::TempDir() + "/many_files") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 200;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~ManyFilesTest() override { ::setrlimit(RLIMIT_NOFILE, &before_); }

  std::vector<std::string> Copies(const std::string& bytes) const {
    std::vector<std::string> paths;
    for (int i = 0; i < kFiles; ++i) {
      paths.push_back(folder_ + "/" + std::to_string(i));
      std::ofstream(paths.back(), std::ios::binary) << bytes;
    }
    return paths;
  }

  const std::string folder_;
  rlimit before_ = {};
};

TEST_F(ManyFilesTest, AreReadInAnyOrder) {
  const std::string records = ReadFile(kFolder + "python.tfrecord");
  for (const std::string& bytes : {records, Gzip(records)}) {
    const std::vector<std::string> paths = Copies(bytes);
    const RecordSourcePtr train = OpenTfRecords(paths), test = OpenTfRecords(paths);
    ASSERT_EQ(train->records(), 4 * kFiles);
    for (int64_t i = 0; i < train->records(); ++i) {
      const int64_t number = i * 7919 % train->records();
      for (const RecordSourcePtr& source : {train, test}) {
        EXPECT_EQ(source->Read(number).at("label").ints, std::vector<int64_t>{number % 4 % 3}) << number;
      }
    }
  }
  const RecordSourcePtr tars = OpenTars(Copies(ReadFile(kFolder + "python_ustar.tar")));
  ASSERT_EQ(tars->records(), 3 * kFiles);
  for (const int64_t i : {0, 899, 1, 450}) {
    EXPECT_EQ(tars->Read(i).at("txt").bytes, std::vector<std::string>{"text " + std::to_string(i % 3)}) << i;
  }
}

// What has been opened is not there any more when it is read again.
TEST_F(ManyFilesTest, AFileThatIsAnotherByNowIsAnError) {
  const std::string records = ReadFile(kFolder + "python.tfrecord");
  const std::vector<std::string> paths = Copies(records);
  const RecordSourcePtr source = OpenTfRecords(paths);
  WriteFileAtomically(paths[0], records);
  fs::remove(paths[1]);
  EXPECT_EQ(MessageOf<DataError>([&] { source->Read(0); }),
            "DataError: cannot read \"" + paths[0] + "\": it is another file than when it was opened first");
  EXPECT_NE(MessageOf<DataError>([&] { source->Read(5); }).find("cannot read \"" + paths[1] + "\": No such file"),
            std::string::npos);
  EXPECT_EQ(source->Read(8).at("label").ints, std::vector<int64_t>{0});
}

}  // namespace
}  // namespace bindery
