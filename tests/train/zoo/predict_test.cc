// Predictions of the models by name with batch-norms folded into the weights before them, and without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "executor/predictor.h"
#include "train/initializer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

TEST(Zoo, PredictsWithNormsFolded) {
  struct Case {
    const char* name;
    Shape sample;
    int64_t batch;
  };
  for (const Case& c :
       {Case{"resnet20", {3, 32, 32}, 3}, Case{"resnet18", {3, 64, 64}, 2}, Case{"resnet50", {3, 64, 64}, 1},
        Case{"mobilenetv2", {3, 64, 64}, 2}, Case{"unet", {3, 32, 32}, 2}}) {
    SCOPED_TRACE(c.name);
    const Symbol net = ModelByName(c.name, {.input = c.sample});
    const Symbol scores = Symbol(net.entry().node->inputs()[0]);  // probabilities may be all 0 and 1
    const Shape shape = c.sample.Insert(0, c.batch);
    Model model = InitialModel(scores, {{"data", shape}}, Initializer("xavier"), /*seed=*/1);
    PhiloxStream random(2, "states");
    for (auto& [name, state] : model.aux) {
      const bool is_var = name.ends_with("var");
      for (float& v : state.data<float>()) v = is_var ? random.Uniform(0.5, 2) : random.Uniform(-1, 1);
    }
    HostTensor data(DType::kFloat32, shape);
    for (float& v : data.data<float>()) v = random.Uniform(-1, 1);
    const auto predict = [&](bool folds) {
      const Predictor predictor(model, {.inputs = {{"data", shape}}, .switches = {.fold = folds}});
      EXPECT_GT(predictor.memory().total(), 0);
      return predictor.Predict({{"data", data}})[0];
    };
    const HostTensor with = predict(true), without = predict(false);
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < with.elements(); ++i) {
      largest = std::max(largest, std::abs(without.At(i)));
      difference = std::max(difference, std::abs(with.At(i) - without.At(i)));
    }
    EXPECT_GT(largest, 0);
    EXPECT_GT(difference, 0);  // they are computed differently
    EXPECT_LT(difference, 1e-5 * largest);
  }
}

}  // namespace
}  // namespace bindery
