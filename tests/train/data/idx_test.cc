#include "train/data/idx.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_folder.h"
#include "train/data/digits.h"
#include "train/data/gunzip.h"

namespace bindery {
namespace {

class IdxTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  const TestFolder made_;
  const std::string folder_ = made_.path();
};

std::string Bytes(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

std::string ErrorOf(std::string_view bytes, const IdxLimits& limits = {}) {
  return MessageOf<DataError>([&] { ParseIdx(bytes, "f", limits); });
}

HostTensor Ramp(DType dtype, const Shape& shape) {
  return Filled(
      shape, [](int64_t i) { return i * 37 % 251; }, dtype);
}

TEST_F(IdxTest, ReadsEveryElementType) {
  EXPECT_EQ(ParseIdx(Bytes({0, 0, 8, 1, 0, 0, 0, 2, 1, 255}), "f"), [] {
    HostTensor t(DType::kUInt8, {2});
    t.Set(0, 1);
    t.Set(1, 255);
    return t;
  }());
  EXPECT_EQ(ParseIdx(Bytes({0, 0, 9, 1, 0, 0, 0, 1, 0x80}), "f"), HostTensor::Full(DType::kInt8, {1}, -128));
  EXPECT_EQ(ParseIdx(Bytes({0, 0, 0xb, 1, 0, 0, 0, 1, 0xff, 0x01}), "f"), HostTensor::Full(DType::kInt16, {1}, -255));
  EXPECT_EQ(ParseIdx(Bytes({0, 0, 0xc, 1, 0, 0, 0, 1, 0, 1, 0, 2}), "f"), HostTensor::Full(DType::kInt32, {1}, 65538));
  EXPECT_EQ(ParseIdx(Bytes({0, 0, 0xd, 1, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0}), "f"),
            HostTensor::Full(DType::kFloat32, {1}, 1.5));
  EXPECT_EQ(ParseIdx(Bytes({0, 0, 0xe, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0}), "f"), HostTensor::Full(DType::kFloat64, {}, -2));
}

TEST_F(IdxTest, RoundTrips) {
  for (const DType dtype :
       {DType::kUInt8, DType::kInt8, DType::kInt16, DType::kInt32, DType::kFloat32, DType::kFloat64}) {
    for (const Shape& shape :
         {Shape{}, Shape{0}, Shape{7}, Shape{3, 0, 5}, Shape{30, 20, 10}, Shape{2, 1, 2, 1, 2, 1, 2, 1}}) {
      const HostTensor tensor = Ramp(dtype, shape);
      for (const char* name : {"t", "t.gz"}) {
        WriteIdx(tensor, Path(name));
        EXPECT_EQ(ReadIdx(Path(name)), tensor);
      }
      EXPECT_EQ(ReadFile(Path("t.gz")).substr(0, 2), "\x1f\x8b");
    }
  }
  EXPECT_EQ(MessageOf<DataError>([&] { WriteIdx(HostTensor(DType::kBFloat16, {1}), "x"); }),
            "DataError: \"x\": an IDX file holds uint8, int8, int16, int32, float32, float64, got bfloat16");
}

TEST_F(IdxTest, ReadsGzipFilesStrungTogether) {
  const std::string file = Bytes({0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4});
  EXPECT_EQ(ParseIdx(Gzip(file.substr(0, 9)) + Gzip("") + Gzip(file.substr(9)), "f"), ParseIdx(file, "f"));
}

TEST_F(IdxTest, SaysWhatIsWrong) {
  EXPECT_EQ(ErrorOf(""), "DataError: \"f\": cut off within its header");
  EXPECT_EQ(ErrorOf(Bytes({0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0})), "DataError: \"f\": cut off within its header");
  const std::string expected =
      "DataError: \"f\": not an IDX file: expected 00 00, a type (08, 09, 0b to 0e) and the number of axes, got ";
  EXPECT_EQ(ErrorOf(Bytes({0, 0, 7, 1, 0, 0, 0, 0})), expected + "00 00 07 01");
  EXPECT_EQ(ErrorOf("P5 28 28"), expected + "50 35 20 32");
  EXPECT_EQ(ErrorOf(Bytes({0, 0, 8, 9})), "DataError: \"f\": 9 axes, at most 8 are possible");
  EXPECT_EQ(ErrorOf(Bytes({0, 0, 8, 1, 0, 0, 0, 3, 1, 2})), "DataError: \"f\": cut off within its elements");
  EXPECT_EQ(ErrorOf(Bytes({0, 0, 8, 1, 0, 0, 0, 30, 1, 2})),
            "DataError: \"f\": cut off: (30) of uint8 take 30 bytes, which it cannot hold");
  EXPECT_EQ(ErrorOf(Bytes({0, 0, 8, 1, 0, 0, 0, 1, 1, 2})), "DataError: \"f\": bytes are left after its 1 elements");
  EXPECT_EQ(ErrorOf(Bytes({0, 0, 8, 1, 0, 0, 0, 1, 1}), {.tensor_bytes = 0}),
            "DataError: \"f\": (1) of uint8 take 1 bytes, the limit is 0");
  EXPECT_EQ(ErrorOf("\x1f\x8b not gzip"), "DataError: \"f\": damaged: unknown compression method");
  EXPECT_EQ(MessageOf<DataError>([&] { ReadIdx(Path("none")); }),
            "DataError: cannot read \"" + Path("none") + "\": No such file or directory (errno 2)");
}

// Sizes that lie: an error, and no memory taken for them.
TEST_F(IdxTest, RefusesHugeSizesBeforeAllocating) {
  EXPECT_EQ(ErrorOf(Bytes({0, 0, 8, 1, 255, 255, 255, 255, 0})),
            "DataError: \"f\": cut off: (4294967295) of uint8 take 4294967295 bytes, which it cannot hold");
  for (const int axes : {2, 3, 8}) {
    std::string bytes = Bytes({0, 0, 0xe, axes});
    bytes.append(static_cast<size_t>(4 * axes), '\xff');
    const std::string error = ErrorOf(bytes);
    EXPECT_TRUE(error.find("impossible extents") != std::string::npos || error.find("cannot hold") != std::string::npos)
        << error;
  }
  // A packed file that claims more than deflate could have packed.
  std::string claim = Bytes({0, 0, 8, 1, 127, 0, 0, 0});
  EXPECT_NE(ErrorOf(Gzip(claim)).find("cannot hold"), std::string::npos);
  // 16 MiB of zeros in 16 KiB: more than the limit allows; nor is what comes after the elements unpacked.
  const std::string bomb(size_t{1} << 24, '\0');
  claim = Bytes({0, 0, 8, 1, 1, 0, 0, 0}) + bomb;
  EXPECT_EQ(ErrorOf(Gzip(claim), {.tensor_bytes = 1 << 20}),
            "DataError: \"f\": (16777216) of uint8 take 16777216 bytes, the limit is 1048576");
  claim = Bytes({0, 0, 8, 1, 0, 0, 0, 1}) + bomb;
  EXPECT_EQ(ErrorOf(Gzip(claim)), "DataError: \"f\": bytes are left after its 1 elements");
}

TEST_F(IdxTest, RefusesEveryTruncation) {
  const HostTensor tensor = Ramp(DType::kInt32, {5, 7});
  WriteIdx(tensor, Path("t"));
  WriteIdx(tensor, Path("t.gz"));
  for (const char* name : {"t", "t.gz"}) {
    const std::string bytes = ReadFile(Path(name));
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_NE(ErrorOf(bytes.substr(0, length)), "nothing was thrown") << name << " " << length;
    }
  }
}

// A flipped bit of the header is an error, or another reading of the same number of bytes; in a packed file an error,
// unless the bit has no meaning there.
TEST_F(IdxTest, SurvivesEveryFlippedBit) {
  const HostTensor tensor = Ramp(DType::kUInt8, {4, 6});
  WriteIdx(tensor, Path("t"));
  WriteIdx(tensor, Path("t.gz"));
  const std::string plain = ReadFile(Path("t")), packed = ReadFile(Path("t.gz"));
  for (size_t bit = 0; bit < 8 * plain.size(); ++bit) {
    std::string bytes = plain;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    try {
      const HostTensor read = ParseIdx(bytes, "f");
      EXPECT_EQ(read.elements(), 24) << bit;
    } catch (const DataError&) {
    }
  }
  for (size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    std::string bytes = packed;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    try {
      EXPECT_EQ(ParseIdx(bytes, "f"), tensor) << bit;
    } catch (const DataError&) {
    }
  }
}

TEST_F(IdxTest, ReadsOnlyRegularFiles) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const std::string& path : {Path("pipe"), folder_, std::string("/dev/zero")}) {
    EXPECT_NE(MessageOf<DataError>([&] { ReadIdx(path); }), "nothing was thrown") << path;
  }
}

