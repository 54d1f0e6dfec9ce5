#include "executor/compile/without_elements.h"

#include "executor/evaluate.h"
#include "executor/kernel_table.h"

namespace bindery {

constexpr int64_t kMostElements = 1 << 18;  // of an output that is kept; a kernel makes larger ones

std::optional<std::vector<HostTensor>> ResultsWithoutElements(const Node& node, const std::vector<ValueType>& inputs,
                                                              const std::vector<ValueType>& outputs,
                                                              const std::vector<bool>& is_read, Mode mode,
                                                              std::optional<int64_t> batch) {
  const auto has_elements = [](const ValueType& type) { return type.shape.Elements() > 0; };
  const OpDef& op = node.op();
  const size_t visible = static_cast<size_t>(NumVisibleOutputs(op, node.attrs()));
  bool gives = false, takes = false, has_inputs = false;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!is_read[o]) continue;
    if (o >= visible || outputs[o].shape.Elements() > kMostElements) return std::nullopt;
    gives = gives || has_elements(outputs[o]);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    has_inputs = true;
    takes = takes || has_elements(inputs[i]);
  }
  if (!gives) return std::vector<HostTensor>(outputs.size());
  if (takes || !has_inputs || !ReferenceKernels().Contains(op.name)) return std::nullopt;
  std::vector<HostTensor> values;
  for (const ValueType& input : inputs) values.emplace_back(input.dtype, input.shape);
  return EvaluateNode(node, values, mode, KernelPolicy::kReference, batch);
}

}  // namespace bindery
