#include "executor/tape/compute.h"

#include <utility>

#include "base/error.h"

namespace bindery::tape {
namespace {

bool IsAligned(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.address()) % 64 == 0; }

void CheckTogether(const std::string& name, const std::vector<NDArray>& inputs) {
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].tensor().engine() != inputs[0].tensor().engine()) {
      Throw("{}: input {} belongs to another engine than input 0", name, i);
    }
    if (inputs[i].device() == inputs[0].device()) continue;
    Throw("{}: arrays of different devices, input 0 lies on {}, input {} on {}; bring them together with CopyTo", name,
          inputs[0].device(), i, inputs[i].device());
  }
}

std::shared_ptr<TapeNode> Record(const PreparedCall& call, const std::vector<NDArray>& inputs,
                                 const std::vector<Tensor>& results) {
  auto node = std::make_shared<TapeNode>();
  node->unit = call.unit;
  for (const NDArray& input : inputs) {
    const ArrayState& state = *input.state();
    node->inputs.push_back({Recorded(state.tensor), state.node, state.output, state.slot});
  }
  for (const Tensor& result : results) node->results.emplace_back(result);
  return node;
}

}  // namespace

NDArray NewArray(const Tensor& tensor) {
  return NDArray(std::make_shared<ArrayState>(ArrayState{tensor, Runtime::Of(tensor.engine())}));
}

Tensor Aligned(const Tensor& tensor) {
  if (IsAligned(tensor)) return tensor;
  const Tensor copy(tensor.engine(), tensor.device(), tensor.dtype(), tensor.shape());
  copy.CopyFrom(tensor);
  return copy;
}

PreparedCall Prepare(const BuildFunction& build, const std::vector<NDArray>& inputs, std::optional<Device> device) {
  std::vector<Symbol> variables;
  Symbol symbol;
  const TapeMode& mode = CurrentMode();
  {
    const NameScope names("", /*nested=*/false);
    const AttrScope attributes(Annotations(), /*nested=*/false);
    for (size_t i = 0; i < inputs.size(); ++i) variables.push_back(Variable(fmt::format("in{}", i)));
    symbol = Canonical(build(variables), variables, mode.mode);
  }
  const std::string name = NameOf(symbol);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) Throw("{}: input {} is an empty array", name, i);
  }
  CheckTogether(name, inputs);
  if (inputs.empty() && !device) Throw("{}: without inputs there is no device to compute on", name);

  PreparedCall call;
  call.runtime = inputs.empty() ? Runtime::Of(DefaultEngine()) : inputs[0].state()->runtime;
  call.options = {.name = name, .device = inputs.empty() ? *device : inputs[0].device()};
  UnitOptions options{.mode = mode.mode, .device = call.options.device.kind};
  options.threads = call.runtime->ThreadsOf(call.options.device);
  for (const NDArray& input : inputs) {
    options.inputs.push_back({.dtype = input.dtype(), .shape = input.shape()});
    const bool wanted = mode.records && input.state()->is_recorded() && IsFloat(input.dtype());
    options.wanted.push_back(wanted);
    call.is_recorded |= wanted;
  }
  call.unit = call.runtime->FindUnit(KeyOf(symbol, options), [&] { return MakeUnit(symbol, variables, options); });
  for (const int input : call.unit->arguments) call.options.arguments.push_back(Aligned(inputs[input].tensor()));
  for (const int input : call.unit->auxiliary) {
    const Tensor& state = inputs[input].tensor();
    if (!IsAligned(state)) Throw("{}: a state must begin at a multiple of 64 bytes, as whole arrays do", name);
    call.options.auxiliary.push_back(state);
  }
  if (call.unit->program.reads_step) call.options.step = NextDraw();
  return call;
}

std::vector<NDArray> Finish(PreparedCall call, const std::vector<NDArray>& inputs) {
  const std::vector<Tensor> results = call.runtime->Run(call.unit->program, std::move(call.options));
  const std::shared_ptr<TapeNode> node = call.is_recorded ? Record(call, inputs, results) : nullptr;
  std::vector<NDArray> outputs;
  for (int i = 0; i < call.unit->num_outputs; ++i) {
    const bool flows = node && IsFloat(results[i].dtype());
    outputs.emplace_back(std::make_shared<ArrayState>(ArrayState{results[i], call.runtime, flows ? node : nullptr, i}));
  }
  return outputs;
}

std::vector<NDArray> Compute(const BuildFunction& build, const std::vector<NDArray>& inputs) {
  return Finish(Prepare(build, inputs), inputs);
}

std::vector<NDArray> ComputeOn(Device device, const BuildFunction& build) {
  return Finish(Prepare(build, {}, device), {});
}

NDArray OnlyOne(std::vector<NDArray> outputs) {
  if (outputs.size() != 1) Throw("Apply: the operator has {} outputs; take them by ApplyAll", outputs.size());
  return std::move(outputs[0]);
}

}  // namespace bindery::tape