TEST_F(IdxTest, ReadsAFolderLikeThatOfMnist) {
  const ImageSet train = DrawDigits(30, 1), test = DrawDigits(20, 1, 30);
  WriteIdxImages(train, Path("train-images-idx3-ubyte"), Path("train-labels-idx1-ubyte.gz"));
  WriteIdxImages(test, Path("t10k-images.idx3-ubyte.gz"), Path("t10k-labels.idx1-ubyte"));
  const MnistFolder folder(folder_);
  EXPECT_EQ(folder.train.images, train.images);
  EXPECT_EQ(folder.train.labels, train.labels);
  EXPECT_EQ(folder.test.images, test.images);
  EXPECT_EQ(folder.test.labels, test.labels);
  EXPECT_EQ(folder.train.images.shape(), (Shape{30, 1, 28, 28}));
  std::filesystem::remove(Path("train-labels-idx1-ubyte.gz"));  // one part needs nothing of the other
  EXPECT_EQ(ReadMnist(folder_, MnistPart::kTest).images, test.images);
  EXPECT_NE(MessageOf<DataError>([&] { ReadMnist(folder_, MnistPart::kTrain); }), "nothing was thrown");
  EXPECT_EQ(MessageOf<DataError>([&] { MnistFolder("/nonexistent"); }),
            "DataError: folder \"/nonexistent\" has none of train-images-idx3-ubyte, train-images-idx3-ubyte.gz, "
            "train-images.idx3-ubyte, train-images.idx3-ubyte.gz");
}

