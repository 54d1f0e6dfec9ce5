// Which kernels run the cases: of the fast table in every dtype, and the operators that have one.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <set>
#include <string_view>

#include "symbol/graph.h"
#include "tests/executor/prepared_case.h"

namespace bindery {
namespace {

class KernelFinder : PreparedCase {
 public:
  using PreparedCase::PreparedCase;

  // Runs the case in a dtype, with its gradients if they are of floats, and expects that the fast table has every
  // kernel, and the same results in integers. False if the operators do not take the dtype, or a GPU has no kernel.
  bool CheckNative(DType dtype, Device device) const {
    SCOPED_TRACE(ToString(dtype));
    Types types;
    Symbol symbol = symbol_;
    try {
      types = TypesFor(dtype);
      if (IsFloat(dtype)) symbol = GraphsFor(dtype, case_.inputs).everything;
    } catch (const ShapeError&) {
      return false;
    }
    const HostTensorMap values = CastTo(types, values_, symbol);
    RunOptions options = Options();
    options.policy = KernelPolicy::kReference;
    options.watch = false;
    const RunResult reference = RunGraph(symbol, values, options);
    const auto is_empty = [](const auto& entry) { return entry.second.elements() == 0; };
    if (std::ranges::any_of(values, is_empty) || reference.outputs[0].elements() == 0) return true;  // nobody's
    options.policy = KernelPolicy::kFast;
    options.device = device;
    options.watch = !IsFloat(dtype);  // CheckOperator watches those of floats
    options.threads = 2;
    for (Layout layout : {Layout::kPlain, Layout::kBlocked8}) {
      if (layout != Layout::kPlain && (device != Cpu() || !HasLayouts(values))) continue;
      options.layout = layout;
      RunResult fast;
      try {
        fast = RunGraph(symbol, values, options);
      } catch (const Error& e) {
        if (device == Cpu() || std::string_view(e.what()).find("no kernel for operator") == std::string_view::npos)
          throw;
        return false;
      }
      for (const auto& [node, implementation] : fast.implementations) EXPECT_NE(implementation, "reference") << node;
      if (dtype != DType::kInt32 && dtype != DType::kInt64) continue;  // narrow ones wrap where the reference saturates
      for (size_t i = 0; i < fast.outputs.size(); ++i) {
        const HostTensor& expected = reference.outputs[i];
        if (IsFloat(expected.dtype()) || MaxAbs(expected) >= 0x7fffffff) continue;  // as does 0 to the power of -1
        ExpectNear(fast.outputs[i], expected, 0, NameOf(i));
      }
    }
    return true;
  }

  // The operators of nodes that a kernel of the fast table runs in some layout (or of those that none does).
  std::vector<std::string> Operators(bool wanted_fast) const {
    std::map<std::string, bool> fast;  // by node
    std::map<std::string, std::string> names;
    const Symbol everything = GraphsFor(DType::kFloat32, case_.inputs).everything;
    const HostTensorMap values = CastTo(TypesFor(DType::kFloat32), values_, everything);
    for (Layout layout : {Layout::kPlain, Layout::kBlocked8}) {
      RunOptions options = Options();
      options.layout = layout;
      options.watch = false;
      RunResult result = RunGraph(everything, values, options);
      for (const auto& [node, implementation] : result.implementations) fast[node] |= implementation != "reference";
      names.merge(result.operators);
    }
    std::set<std::string> operators;
    for (const auto& [node, name] : names) {
      if (fast.at(node) == wanted_fast) operators.insert(name);
    }
    return {operators.begin(), operators.end()};
  }
};

}  // namespace

std::vector<std::string> OperatorsIn(const OperatorCase& c) {
  std::set<std::string> names;
  for (const Symbol& symbol : {c.symbol, PreparedCase(c).everything()}) {
    for (const NodePtr& node : Graph::Of(symbol).nodes) {
      if (!node->is_variable()) names.insert(node->op().name);
    }
  }
  return {names.begin(), names.end()};
}

std::set<DType> CheckNativeKernels(const OperatorCase& c, Device device) {
  SCOPED_TRACE("case " + c.name);
  const KernelFinder finder(c);
  std::set<DType> taken;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (device != Cpu() && IsFloat(dtype)) continue;
    try {
      if (finder.CheckNative(dtype, device)) taken.insert(dtype);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "case " << c.name << " in " << ToString(dtype) << ": " << e.what();
    }
  }
  return taken;
}

std::vector<std::string> FastOperatorsIn(const OperatorCase& c) { return KernelFinder(c).Operators(true); }
std::vector<std::string> SlowOperatorsIn(const OperatorCase& c) { return KernelFinder(c).Operators(false); }

}  // namespace bindery
