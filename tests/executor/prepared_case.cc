#include "tests/executor/prepared_case.h"

#include <algorithm>

#include "symbol/gradient.h"

namespace bindery {

PreparedCase::PreparedCase(const OperatorCase& c) : case_(c), symbol_(ExpandComposites(c.symbol)) {
  names_ = symbol_.ListInputs();
  for (const std::string& name : names_) {
    if (!c.inputs.contains(name)) Throw("case \"{}\" has no values for \"{}\"", c.name, name);
  }
  ChooseGradients();
}

PreparedCase::Types PreparedCase::TypesFor(DType dtype) const {
  DTypeMap known = case_.dtypes;
  for (const std::string& name : names_) {
    if (known.emplace(name, dtype).second) break;
  }
  const InferredDTypes inferred = InferDTypes(symbol_, known);
  Types types;
  const std::vector<std::string> arguments = symbol_.ListArguments(), auxiliary = symbol_.ListAuxiliaryStates();
  for (size_t i = 0; i < arguments.size(); ++i) types.of[arguments[i]] = inferred.arguments[i];
  for (size_t i = 0; i < auxiliary.size(); ++i) types.of[auxiliary[i]] = inferred.auxiliary[i];
  types.outputs = inferred.outputs;
  for (size_t i = 0; i < heads_.size(); ++i) {
    if (!heads_[i].empty()) types.of[heads_[i]] = inferred.outputs[i];
  }
  return types;
}

PreparedCase::Graphs PreparedCase::GraphsFor(DType dtype, const HostTensorMap& values) const {
  if (wrt_.empty()) return {{}, {}, symbol_};
  const Types types = TypesFor(dtype);
  GivenTypes given{.batch_axes = BatchAxesOf(values)};
  for (const std::string& name : names_) {
    given.shapes[name] = values.at(name).shape();
    given.dtypes[name] = types.of.at(name);
  }
  const GradientResult gradient = Gradient(symbol_, wrt_, given);
  std::vector<Symbol> parts = {symbol_};
  for (const Symbol& g : gradient.gradients) {
    if (!g.empty()) parts.push_back(g);
  }
  return {gradient.head_gradients, gradient.gradients, Group(parts)};
}

std::map<std::string, int> PreparedCase::BatchAxesOf(const HostTensorMap& values) const {
  std::map<std::string, int> axes = case_.batch_axes;
  std::erase_if(axes, [&](const auto& entry) { return values.at(entry.first).shape().rank() <= entry.second; });
  return axes;
}

void PreparedCase::ChooseGradients() {
  const Types types = TypesFor(DType::kFloat64);
  if (case_.wrt) {
    wrt_ = *case_.wrt;
  } else {
    for (const std::string& name : symbol_.ListArguments()) {
      if (!case_.dtypes.contains(name) && IsFloat(types.of.at(name))) wrt_.push_back(name);
    }
  }
  values_ = case_.inputs;
  everything_ = symbol_;
  if (wrt_.empty()) return;
  const Graphs graphs = GraphsFor(DType::kFloat64, case_.inputs);
  heads_ = graphs.heads;
  gradients_ = graphs.gradients;
  everything_ = graphs.everything;
  const std::vector<HostTensor> outputs = Compute(symbol_, values_).outputs;
  for (size_t i = 0; i < heads_.size(); ++i) {
    if (!heads_[i].empty()) values_[heads_[i]] = Uniform(outputs[i].shape(), -1.1, 0.9);
  }
}

RunResult PreparedCase::Compute(const Symbol& symbol, const HostTensorMap& values) const {
  const Types types = TypesFor(DType::kFloat64);
  RunOptions options = Options();
  options.policy = KernelPolicy::kReference;
  options.watch = false;
  return RunGraph(symbol, CastTo(types, values, symbol), options);
}

HostTensorMap PreparedCase::CastTo(const Types& types, const HostTensorMap& values, const Symbol& symbol) {
  HostTensorMap result;
  for (const std::string& name : symbol.ListInputs()) {
    const auto value = values.find(name);
    if (value != values.end()) result[name] = value->second.Cast(types.of.at(name));
  }
  return result;
}

bool PreparedCase::HasLayouts(const HostTensorMap& values) {
  return std::ranges::any_of(
      values, [](const auto& entry) { return !FormatOf(Layout::kBlocked8, entry.second.shape()).is_plain(); });
}

std::string PreparedCase::NameOf(size_t output) const {
  if (static_cast<int>(output) < symbol_.size()) return symbol_.ListOutputs()[output];
  size_t left = output - symbol_.size();
  for (size_t i = 0; i < wrt_.size(); ++i) {
    if (!gradients_[i].empty() && left-- == 0) return "gradient of " + wrt_[i];
  }
  return "";
}

}  // namespace bindery
