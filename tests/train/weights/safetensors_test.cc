// Files of weights, as they are described, and damaged ones.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "tests/message_of.h"
#include "train/weights/weights.h"

namespace bindery {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() : path_(testing::TempDir() + "/weights.safetensors") {}
  ~SafetensorsTest() override { std::filesystem::remove(path_); }

  static std::string File(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header + data;
  }
  // What is said of such a file, behind its name.
  std::string Complaint(const std::string& bytes, const WeightLimits& limits = {}) {
    WriteFileAtomically(path_, bytes);
    const std::string message = MessageOf<DataError>([&] { LoadWeights(path_, limits); });
    const std::string prefix = "DataError: \"" + path_ + "\": ";
    EXPECT_TRUE(message.starts_with(prefix)) << message;
    return message.substr(std::min(prefix.size(), message.size()));
  }
  std::string Complaint(const std::string& header, const std::string& data) { return Complaint(File(header, data)); }

  const std::string path_;
};

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt8,
                          DType::kInt32,   DType::kInt64,   DType::kUInt8,    DType::kBool,    DType::kInt16,
                          DType::kUInt16,  DType::kUInt32,  DType::kUInt64};

// Every element type, scalars and what is empty, names of any characters.
Weights Everything() {
  Weights weights;
  for (const DType dtype : kAll) {
    HostTensor tensor(dtype, {2, 3});
    for (int64_t i = 0; i < 6; ++i)
      tensor.Set(i, dtype == DType::kBool ? static_cast<double>(i % 2) : static_cast<double>(i * 20));
    weights.tensors[std::string("of ") + ToString(dtype)] = tensor;
  }
  weights.tensors["scalar"] = HostTensor::Full(DType::kFloat32, Shape{}, 3.5);
  weights.tensors["empty"] = HostTensor(DType::kFloat64, {0, 4});
  weights.tensors["row"] = HostTensor::From({3}, {1.f, -2.f, 3.f});
  weights.tensors["layer.0/größe \"x\"\n"] = HostTensor::Full(DType::kUInt8, {5}, 7);
  return weights;
}

TEST_F(SafetensorsTest, ReadsWhatTheFormatSays) {
  const std::string header = R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[2,10]},"__metadata__":{"format":"pt"},)"
                             R"("a":{"data_offsets":[0,2],"shape":[1,1],"dtype":"BF16"}}   )";
  const float values[] = {1.5f, -2};
  std::string data("\x80\x3f", 2);
  data.append(reinterpret_cast<const char*>(values), 8);
  WriteFileAtomically(path_, File(header, data));
  const Weights weights = LoadWeights(path_);
  EXPECT_EQ(weights.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(weights.tensors.size(), 2u);
  EXPECT_EQ(weights.tensors.at("b"), HostTensor::From({2}, {1.5f, -2.f}));
  EXPECT_EQ(weights.tensors.at("a"), HostTensor::Full(DType::kBFloat16, {1, 1}, 1));
}

TEST_F(SafetensorsTest, WritesWhatItReads) {
  Weights weights = Everything();
  weights.metadata = {{"vocabulary", "abc\n"}, {"", "x"}};
  SaveWeights(weights, path_);
  const Weights loaded = LoadWeights(path_);
  EXPECT_EQ(loaded.tensors, weights.tensors);
  EXPECT_EQ(loaded.metadata, weights.metadata);
  // Of the data, every tensor's place is one of its elements' size.
  const std::string bytes = ReadFile(path_);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  SaveWeights({}, path_);
  EXPECT_TRUE(LoadWeights(path_).tensors.empty());
}

TEST_F(SafetensorsTest, NpzHoldsTheSame) {
  const std::string path = testing::TempDir() + "/weights.npz";
  const Weights weights = Everything();
  SaveWeights(weights, path);
  EXPECT_EQ(LoadWeights(path).tensors, weights.tensors);
  EXPECT_EQ(MessageOf<DataError>([&] { LoadWeights("weights.bin"); }),
            "DataError: \"weights.bin\": files of weights end in .safetensors or .npz");
  SaveWeights({}, path);
  EXPECT_TRUE(LoadWeights(path).tensors.empty());
  std::filesystem::remove(path);
}

