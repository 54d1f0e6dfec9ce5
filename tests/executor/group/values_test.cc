// Values that a batch brings are looked at before they are on their way: what cannot be is told by array, sample, row.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "executor/custom_operator.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "executor/sample_error.h"
#include "symbol/ops.h"
#include "symbol/ops/ctc.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

const std::map<std::string, GradReq> kOfX = {{"x", GradReq::kWrite}};

HostTensor Filled(Shape shape, double value) { return HostTensor::Full(DType::kFloat32, shape, value); }

// What a group of two devices says to a batch of four samples, rows 10, 20, 30 and 40 of the data.
class GroupValues : public testing::Test {
 protected:
  // `x` is data, `n` is what is looked at.
  void Bind(const Symbol& symbol, const DataDesc& x, const DataDesc& n, bool is_label = false) {
    GroupOptions options{
        .devices = {TestDevice(0), TestDevice(1)}, .data = {x}, .grad_req = kOfX, .threads_per_device = 1};
    (is_label ? options.labels : options.data).push_back(n);
    group_ = std::make_unique<DataParallelExecutorGroup>(symbol, options);
    InitialiseEqually({group_.get()}, 1);
    batch_ = {.data = {Filled(x.shape, 0.5)}, .index = {10, 20, 30, 40}};
    (is_label ? batch_.label : batch_.data).push_back(Filled(n.shape, 1));
    values_ = is_label ? &batch_.label[0] : &batch_.data[1];
  }
  std::string Said(std::optional<Mode> mode = std::nullopt) {
    sample_ = -1;
    row_.reset();
    try {
      group_->Forward(batch_, mode);
      group_->Outputs()[0].ToHost();
    } catch (const SampleError& error) {
      sample_ = error.sample();
      row_ = error.row();
      return error.message();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::string Said(int64_t at, double value, std::optional<Mode> mode = std::nullopt) {
    const double before = values_->At(at);
    values_->Set(at, value);
    const std::string said = Said(mode);
    values_->Set(at, before);
    return said;
  }

  std::unique_ptr<DataParallelExecutorGroup> group_;
  Batch batch_;
  HostTensor* values_ = nullptr;
  int64_t sample_ = -1;  // that the last error named
  std::optional<int64_t> row_;
};

const Symbol kX = Variable("x"), kN = Variable("n");

TEST_F(GroupValues, Classes) {
  const SoftmaxOutputAttrs ignoring{.use_ignore = true, .ignore_label = -1};
  Bind(SoftmaxOutput(kX, kN, ignoring, "y"), {"x", {4, 3}}, {"n", {4}}, /*is_label=*/true);
  EXPECT_EQ(Said(2, 3),
            "\"n\": 3 is not in 0..2, which SoftmaxOutput \"y\" takes (element 2, of sample 2 of the batch, row 30 of "
            "the data)");
  EXPECT_EQ(sample_, 2);
  EXPECT_EQ(row_, 30);
  for (const double bad : {-2.0, 0.5, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EXPECT_NE(Said(3, bad).find("is not in 0..2"), std::string::npos) << bad;
    EXPECT_EQ(sample_, 3);
  }
  for (const double good : {-1, 0, 2}) EXPECT_EQ(Said(3, good), "");
  EXPECT_EQ(Said(2, 3, Mode::kPredict), "");  // where nothing is trained, nothing asks for it
  batch_.index.clear();
  EXPECT_EQ(Said(1, 9),
            "\"n\": 9 is not in 0..2, which SoftmaxOutput \"y\" takes (element 1, of sample 1 of the batch)");
  EXPECT_FALSE(row_);
  // Padding may be anything.
  batch_.pad = 1;
  EXPECT_EQ(Said(3, 9), "");
  EXPECT_NE(Said(2, 9), "");
  batch_.pad = 0;
  // At each position, and of a label in another shape.
  Bind(SoftmaxOutput(kX, Reshape(kN, {.shape = {-1, 2}}), {.multi_output = true}, "y"), {"x", {4, 3, 2}},
       {"n", {4, 1, 2}}, true);
  EXPECT_NE(Said(5, 3).find("(element 5, of sample 2 of the batch, row 30"), std::string::npos) << Said(5, 3);
  // Probabilities are no classes.
  Bind(SoftmaxOutput(kX, kN, {}, "y"), {"x", {4, 3}}, {"n", {4, 3}}, true);
  EXPECT_EQ(Said(0, 0.25), "");
  // Nor does anybody ask for classes of a head that nothing is trained by.
  Bind(SoftmaxOutput(BlockGrad(kX), kN, {}, "y"), {"x", {4, 3}}, {"n", {4}}, true);
  EXPECT_EQ(Said(0, 9), "");
  // The others.
  Bind(SVMOutput(kX, kN, {}, "y"), {"x", {4, 3}}, {"n", {4}}, true);
  EXPECT_NE(Said(1, 1.5).find("\"n\": 1.5 is no whole number, which SVMOutput \"y\" takes"), std::string::npos);
  EXPECT_EQ(Said(1, 7), "");
  Bind(MakeLoss(SoftmaxCrossEntropy(kX, kN, {.axis = 1}, LossReduction::kNone, {}, "y")), {"x", {4, 3, 2}},
       {"n", {4, 2}}, true);
  EXPECT_NE(Said(7, 3).find("\"n\": 3 is not in 0..2, which CrossEntropy \"y\""), std::string::npos) << Said(7, 3);
  EXPECT_EQ(sample_, 3);
  EXPECT_NE(Said(7, 3, Mode::kPredict), "");
}

TEST_F(GroupValues, Lengths) {
  const SequenceAttrs axes{.axis = 1, .batch_axis = 0};
  for (const auto& [symbol, least] : {std::pair{SequenceMask(kX, kN, {axes, 0}, "y"), 0},
                                      {SequenceReverse(kX, kN, axes, "y"), 0},
                                      {SequenceLast(kX, kN, axes, "y"), 1}}) {
    Bind(MakeLoss(symbol), {"x", {4, 3, 2}}, {"n", {4}});
    for (const double bad : {4.0, 1.5, least - 1.0}) {
      const std::string said = Said(3, bad);
      EXPECT_NE(said.find(fmt::format("\"n\": {} is not in {}..3, which Sequence", bad, least)), std::string::npos)
          << said;
      EXPECT_EQ(row_, 40);
      EXPECT_EQ(Said(3, bad, Mode::kPredict), said);
    }
    EXPECT_EQ(Said(3, 3), "");
    // Of as many steps as this batch has.
    batch_.data[0] = Filled({4, 2, 2}, 1);
    EXPECT_NE(Said(0, 3).find(fmt::format("is not in {}..2", least)), std::string::npos);
  }
  const CTCLossAttrs attrs{.use_data_lengths = true};
  Bind(MakeLoss(Apply(CTCLossOp(), attrs, {kX, Reshape(kN, {.shape = {-1, 1}}), kN}, "y")),
       {"x", {3, 4, 2}, DType::kFloat32, "TNC"}, {"n", {4}});
  EXPECT_NE(Said(1, 4).find("\"n\": 4 is not in 0..3, which CTCLoss"), std::string::npos) << Said(1, 4);
}

TEST_F(GroupValues, RowsOfTables) {
  const Symbol table = Variable("table", {.shape = Shape{5, 3}});
  for (const Symbol& symbol : {MakeLoss(Embedding(kN, table, {.input_dim = 5, .output_dim = 3}, "y") + Sum(kX)),
                               MakeLoss(Take(table, kN, {}, "y") + Sum(kX))}) {
    Bind(symbol, {"x", {4, 2}}, {"n", {4, 2}});
    const std::string said = Said(5, 5);
    EXPECT_NE(said.find("\"n\": 5 is not in -5..4, which "), std::string::npos) << said;
    EXPECT_NE(said.find("(element 5, of sample 2 of the batch, row 30 of the data)"), std::string::npos) << said;
    EXPECT_NE(Said(0, -6), "");
    EXPECT_NE(Said(0, 0.5), "");
    EXPECT_EQ(Said(0, -5), "");
  }
  Bind(MakeLoss(Embedding(kN, table, {.input_dim = 5, .output_dim = 3, .mode = IndexMode::kClip}) + Sum(kX)),
       {"x", {4, 2}}, {"n", {4, 2}});
  EXPECT_EQ(Said(5, 99), "");
  // What is computed of it, the device looks at.
  Bind(MakeLoss(Embedding(kN * 2, table, {.input_dim = 5, .output_dim = 3}, "y") + Sum(kX)), {"x", {4, 2}},
       {"n", {4, 2}});
  EXPECT_EQ(Said(5, 1.5), "");
  EXPECT_NE(Said(5, 3).find("6 is not in -5..4"), std::string::npos);
  EXPECT_EQ(sample_, -1);
  // Sums of what may not be a number of a row itself.
  Bind(MakeLoss(Embedding(SumTo(kN, {{0, 1}, {1, 0}}), table, {.input_dim = 5, .output_dim = 3}, "y") + Sum(kX)),
       {"x", {4, 2}}, {"n", {4, 2}});
  values_->Set(4, 9);
  EXPECT_EQ(Said(5, -7), "");
  EXPECT_NE(Said(5, -4).find("5 is not in -5..4"), std::string::npos);
  EXPECT_EQ(sample_, -1);
}

TEST_F(GroupValues, WhatACastWouldChange) {
  Bind(MakeLoss(Cast(kN, {.dtype = DType::kFloat32}) + kX), {"x", {4, 2}}, {"n", {4, 2}, DType::kInt64});
  EXPECT_EQ(Said(6, 2.5),
            "\"n\": expected values of int64, got 2.5 (element 6, of sample 3 of the batch, row 40 of the data)");
  for (const double bad : {std::ldexp(1.0, 63), -std::ldexp(1.0, 64), static_cast<double>(NAN)}) {
    EXPECT_NE(Said(6, bad), "") << bad;
  }
  EXPECT_EQ(Said(6, -std::ldexp(1.0, 63)), "");
}

// x, where n is a place along its last axis, or 7; whoever knows the definition says so.
const OpDef& AtPlacesOp() {
  static const OpDef& op = []() -> const OpDef& {
    AddReferenceKernel("AtPlaces", [](const KernelSpec& spec) -> MaybeKernel {
      return InDouble(spec, [n = spec.outputs[0].shape.Elements()](const Tensors& t) {
        for (int64_t i = 0; i < n; ++i) t.out[0][i] = t.in[0][i];
      });
    });
    return AddOp({.name = "AtPlaces",
                  .inputs = {"data", "places"},
                  .infer = rule::Like(0),
                  .asks = {{.input = "places",
                            .range =
                                [](const AnyAttrs&, auto in) {
                                  WholeNumbers range = WholeNumbers::UpTo(in[0][-1] - 1);
                                  range.besides = 7;
                                  return range;
                                }}},
                  .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
                    return {g.output_grad(0), {}};
                  }});
  }();
  return op;
}

TEST_F(GroupValues, WhatAnOperatorOfTheUsersAsks) {
  // Seen through what does nothing here; what multiplies makes other numbers.
  for (const auto& [places, is_told] :
       {std::pair{Cast(Dropout(kN, {.p = 0}), {.dtype = DType::kFloat32}), true}, {kN * 1.5, false}}) {
    Bind(MakeLoss(Apply(AtPlacesOp(), {}, {kX, places}, "y")), {"x", {4, 3}}, {"n", {4, 3}});
    for (const double good : {0, 2, 7}) EXPECT_EQ(Said(4, good), "");
    for (const double bad : {-1.0, 3.0, 0.5}) {
      EXPECT_EQ(Said(4, bad).find(fmt::format("\"n\": {} is not in 0..2, which AtPlaces \"y\" takes", bad)) == 0,
                is_told)
          << Said(4, bad);
    }
  }
}

// By the same text as a group, and nothing has changed.
TEST(ExecutorValues, AreLookedAtAsAGroupDoes) {
  Executor net(SoftmaxOutput(kX, Reshape(kN, {.shape = {-1}}), {}, "y"),
               {.device = TestDevice(0), .inputs = {{"x", {2, 3}}, {"n", {2, 1}, DType::kInt32}}, .grad_req = kOfX});
  HostTensor labels = HostTensor::From({2, 1}, {1, 3});
  const std::string said =
      "\"n\": 3 is not in 0..2, which SoftmaxOutput \"y\" takes (element 1, of sample 1 of the batch)";
  const auto set = [&] { net.SetInput("n", labels); };
  const auto forward = [&](Mode mode) { net.Forward({{"n", labels}, {"x", Filled({2, 3}, 1)}}, mode); };
  EXPECT_EQ(MessageOf<SampleError>(set), "DataError: " + said);
  EXPECT_EQ(MessageOf<SampleError>([&] { forward(Mode::kTrain); }), "DataError: " + said);
  EXPECT_EQ(net.ArgumentArray("n").ToHost(), HostTensor(DType::kInt32, {2, 1}));
  EXPECT_EQ(net.ArgumentArray("x").ToHost(), HostTensor(DType::kFloat32, {2, 3}));
  forward(Mode::kPredict);  // where nobody asks for it
  EXPECT_EQ(net.ArgumentArray("n").ToHost().At(1), 3);
  labels.Set(1, 1.5);
  EXPECT_EQ(MessageOf<SampleError>([&] { forward(Mode::kPredict); }),
            "DataError: \"n\": expected values of int32, got 1.5 (element 1, of sample 1 of the batch)");
  // A label that nobody has described; an input without samples.
  Executor other(SoftmaxOutput(kX, kN, {}, "y") + Sum(Embedding(Variable("i"), {.input_dim = 2, .output_dim = 1}, "e")),
                 {.device = TestDevice(0), .inputs = {{"x", {2, 3}}, {"i", {5}}}, .grad_req = kOfX});
  EXPECT_NE(MessageOf<SampleError>([&] {
              other.SetInput("n", HostTensor::From({2}, {3, 0}));
            }).find("of sample 0"),
            std::string::npos);
  EXPECT_EQ(MessageOf<DataError>([&] {
              other.SetInput("i", HostTensor::From({5}, {0, 0, 0, 2, 0}));
            }),
            "DataError: \"i\": 2 is not in -2..1, which Embedding \"e\" takes (element 3)");
}

}  // namespace
}  // namespace bindery
