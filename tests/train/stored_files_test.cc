// Files of each version of our formats, committed once and never changed: they load for ever, and give what they gave.
// Expected results were computed by plain loops in double, outside
// of this library.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "executor/executor.h"
#include "symbol/model.h"
#include "tests/host_tensors.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/array_iter.h"
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
  return Filled({2, 2, 5, 4}, [](int64_t i) { return static_cast<double>(i * 5 % 17 - 8) / 4; });
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
    Executor e(model.symbol, {.inputs = {{"data", {2, 2, 5, 4}}, {"softmax_label", {2}}},
                              .grad_req = GradReq::kNull,
                              .switches = {.policy = policy}});
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

// After two of four steps of two samples; the expected parameters are those of the last two steps by hand.
TEST(StoredFiles, CheckpointOfVersion2) {
  const std::string folder = testing::TempDir() + "/stored_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::filesystem::copy(kFolder + "version2.ckpt", folder + "/step-0000000002.ckpt");
  const Checkpoint checkpoint = LoadCheckpoint(kFolder + "version2.ckpt");
  EXPECT_EQ(checkpoint.step, 2);
  EXPECT_EQ(checkpoint.epoch, 0);
  EXPECT_EQ(checkpoint.batch_in_epoch, 2);
  EXPECT_EQ(checkpoint.seed, 11u);
  EXPECT_EQ(checkpoint.optimizer, "sgd(lr=0.25, momentum=0.5)");
  ExpectValues(checkpoint.model.params.at("fc1_bias"), {0.0180528797, -0.00455408357, -0.0499135554}, "fc1_bias");
  ExpectValues(checkpoint.model.params.at("fc1_weight"),
               {0.688853502, -0.435059488, -0.231141612, -0.130319729, 0.345305294, 0.108360596, -0.64779222,
                -0.653802216, 0.634114802, 0.337235302, -0.838758588, -0.291634947},
               "fc1_weight");
  ExpectValues(checkpoint.model.params.at("fc2_bias"), {-0.0316768996, 0.0316769108}, "fc2_bias");
  ExpectValues(checkpoint.model.params.at("fc2_weight"),
               {-0.162693009, -0.442077398, -0.481644779, 0.888109624, -1.04337597, 0.0434249677}, "fc2_weight");
  ExpectValues(checkpoint.optimizer_state.at("fc1_bias:momentum"), {0.0171578713, -0.00443799235, -0.0112395287},
               "fc1_bias:momentum");
  ExpectValues(checkpoint.optimizer_state.at("fc1_weight:momentum"),
               {-0.0890814811, -0.00706125051, -0.0234359913, -0.0113507193, 0.039155107, 0.00760903675, 0.0119454488,
                0.0087185353, -0.0491850898, 0.00263897516, -0.0199612714, 0.00544885732},
               "fc1_weight:momentum");
  ExpectValues(checkpoint.optimizer_state.at("fc2_bias:momentum"), {-0.0213694163, 0.02136942}, "fc2_bias:momentum");
  ExpectValues(checkpoint.optimizer_state.at("fc2_weight:momentum"),
               {0.0674324483, 0.00969769061, 0.0442659073, -0.0674324483, -0.00969768688, -0.0442659073},
               "fc2_weight:momentum");
  ArrayIter train(Filled({8, 4}, [](int64_t i) { return static_cast<double>(i * 3 % 7 - 3) / 4; }),
                  Filled({8}, [](int64_t i) { return i % 3 == 0; }), {.batch_size = 2});
  Trainer trainer(checkpoint.model.symbol, {.optimizer = "sgd(lr=0.25, momentum=0.5)", .seed = 11});
  EXPECT_EQ(trainer.Fit(train, {.epochs = 1, .checkpoints = folder, .resume = true}).steps, 4);
  const Model trained = trainer.ToModel();
  ExpectValues(trained.params.at("fc1_weight"),
               {0.529172818, -0.310007903, -0.336083619, -0.15498256, 0.438057969, 0.0330127108, -0.571913706,
                -0.65264237, 0.532795081, 0.414718489, -0.908007871, -0.287295486},
               "fc1_weight");
  ExpectValues(trained.params.at("fc1_bias"), {-0.125895259, 0.0895484719, -0.144239256}, "fc1_bias");
  ExpectValues(trained.params.at("fc2_weight"),
               {0.000673394489, -0.492419141, -0.532187873, 0.724743221, -0.993034224, 0.0939680612}, "fc2_weight");
  ExpectValues(trained.params.at("fc2_bias"), {0.149711102, -0.149711089}, "fc2_bias");
}

}  // namespace
}  // namespace bindery
