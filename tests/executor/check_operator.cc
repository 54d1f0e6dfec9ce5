#include "tests/executor/check_operator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "symbol/graph.h"
#include "symbol/model.h"
#include "tests/executor/prepared_case.h"

namespace bindery {
namespace {

class Checker : PreparedCase {
 public:
  using PreparedCase::PreparedCase;

  void CheckOn(Device device) {
    for (DType dtype : case_.test_dtypes) CheckDType(dtype, device);
  }
  void CheckAll() {
    for (DType dtype : case_.test_dtypes) CheckDType(dtype, Cpu());
    if (case_.large) return;
    CheckGradient();
    CheckWrongShapes();
    CheckNearShapes();
    CheckOtherBatches();
    CheckSaveLoad();
  }

 private:
  void CheckDType(DType dtype, Device device) {
    SCOPED_TRACE(ToString(dtype));
    const Types types = TypesFor(dtype);
    const Symbol everything = GraphsFor(dtype, case_.inputs).everything;
    const HostTensorMap rounded = CastTo(types, values_, everything);
    HostTensorMap in_double;
    for (const auto& [name, value] : rounded) in_double[name] = value.Cast(DType::kFloat64);
    const std::vector<HostTensor> truth = Compute(everything_, in_double).outputs;
    if (case_.forward) {
      const std::vector<HostTensor> second_opinion = case_.forward(in_double);
      ASSERT_EQ(static_cast<int>(second_opinion.size()), symbol_.size());
      for (int i = 0; i < symbol_.size(); ++i) {
        ExpectNear(truth[i], second_opinion[i], 1e-9 * std::max(1.0, MaxAbs(second_opinion[i])),
                   "the reference kernels");
      }
    }

    const auto check = [&](const RunOptions& options) {
      SCOPED_TRACE(fmt::format("{} kernels, {} threads, {}",
                               options.policy == KernelPolicy::kFast ? "fast" : "reference", options.threads,
                               ToString(options.layout)));
      const RunResult result = RunGraph(everything, rounded, options);
      for (size_t i = 0; i < truth.size(); ++i) {
        ExpectNear(result.outputs[i], truth[i], Tolerance(dtype, truth[i], static_cast<int>(i) >= symbol_.size()),
                   NameOf(i));
      }
    };
    RunOptions options = Options();
    options.device = device;
    if (device.kind != DeviceKind::kCpu) return check(options);
    options.policy = KernelPolicy::kReference;
    check(options);
    options.policy = KernelPolicy::kFast;
    for (Layout layout : {Layout::kPlain, Layout::kChannelsLast, Layout::kBlocked8, Layout::kBlocked16}) {
      options.layout = layout;
      if (layout == Layout::kPlain || HasLayouts(rounded)) check(options);
    }
    options.layout = Layout::kPlain;
    options.threads = 2;
    check(options);
    if (!case_.large) return;
    options.threads = 3;
    check(options);
  }

