// Files written by numpy (stored/make_data.py), and files that are damaged in every byte.
#include "train/data/tables/npy.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "train/data/open.h"
#include "train/data/samples/sample_iter.h"
#include "train/data/tables/zip.h"

namespace bindery {
namespace {

const std::string kFolder = "tests/train/stored/";

std::string Npy(const std::string& header, const std::string& elements) {
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size() % 256) +
         static_cast<char>(header.size() / 256) + header + elements;
}

TEST(Npy, ReadsAllTypesInAllOrders) {
  const HostTensorMap arrays = ReadNpz(kFolder + "numpy_all.npz");
  EXPECT_EQ(arrays.size(), 48u);
  std::map<DType, int> seen;
  for (const auto& [name, array] : arrays) {
    if (name == "scalar") {
      EXPECT_EQ(array.shape(), Shape{});
      EXPECT_EQ(array.At(0), 2.5);
    } else if (name == "empty") {
      EXPECT_EQ(array.shape(), (Shape{0, 5}));
    } else {
      ASSERT_EQ(array.shape(), (Shape{2, 3, 4})) << name;
      for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(array.At(i), name == "b1" ? i % 2 : i) << name;
      ++seen[array.dtype()];
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kNumDTypes));
  EXPECT_EQ(seen[DType::kUInt16], 4);
  EXPECT_EQ(ReadNpz(kFolder + "numpy_stored.npz").at("x").At(23), 23);
  const HostTensor big = ReadNpy(kFolder + "numpy_version1.npy");
  EXPECT_EQ(big.dtype(), DType::kInt16);
  EXPECT_EQ(big.At(23), 23);
}

TEST(Npy, RefusesWhatItsHeaderCannotMean) {
  const auto refused = [](const std::string& header, const std::string& elements = "") {
    return MessageOf<DataError>([&] { ParseNpy(Npy(header, elements), "f"); });
  };
  const std::string bad = "DataError: \"f\": its header is not the one of an array: descr, fortran_order and shape";
  EXPECT_EQ(refused("{'descr': '<f4', 'fortran_order': False}"), bad);
  EXPECT_EQ(refused("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}"), bad);
  EXPECT_EQ(refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), bad);
  EXPECT_EQ(refused("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"), bad);
  EXPECT_EQ(refused("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x"), bad);
  EXPECT_EQ(refused("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}").substr(0, 41),
            "DataError: \"f\": elements of type \"|O\"; ex");
  EXPECT_EQ(refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
            "DataError: \"f\": an array of records; expected one of numbers");
  EXPECT_EQ(refused("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
            "DataError: \"f\": impossible extents (4294967296, 4294967296)");
  EXPECT_EQ(refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", "1234"),
            "DataError: \"f\": cut off: (1000000000000) of float32 take 4000000000000 bytes, but 4 follow its header");
  EXPECT_EQ(refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "1234"),
            "DataError: \"f\": it has more than 8 axes");
  EXPECT_EQ(MessageOf<DataError>([] {
              ParseNpy(Npy("{'descr': '<u1', 'fortran_order': True, 'shape': (2, 2), }", "abcd"), "f",
                       {.tensor_bytes = 3});
            }),
            "DataError: \"f\": (2, 2) of uint8 take 4 bytes, the limit is 3");
}

// Whatever byte is wrong: an array or a DataError, and never more memory than the file's size allows.
TEST(Npy, EveryByteMayBeWrong) {
  for (const std::string file : {"numpy_version1.npy", "numpy_stored.npz"}) {
    const std::string whole = ReadFile(kFolder + file);
    const auto parse = [&](const std::string& bytes) {
      try {
        file.ends_with(".npz") ? (void)ParseNpz(bytes, file) : (void)ParseNpy(bytes, file);
        return true;
      } catch (const DataError&) {
        return false;
      }
    };
    EXPECT_TRUE(parse(whole));
    for (size_t at = 0; at < whole.size(); ++at) {
      EXPECT_FALSE(parse(whole.substr(0, at))) << file << " cut at " << at;
      for (const int flip : {1, 0x80, 0xff}) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ flip);
        parse(bytes);
      }
    }
  }
}