TEST_F(IdxTest, ChecksImagesAgainstLabels) {
  const auto u8 = [](const Shape& shape, double value) { return HostTensor::Full(DType::kUInt8, shape, value); };
  WriteIdx(u8({3, 2, 2}, 51), Path("images"));
  WriteIdx(u8({3}, 9), Path("labels"));
  WriteIdx(u8({2}, 0), Path("few"));
  WriteIdx(u8({3}, 10), Path("ten"));
  WriteIdx(HostTensor(DType::kInt32, {3}), Path("ints"));
  const auto message = [&](const char* images, const char* labels) {
    return MessageOf<DataError>([&] { ReadIdxImages(Path(images), Path(labels)); });
  };
  const ImageSet set = ReadIdxImages(Path("images"), Path("labels"));
  EXPECT_EQ(set.images, HostTensor::Full(DType::kFloat32, {3, 1, 2, 2}, 51.0f / 255.0f));
  EXPECT_EQ(set.labels, HostTensor::Full(DType::kFloat32, {3}, 9));
  EXPECT_EQ(message("images", "few"),
            "DataError: \"" + Path("images") + "\" has 3 images, but \"" + Path("few") + "\" has 2 labels");
  EXPECT_EQ(message("images", "ten"), "DataError: \"" + Path("ten") + "\": label 0 is 10, expected 0 to 9");
  EXPECT_EQ(message("labels", "labels"),
            "DataError: \"" + Path("labels") + "\": expected images, uint8 (N, rows, columns), got uint8 (3)");
  EXPECT_EQ(message("images", "ints"),
            "DataError: \"" + Path("ints") + "\": expected labels, uint8 (N), got int32 (3)");
}

}  // namespace
}  // namespace bindery