  // What rounding may cost: outputs and, in gradients, what lies between them, to the dtype; sums in float (in double
  // for float64), however narrow the dtype is.
  double Tolerance(DType dtype, const HostTensor& truth, bool is_gradient) const {
    const double arithmetic = EpsilonOf(dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
    const double scale = std::max(MaxAbs(truth), case_.magnitude);
    return (is_gradient ? 8 : 4) * case_.tolerance * arithmetic * std::sqrt(case_.terms) * scale +
           (is_gradient ? 2 * EpsilonOf(dtype) * std::max(MaxAbs(truth), case_.stored)
                        : EpsilonOf(dtype) * MaxAbs(truth));
  }

  // sum over heads of <head gradient, head>
  double Weighted(const HostTensorMap& values) const {
    const std::vector<HostTensor> outputs = Compute(symbol_, values).outputs;
    double sum = 0;
    for (size_t h = 0; h < outputs.size(); ++h) {
      if (heads_[h].empty()) continue;
      const HostTensor& weight = values_.at(heads_[h]);
      for (int64_t i = 0; i < weight.elements(); ++i) sum += weight.At(i) * outputs[h].At(i);
    }
    return sum;
  }

  void CheckGradient() {
    if (wrt_.empty()) return;
    const std::vector<HostTensor> all = Compute(everything_, values_).outputs;
    HostTensorMap formula;
    if (case_.gradient) {
      formula = case_.gradient(values_, std::vector<HostTensor>(all.begin(), all.begin() + symbol_.size()));
    }
    size_t next = symbol_.size();
    for (size_t i = 0; i < wrt_.size(); ++i) {
      const HostTensor& value = case_.inputs.at(wrt_[i]);
      const HostTensor actual = gradients_[i].empty() ? HostTensor(DType::kFloat64, value.shape()) : all[next++];
      const bool has_formula = formula.contains(wrt_[i]);
      HostTensor expected = has_formula ? formula.at(wrt_[i]) : FiniteDifferences(wrt_[i]);
      const double scale = std::max({MaxAbs(expected), case_.magnitude, has_formula ? 0 : 1e-2});
      for (int64_t k = 0; k < expected.elements() && !has_formula; ++k) {
        if (!IsSampled(expected, k) && std::isfinite(actual.At(k))) expected.Set(k, actual.At(k));
      }
      ExpectNear(actual.Cast(DType::kFloat64), expected, (has_formula ? 1e-12 : 1e-6) * scale,
                 fmt::format("gradient of {} against {}", wrt_[i], has_formula ? "its formula" : "finite differences"));
    }
  }

  // Of large inputs, the differences of 500 elements all over them: where a formula is wrong, it is wrong for many.
  static bool IsSampled(const HostTensor& x, int64_t element) {
    return x.elements() < 1000 || element * 7919 % x.elements() < 500;
  }

  HostTensor FiniteDifferences(const std::string& name) const {
    HostTensorMap values = case_.inputs;
    HostTensor& x = values.at(name);
    HostTensor gradient(DType::kFloat64, x.shape());
    for (int64_t i = 0; i < x.elements(); ++i) {
      if (!IsSampled(x, i)) continue;
      const double here = x.At(i), h = 1e-5;
      x.Set(i, here + h);
      const double above = Weighted(values);
      x.Set(i, here - h);
      const double below = Weighted(values);
      x.Set(i, here);
      gradient.Set(i, (above - below) / (2 * h));
    }
    return gradient;
  }

  void CheckWrongShapes() const {
    for (const ShapeMap& shapes : case_.wrong_shapes) {
      std::string text;
      for (const auto& [name, shape] : shapes) text += fmt::format(" {} {}", name, shape);
      EXPECT_THROW(InferShapes(case_.symbol, shapes), ShapeError) << "with" << text;
    }
  }

  // One extent or the rank of one input changed: an error of shapes, or a graph that runs.
  void CheckNearShapes() const {
    for (const std::string& name : names_) {
      const Shape& shape = case_.inputs.at(name).shape();
      std::vector<Shape> others;
      if (shape.rank() < Shape::kMaxRank) others.push_back(shape.Insert(shape.rank(), 1));
      if (shape.rank() > 0) others.push_back(shape.Erase(0));
      for (int axis = 0; axis < shape.rank(); ++axis) {
        others.push_back(shape.With(axis, shape[axis] + 1));
        if (shape[axis] > 0) others.push_back(shape.With(axis, shape[axis] - 1));
      }
      for (const Shape& other : others) RunWithShapes({{name, other}}, "near shape", std::nullopt);
    }
  }

  // Runs with zeros wherever shapes differ from the case's, unless the shapes are refused. `everything`: with gradients
  // for these shapes, unless it is given.
  void RunWithShapes(const ShapeMap& changed, const char* what, std::optional<Symbol> everything) const {
    HostTensorMap values = values_;
    for (const std::string& head : heads_) values.erase(head);
    std::string text;
    for (const auto& [name, shape] : changed) {
      values[name] = HostTensor(DType::kFloat64, shape);
      text += fmt::format(" {} {}", name, shape);
    }
    SCOPED_TRACE(fmt::format("{}:{}", what, text));
    std::vector<Shape> outputs;
    try {
      ShapeMap shapes;
      for (const std::string& name : names_) shapes[name] = values.at(name).shape();
      const Graph graph = Graph::Of(symbol_);
      const NodeTypes types = InferTypes(graph, shapes, {}, BatchAxesOf(values));
      for (const Entry& entry : graph.outputs) outputs.push_back(types[graph.IndexOf(entry.node)][entry.output].shape);
    } catch (const ShapeError&) {
      return;
    }
    for (size_t i = 0; i < heads_.size(); ++i) {
      if (!heads_[i].empty()) values[heads_[i]] = HostTensor(DType::kFloat64, outputs[i]);
    }
    if (!everything) everything = GraphsFor(DType::kFloat32, values).everything;
    const HostTensorMap rounded = CastTo(TypesFor(DType::kFloat32), values, *everything);
    for (KernelPolicy policy : {KernelPolicy::kReference, KernelPolicy::kFast}) {
      RunOptions options = Options();
      options.policy = policy;
      options.batch_axes = BatchAxesOf(values);
      try {
        const RunResult result = RunGraph(*everything, rounded, options);
        for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(result.outputs[i].shape(), outputs[i]);
      } catch (const ShapeError& e) {  // of the gradient graph
        ADD_FAILURE() << "inference took the shapes, but the gradient did not: " << e.what();
      } catch (const DataError&) {  // fewer classes than the labels name
      }
    }
  }

  void CheckOtherBatches() const {
    if (case_.batch_axes.empty()) return;
    const Symbol everything = GraphsFor(DType::kFloat32, case_.inputs).everything;
    for (const int64_t samples : {0, 1, 7}) {
      ShapeMap shapes;
      for (const auto& [name, axis] : case_.batch_axes)
        shapes[name] = case_.inputs.at(name).shape().With(axis, samples);
      RunWithShapes(shapes, "another batch", everything);
    }
  }

  void CheckSaveLoad() const {
    Model model;
    model.symbol = case_.symbol;
    for (bool text : {false, true}) {
      const std::string saved = SerializeModel(model, text);
      const Model loaded = ParseModel(saved, text);
      EXPECT_EQ(loaded.symbol.DebugString(), case_.symbol.DebugString()) << "after saving and loading";
      EXPECT_EQ(SerializeModel(loaded, text), saved);
    }
  }
};

}  // namespace

void CheckOperator(const OperatorCase& c) {
  SCOPED_TRACE("case " + c.name);
  Checker(c).CheckAll();
}

void CheckKernelsOn(Device device, const OperatorCase& c) {
  SCOPED_TRACE("case " + c.name);
  Checker(c).CheckOn(device);
}

void CheckOperators(const std::vector<OperatorCase>& cases) {
  std::set<std::string> names;
  for (const OperatorCase& c : cases) {
    EXPECT_TRUE(names.insert(c.name).second) << "two cases named " << c.name;
    try {
      CheckOperator(c);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "case " << c.name << ": " << e.what();
    }
  }
}

}  // namespace bindery