TEST(Npy, WritesAllTypesAndShapes) {
  const std::string path = testing::TempDir() + "/written.npy";
  for (int i = 0; i < kNumDTypes; ++i) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0}, Shape{2, 0}, Shape{2, 3, 5}}) {
      const HostTensor array = Filled(
          shape, [](int64_t k) { return k % 2; }, static_cast<DType>(i));
      SaveNpy(array, path);
      EXPECT_EQ(ReadNpy(path), array);
    }
  }
  // Elements begin at a multiple of 64.
  SaveNpy(HostTensor(DType::kInt16, {3}), path);
  const std::string text = "{'descr': '<i2', 'fortran_order': False, 'shape': (3, ), }";
  EXPECT_EQ(ReadFile(path), std::string("\x93NUMPY\1\0\x76\0", 10) + text + std::string(117 - text.size(), ' ') + '\n' +
                                std::string(6, '\0'));
}

TEST(Zip, RefusesWhatIsNotWhole) {
  const std::string whole = ReadFile(kFolder + "numpy_stored.npz");
  const std::vector<ZipEntry> entries = ListZip(whole, "z");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "x.npy");
  std::string wrong = whole;
  wrong[200] ^= 1;
  EXPECT_EQ(MessageOf<DataError>([&] { Unzip(wrong, entries[0], "z", 1 << 20); }),
            "DataError: \"z\": \"x.npy\" is damaged: its checksum is another");
  EXPECT_EQ(MessageOf<DataError>([&] { Unzip(whole, entries[0], "z", 100); }),
            "DataError: \"z\": \"x.npy\" has 224 bytes, the limit is 100");
  ZipEntry greedy = entries[0];
  greedy.bytes = int64_t{1} << 31;
  EXPECT_EQ(MessageOf<DataError>([&] { Unzip(whole, greedy, "z", int64_t{1} << 40); }),
            "DataError: \"z\": \"x.npy\" is damaged: it cannot unpack to as many bytes as it says");
}

// As Keras has them, (N, 1), and a 1 among zeros for each sample.
TEST(Npy, LabelsOfOneClassAreItsNumber) {
  const HostTensor x(DType::kFloat32, {3, 2});
  SaveNpy(x, testing::TempDir() + "/x.npy");
  const auto opened = [&](const HostTensor& labels, bool one_class) {
    const std::string path = testing::TempDir() + "/labels.npy";
    SaveNpy(labels, path);
    return OpenData("npy:" + testing::TempDir() + "/x.npy?labels=" + path, {.one_class = one_class});
  };
  const HostTensor hot = HostTensor::From({3, 4}, {0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0});
  const auto labels_of = [](const OpenedData& data) {
    return SampleIter(data.samples, {.batch_size = 3}).Next()->label[0];
  };
  const OpenedData of_four = opened(hot, true);
  EXPECT_EQ(of_four.num_classes, 4);
  EXPECT_EQ(labels_of(of_four), HostTensor::From({3}, {2, 0, 1}));
  EXPECT_EQ(opened(hot, false).samples->labels()[0].shape, Shape{4});  // several truths
  HostTensor several = hot;
  several.Set(0, 1);
  EXPECT_EQ(opened(several, true).samples->labels()[0].shape, Shape{4});
  const HostTensor column = HostTensor::From({3, 1}, {2, 0, 1});
  EXPECT_EQ(opened(column, true).num_classes, 3);
  EXPECT_EQ(labels_of(opened(column, true)), HostTensor::From({3}, {2, 0, 1}));
  EXPECT_EQ(labels_of(opened(column, false)), column);
}

}  // namespace
}  // namespace bindery
