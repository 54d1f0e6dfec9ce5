// Files of each version of our formats, committed once and never changed: they load for ever, and give what they gave.
// The expected values of the model were computed by plain loops in double, outside of this library.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "executor/executor.h"
#include "symbol/model.h"
#include "train/array_iter.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace bindery {
namespace {

const std::string kFolder = "tests/train/stored/";

void ExpectValues(const HostTensor& tensor, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(tensor.elements(), static_cast<int64_t>(expected.size())) << what;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    EXPECT_NEAR(tensor.At(i), expected[static_cast<size_t>(i)], 2e-6) << what << ", element " << i;
  }
}

void ExpectExactly(const Model& model, const std::string& name, const std::vector<double>& expected) {
  const HostTensor& tensor = model.params.at("every_" + name);
  EXPECT_EQ(ToString(tensor.dtype()), name);
  ASSERT_EQ(tensor.shape(), (Shape{2}));
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(tensor.At(i), expected[static_cast<size_t>(i)]) << name;
}

// data (N, 2, 5, 4) of fixed numbers.
HostTensor Images() {
  HostTensor images(DType::kFloat32, {2, 2, 5, 4});
  for (int64_t i = 0; i < images.elements(); ++i) images.Set(i, static_cast<double>(i * 5 % 17 - 8) / 4);
  return images;
}

void ExpectVersion2(const Model& model) {
  EXPECT_EQ(model.metadata, (std::map<std::string, std::string>{{"written", "by hand\n\"twice\""}}));
  EXPECT_EQ(model.symbol.ListOutputs(), (std::vector<std::string>{"softmax_output", "pool_output"}));
  EXPECT_EQ(model.symbol.ListAuxiliaryStates(), (std::vector<std::string>{"bn1_running_mean", "bn1_running_var"}));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ExpectExactly(model, "float32", {0.5, -kInfinity});
  ExpectExactly(model, "float64", {0.1, 1e300});
  ExpectExactly(model, "bfloat16", {-2.5, 1});
  ExpectExactly(model, "float16", {65504, -0.0});
  ExpectExactly(model, "int8", {-128, 127});
  ExpectExactly(model, "int16", {-32768, 32767});
  ExpectExactly(model, "int32", {-2147483648.0, 2147483647});
  ExpectExactly(model, "int64", {-0x1p53, 7});
  ExpectExactly(model, "uint8", {0, 255});
  ExpectExactly(model, "uint16", {1, 65535});
  ExpectExactly(model, "uint32", {2, 4294967295.0});
  ExpectExactly(model, "uint64", {0x1p53, 3});
  ExpectExactly(model, "bool", {1, 0});
  const HostTensor bits = model.params.at("bits");
  EXPECT_EQ(bits.shape(), (Shape{1, 2}));
  EXPECT_EQ(bits.data<uint64_t>()[0], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(bits.data<uint64_t>()[1], (uint64_t{1} << 63) + 1);
  EXPECT_EQ(model.params.at("empty").shape(), (Shape{3, 0}));
  EXPECT_EQ(model.params.at("scalar"), HostTensor::Full(DType::kInt64, {}, -7));

  for (const KernelPolicy policy : {KernelPolicy::kReference, KernelPolicy::kFast}) {
    Executor e(
        model.symbol,
        {.inputs = {{"data", {2, 2, 5, 4}}, {"softmax_label", {2}}}, .grad_req = GradReq::kNull, .policy = policy});
    e.SetParams(model.params, model.aux, {.allow_extra = true});
    e.Forward({{"data", Images()}}, Mode::kPredict);
    ExpectValues(e.Output(0), {0.549768338, 0.292731781, 0.157499881, 0.484042112, 0.298980906, 0.216976982},
                 "softmax");
    ExpectValues(e.Output(1), {0.142261242,  0.142261242,   0.142261242,  0.142261242,   0.142261242,   -0.392261242,
                               0.982799236,  -0.0783482599, 0.154782629,  -0.0783482599, 0.154782629,   -0.335596138,
                               0.348058068,  0.348058068,   0.253064315,  0.348058068,   0.243871371,   0.311286292,
                               0.142261242,  0.142261242,   -0.292038276, 0.142261242,   -0.292038276,  0.142261242,
                               -0.150699225, 0.990838232,   -0.448142084, 0.990838232,   -0.448142084,  0.0743926675,
                               0.348058068,  0.332736495,   0.348058068,  0.348058068,   -0.0135310566, 0.348058068},
                 "pool");
  }
}

TEST(StoredFiles, ModelOfVersion2AsText) { ExpectVersion2(LoadModel(kFolder + "version2.prototxt")); }

// With a data file beside it.
TEST(StoredFiles, ModelOfVersion2InBinary) {
  const Model model = LoadModel(kFolder + "version2.pb");
  ExpectVersion2(model);
  const HostTensor& large = model.params.at("large");
  ASSERT_EQ(large.shape(), (Shape{20, 25}));
  for (int64_t i = 0; i < large.elements(); ++i) ASSERT_EQ(large.At(i), static_cast<double>(i) / 4);
  EXPECT_EQ(model.symbol.DebugString(), LoadModel(kFolder + "version2.prototxt").symbol.DebugString());
}

}  // namespace
}  // namespace bindery