TEST_F(SafetensorsTest, SaysWhatIsWrong) {
  const std::string two(2, '\0');
  const auto tensor = [](const std::string& rest) { return "{\"w\":{\"dtype\":\"F16\"," + rest + "}}"; };
  const std::string good = tensor(R"("shape":[1],"data_offsets":[0,2])");
  WriteFileAtomically(path_, File(good, two));
  EXPECT_EQ(LoadWeights(path_).tensors.size(), 1u);
  EXPECT_EQ(Complaint("1234567"), "no .safetensors file, or cut off: it has 7 bytes");
  EXPECT_EQ(Complaint("12345678"),
            "no .safetensors file, or cut off: its header would have 4050765991979987505 bytes, "
            "at most 0 are possible");
  EXPECT_EQ(Complaint(File(good, two), {.header_bytes = 10}).find("no .safetensors file, or cut off"), 0u);
  EXPECT_EQ(Complaint(File(good, two), {.tensor_bytes = 1}), "its tensors have 2 bytes, the limit is 1");
  EXPECT_EQ(Complaint(good, "\1"), "tensor \"w\": bytes 0 to 2 are not within the 1 of all tensors");
  EXPECT_EQ(Complaint(good, "\1\1\1"), "1 bytes follow the last tensor");
  EXPECT_EQ(Complaint(tensor(R"("shape":[2],"data_offsets":[0,2])"), two),
            "tensor \"w\": (2) of float16 take 4 bytes, it has 2");
  EXPECT_EQ(Complaint(tensor(R"("shape":[1],"data_offsets":[2,0])"), two),
            "tensor \"w\": bytes 2 to 0 are not within the 2 of all tensors");
  EXPECT_EQ(Complaint(tensor(R"("shape":[1],"data_offsets":[1,3])"), two + "\1")
                .find("tensor \"w\": it begins at byte 1, behind byte 0"),
            0u);
  EXPECT_EQ(Complaint(tensor(R"("shape":[4294967296,4294967296,4294967296],"data_offsets":[0,2])"), two)
                .find("tensor \"w\": impossible extents"),
            0u);
  EXPECT_EQ(Complaint(tensor(R"("shape":[99999999999999999999],"data_offsets":[0,2])"), two).find("tensor \"w\": "),
            0u);
  EXPECT_EQ(Complaint(tensor(R"("shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,2])"), two)
                .find("tensor \"w\": more than "),
            0u);
  for (const char* half : {R"("shape":[1])", R"("data_offsets":[0,2])", R"("shape":[1],"data_offsets":[0])"}) {
    EXPECT_EQ(Complaint(tensor(half), two), "tensor \"w\": it needs \"dtype\", \"shape\" and two \"data_offsets\"");
  }
  const std::string entry = R"("w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]})";
  EXPECT_EQ(Complaint("{" + entry + "," + entry + "}", two),
            "tensor \"w\": it begins at byte 0, before byte 2, where the tensor before it ends");
  const std::string empty = R"("w":{"dtype":"F16","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(Complaint("{" + empty + "," + empty + "}", std::string()), "tensor \"w\" is there twice");
  EXPECT_EQ(Complaint(R"({"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", two),
            "tensor \"w\": elements of type \"F8_E4M3\"; known are BOOL, U8 to U64, I8 to I64, F16, BF16, F32, F64");
  EXPECT_EQ(Complaint(R"({"w":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2"),
            "tensor \"w\" has a bool that is neither 0 nor 1");
  EXPECT_EQ(Complaint(R"({"__metadata__":{"a":"b","a":"c"}})", std::string()), "metadata \"a\" are there twice");
  for (const char* other : {"[]", "3", "{\"w\":3}", "{\"w\":[1]}", R"({"w":{"dtype":{}}})", R"({"w":{"shape":[-1]}})",
                            R"({"w":{"shape":[1.5]}})", R"({"w":{"more":1}})", R"({"__metadata__":{"a":1}})", "null"}) {
    EXPECT_NE(Complaint(other, std::string()).find("where its header has none"), std::string::npos) << other;
  }
  for (const char* other : {"", "{", "{}x", "{\"\xff\":{}}", "   "}) {
    EXPECT_NE(Complaint(other, std::string()).find("no JSON, damaged or cut off, at byte "), std::string::npos)
        << other;
  }
  Weights named;
  named.tensors["__metadata__"] = HostTensor(DType::kFloat32, {1});
  EXPECT_NE(MessageOf<DataError>([&] { SaveWeights(named, path_); }).find("cannot be called"), std::string::npos);
  named.tensors.clear();
  named.tensors["\xff"] = HostTensor(DType::kFloat32, {1});
  EXPECT_NE(MessageOf<DataError>([&] { SaveWeights(named, path_); }).find("not UTF-8"), std::string::npos);
}

// Whatever byte is another, or missing, there is an error or a file of weights.
TEST_F(SafetensorsTest, AnyDamageIsAnError) {
  Weights weights;
  weights.metadata["a"] = "b";
  weights.tensors["one"] = HostTensor::From({2}, {1.f, 2.f});
  weights.tensors["two"] = HostTensor::Full(DType::kBool, {3}, 1);
  for (const std::string& path : {path_, testing::TempDir() + "/damaged.npz"}) {
    SaveWeights(weights, path);
    const std::string bytes = ReadFile(path);
    int accepted = 0, refused = 0;
    const auto load = [&](const std::string& damaged) {
      WriteFileAtomically(path, damaged);
      try {
        LoadWeights(path);
        ++accepted;
      } catch (const DataError&) {
        ++refused;
      }
    };
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      load(damaged);
      if (i % 4 == 0) load(bytes.substr(0, i));
    }
    EXPECT_GT(refused, accepted) << path;
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace bindery
