#include "executor/evaluate.h"

#include <memory>

#include "engine/team.h"
#include "symbol/graph.h"
#include "symbol/infer.h"

namespace bindery {
namespace {

// Memory for a value in some format.
HostTensor Buffer(const Format& format, DType dtype, const Shape& shape) {
  return HostTensor(DType::kUInt8, Shape{StorageBytes(format, dtype, shape)});
}

// Types of the node's inputs and outputs, by inference over a copy whose inputs are variables.
KernelSpec SpecOf(const Node& node, const std::vector<HostTensor>& inputs, Mode mode, std::optional<int64_t> batch) {
  if (inputs.size() != node.inputs().size()) {
    Throw("{} \"{}\" takes {} inputs, got {}", node.op().name, node.name(), node.inputs().size(), inputs.size());
  }
  std::vector<Entry> variables;
  ShapeMap shapes;
  DTypeMap dtypes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Symbol variable = Variable(fmt::format("input{}", i));
    variables.push_back(variable.entry());
    shapes[variable.name()] = inputs[i].shape();
    dtypes[variable.name()] = inputs[i].dtype();
  }
  const NodePtr copy = WithInputs(node, variables);
  std::vector<Entry> outputs;
  for (int i = 0; i < copy->num_outputs(); ++i) outputs.push_back({copy, i});
  const Graph graph = Graph::Of(Symbol(outputs));
  const NodeTypes types = InferTypes(graph, shapes, dtypes, {}, batch);

  KernelSpec spec;
  spec.op = &node.op();
  spec.attrs = node.attrs();
  spec.node_name = node.name();
  spec.who = Describe(node);
  for (const Entry& entry : variables) spec.inputs.push_back(types[graph.IndexOf(entry.node)][0]);
  spec.outputs = types[graph.IndexOf(copy)];
  spec.input_formats.resize(spec.inputs.size());
  spec.input_is_open.resize(spec.inputs.size());
  spec.output_wishes.resize(spec.outputs.size());
  spec.output_used.assign(spec.outputs.size(), true);
  spec.mode = mode;
  spec.batch = batch;
  return spec;
}

void Run(const Kernel& kernel, const std::vector<void*>& inputs, const std::vector<void*>& outputs) {
  const HostTensor scratch(DType::kUInt8, Shape{kernel.scratch_bytes});
  const StepBlock step;
  const TeamScope team(kernel.threads);  // its scratch memory is made for these, whatever the caller's team is
  kernel.bind({inputs, outputs, const_cast<void*>(scratch.raw()), &step})();
}

void RunReorder(const ValueType& type, const Format& from, const void* source, const Format& to, void* target,
                KernelPolicy policy) {
  Run(MakeReorder(type.dtype, type.shape, from, to, 1, policy), {const_cast<void*>(source)}, {target});
}

}  // namespace

std::vector<HostTensor> EvaluateNode(const Node& node, const std::vector<HostTensor>& inputs, Mode mode,
                                     KernelPolicy policy, std::optional<int64_t> batch) {
  const KernelSpec spec = SpecOf(node, inputs, mode, batch);
  const Kernel kernel = MakeKernel(spec, policy);

  std::vector<HostTensor> buffers;  // of values that are not plain for the kernel
  buffers.reserve(inputs.size() + spec.outputs.size());
  std::vector<void*> input_addresses(inputs.size()), output_addresses(spec.outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Format& wanted = kernel.input_formats[i];
    input_addresses[i] = const_cast<void*>(inputs[i].raw());
    if (wanted.is_plain()) continue;
    buffers.push_back(Buffer(wanted, spec.inputs[i].dtype, spec.inputs[i].shape));
    RunReorder(spec.inputs[i], Format::Plain(), inputs[i].raw(), wanted, buffers.back().raw(), policy);
    input_addresses[i] = buffers.back().raw();
  }

  std::vector<HostTensor> outputs;
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const ValueType& type = spec.outputs[i];
    outputs.emplace_back(type.dtype, type.shape);
    output_addresses[i] = outputs.back().raw();
    if (kernel.output_formats[i].is_plain()) continue;
    buffers.push_back(Buffer(kernel.output_formats[i], type.dtype, type.shape));
    output_addresses[i] = buffers.back().raw();
  }

  try {
    Run(kernel, input_addresses, output_addresses);
  } catch (const Error&) {
    std::rethrow_exception(CurrentErrorAfter(spec.who + ": "));
  }

  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const Format& given = kernel.output_formats[i];
    if (given.kind != Format::Kind::kStrided) continue;
    RunReorder(spec.outputs[i], given, output_addresses[i], Format::Plain(), outputs[i].raw(), policy);
  }
  return outputs;
}

}  // namespace bindery
