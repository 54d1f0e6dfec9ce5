#include "tests/executor/graph_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "base/checked.h"
#include "engine/engine.h"
#include "engine/team.h"
#include "engine/tensor.h"
#include "symbol/compose.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/infer/forward_types.h"
#include "tests/executor/engine_of_tests.h"

namespace bindery {
namespace {

constexpr uint8_t kGuard = 0xEE;
// What is in memory before a kernel writes; large numbers or NaN in every float type.
constexpr uint8_t kGarbage = 0xFF, kOtherGarbage = 0x7B;

// Without a loop of ours: tests are not optimised.
bool AllAre(uint8_t value, const uint8_t* bytes, int64_t count) {
  return count == 0 || (*bytes == value && std::memcmp(bytes, bytes + 1, count - 1) == 0);
}

// Memory between two guards.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(bytes), memory_(DType::kUInt8, Shape{CheckedAdd(bytes, 2 * kMargin)}) {
    std::memset(memory_.raw(), kGuard, memory_.bytes());
    Fill(kGarbage);
  }
  void* data() { return static_cast<uint8_t*>(memory_.raw()) + kMargin; }
  // The same place in a copy of all of it.
  static void* DataIn(const Tensor& copy) { return static_cast<uint8_t*>(copy.address()) + kMargin; }
  HostTensor& all() { return memory_; }
  int64_t bytes() const { return bytes_; }
  void Fill(uint8_t value) { std::memset(data(), value, bytes_); }
  bool GuardsIntact() const {
    const auto* p = static_cast<const uint8_t*>(memory_.raw());
    return AllAre(kGuard, p, kMargin) && AllAre(kGuard, p + kMargin + bytes_, kMargin);
  }
  bool Equals(Buffer& other) { return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), bytes_) == 0; }

 private:
  static constexpr int64_t kMargin = 128;
  int64_t bytes_;
  HostTensor memory_;
};
using BufferPtr = std::shared_ptr<Buffer>;

struct Value {
  ValueType type;
  Format format;
  BufferPtr buffer;
};

BufferPtr NewBuffer(const ValueType& type, const Format& format) {
  return std::make_shared<Buffer>(StorageBytes(format, type.dtype, type.shape));
}

// Is everything beyond the logical elements zero?
bool PaddingIsZero(const Value& value) {
  if (value.format.kind != Format::Kind::kStrided || value.format.num_blocks == 0) return true;
  const Shape& shape = value.type.shape;
  const int64_t elements = shape.Elements();
  if (StorageElements(value.format, shape) == elements) return true;  // nothing is beyond them
  Buffer copy = *value.buffer;
  const int64_t size = SizeOf(value.type.dtype);
  auto* bytes = static_cast<uint8_t*>(copy.data());
  int64_t index[Shape::kMaxRank] = {};
  for (int64_t i = elements; i > 0; --i) {
    std::memset(bytes + ElementOffset(value.format, shape, index) * size, 0, size);
    for (int axis = shape.rank() - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
  }
  return AllAre(0, bytes, copy.bytes());
}

// Buffers' copies in the memory of a device.
class Copies {
 public:
  explicit Copies(Device device) : device_(device) {}
  void* Of(Buffer* buffer) {  // not nullptr
    if (!copies_.contains(buffer)) copies_[buffer] = Tensor(engine_, device_, DType::kUInt8, buffer->all().shape());
    return Buffer::DataIn(copies_.at(buffer));
  }
  Stream* stream() const { return &engine_->StreamOf(device_); }
  void Run(const Call& call) {
    Operation operation{.name = "kernel", .device = device_, .run = [&call](const OpContext&) { call(); }};
    for (const auto& [buffer, copy] : copies_) {
      copy.CopyFrom(buffer->all());
      operation.updates.push_back(copy.var());
    }
    engine_->Push(std::move(operation));
    for (const auto& [buffer, copy] : copies_) {
      const HostTensor after = copy.ToHost();
      std::memcpy(buffer->all().raw(), after.raw(), static_cast<size_t>(after.bytes()));
    }
  }

 private:
  const std::shared_ptr<Engine> engine_ = EngineOfTests();
  const Device device_;
  std::map<Buffer*, Tensor> copies_;
};

// One kernel at work on buffers.
class Bound {
 public:
  Bound(const Kernel& kernel, std::vector<BufferPtr> inputs, std::vector<BufferPtr> outputs, const RunOptions& options)
      : kernel_(kernel), inputs_(std::move(inputs)), outputs_(std::move(outputs)), scratch_(kernel.scratch_bytes),
        step_(sizeof options.step) {
    std::memcpy(step_.data(), &options.step, sizeof options.step);
    if (options.device.kind != DeviceKind::kCpu) copies_.emplace(options.device);
    const auto address = [&](Buffer* buffer) {
      return !buffer ? nullptr : copies_ ? copies_->Of(buffer) : buffer->data();
    };
    std::vector<void*> in, out;
    for (const BufferPtr& buffer : inputs_) in.push_back(address(buffer.get()));
    for (const BufferPtr& buffer : outputs_) out.push_back(address(buffer.get()));
    const TeamScope team(kernel.threads);
    call_ = kernel.bind({in, out, address(&scratch_), static_cast<const StepBlock*>(address(&step_)),
                         copies_ ? copies_->stream() : nullptr});
  }
  void Run(uint8_t garbage) {
    scratch_.Fill(garbage);
    const TeamScope team(kernel_.threads);
    copies_ ? copies_->Run(call_) : call_();
  }
  void CheckGuards(const std::string& who) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i]) {
        EXPECT_TRUE(inputs_[i]->GuardsIntact()) << who << " wrote outside, beside input " << i;
      }
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i]) {
        EXPECT_TRUE(outputs_[i]->GuardsIntact()) << who << " wrote outside of output " << i;
      }
    }
    EXPECT_TRUE(scratch_.GuardsIntact()) << who << " wrote outside of its scratch memory";
  }

 private:
  const Kernel& kernel_;
  std::vector<BufferPtr> inputs_, outputs_;
  Buffer scratch_, step_;
  std::optional<Copies> copies_;
  Call call_;
};

class Runner {
 public:
  Runner(const Symbol& symbol, const HostTensorMap& inputs, const RunOptions& options)
      : graph_(Graph::Of(symbol)), inputs_(inputs), options_(options) {
    NodeNumbers numbers;
    Infer(&numbers);
    while (HasComposed(graph_)) {
      const Symbol by = Compose(graph_, BoundForwardTypes(graph_, types_, &numbers, batch_));
      if (by.entries() == graph_.outputs) CheckComposed(graph_);
      graph_ = Graph::Of(by);
      Infer(&numbers);
    }
    used_.resize(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) used_[n].resize(types_[n].size());
    for (const NodePtr& node : graph_.nodes) {
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        used_[graph_.IndexOf(node->inputs()[i].node)][node->inputs()[i].output] = true;
      }
    }
    for (const Entry& output : graph_.outputs) used_[graph_.IndexOf(output.node)][output.output] = true;
  }

  RunResult Run() {
    values_.resize(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = *graph_.nodes[n];
      values_[n] = node.is_variable() ? std::vector<Value>{Feed(node, types_[n][0])} : RunNode(static_cast<int>(n));
    }
    for (const Entry& entry : graph_.outputs) result_.outputs.push_back(Fetch(ValueOf(entry)));
    return std::move(result_);
  }

 private:
  void Infer(NodeNumbers* numbers) {
    ShapeMap shapes;
    DTypeMap dtypes;
    std::map<std::string, int> batch_axes;
    for (const NodePtr& node : graph_.nodes) {
      if (!node->is_variable()) continue;
      const auto given = inputs_.find(node->name());
      if (given == inputs_.end()) continue;
      shapes[node->name()] = given->second.shape();
      dtypes[node->name()] = given->second.dtype();
      const auto axis = options_.batch_axes.find(node->name());
      if (axis != options_.batch_axes.end()) batch_axes.insert(*axis);
    }
    if (!batch_) batch_ = BatchOf(graph_, shapes, batch_axes);
    types_ = InferTypes(graph_, shapes, dtypes, batch_axes, batch_, numbers);
  }

  const Value& ValueOf(const Entry& entry) const { return values_[graph_.IndexOf(entry.node)][entry.output]; }

  Value Feed(const Node& node, const ValueType& type) const {
    Value value{type, Format::Plain(), NewBuffer(type, Format::Plain())};
    const auto given = inputs_.find(node.name());
    const int64_t bytes = given == inputs_.end() ? 0 : given->second.bytes();
    if (bytes > 0) std::memcpy(value.buffer->data(), given->second.raw(), bytes);
    return value;
  }

  HostTensor Fetch(const Value& value) const {
    const Value plain = Reordered(value, Format::Plain());
    HostTensor tensor(value.type.dtype, value.type.shape);
    if (tensor.bytes() > 0) std::memcpy(tensor.raw(), plain.buffer->data(), tensor.bytes());
    return tensor;
  }

  Value Reordered(const Value& value, const Format& to) const {
    if (value.format == to) return value;
    const Kernel kernel = MakeReorder(value.type.dtype, value.type.shape, value.format, to, options_.threads,
                                      options_.policy, options_.device.kind);
    Value result{value.type, to, NewBuffer(value.type, to)};
    Bound bound(kernel, {value.buffer}, {result.buffer}, options_);
    bound.Run(kGarbage);
    if (options_.watch) {
      const std::string who =
          fmt::format("reorder {} {} to {} ({})", value.type.shape, value.format, to, kernel.implementation);
      bound.CheckGuards(who);
      EXPECT_TRUE(PaddingIsZero(result)) << who << " left something in the padding";
    }
    return result;
  }

  KernelSpec SpecOf(int n, const std::vector<Value>& inputs) const {
    const Node& node = *graph_.nodes[n];
    KernelSpec spec;
    spec.device = options_.device.kind;
    spec.op = &node.op();
    spec.attrs = node.attrs();
    spec.node_name = node.name();
    for (size_t i = 0; i < inputs.size(); ++i) {
      spec.inputs.push_back(inputs[i].type);
      spec.input_formats.push_back(inputs[i].format);
      spec.input_is_open.push_back(node.inputs()[i].node->is_variable() && inputs[i].type.batch_axis < 0);
    }
    spec.outputs = types_[n];
    for (const ValueType& type : spec.outputs) {
      const Format format = FormatOf(options_.layout, type.shape);
      spec.output_wishes.push_back(format.is_plain() ? std::nullopt : std::optional(format));
    }
    spec.output_used = used_[n];
    spec.mode = options_.mode;
    spec.batch = batch_;
    spec.threads = options_.threads;
    return spec;
  }

  std::vector<Value> RunNode(int n) {
    const Node& node = *graph_.nodes[n];
    std::vector<Value> inputs;
    for (const Entry& entry : node.inputs()) {
      const Value& value = ValueOf(entry);
      const bool fixed = value.format.kind == Format::Kind::kOpaque || options_.layout == Layout::kPlain;
      inputs.push_back(fixed ? value : Reordered(value, FormatOf(options_.layout, value.type.shape)));
    }
    const KernelSpec spec = SpecOf(n, inputs);
    const Kernel kernel = [&] {
      const TeamScope team(options_.threads);
      return MakeKernel(spec, options_.policy);
    }();
    result_.implementations[node.name()] = kernel.implementation;
    result_.operators[node.name()] = node.op().name;

    std::vector<BufferPtr> in;
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = Reordered(inputs[i], kernel.input_formats[i]);
      in.push_back(inputs[i].buffer);
    }
    std::vector<Value> outputs;
    for (size_t o = 0; o < spec.outputs.size(); ++o) {
      const Format& format = kernel.output_formats[o];
      outputs.push_back({spec.outputs[o], format, used_[n][o] ? NewBuffer(spec.outputs[o], format) : nullptr});
    }
    std::vector<BufferPtr> out;
    for (const Value& value : outputs) out.push_back(value.buffer);

    const std::string who = fmt::format("{} \"{}\" ({})", node.op().name, node.name(), kernel.implementation);
    if (!options_.watch) {
      Bound(kernel, in, out, options_).Run(kGarbage);
      return outputs;
    }
    RunWatched(who, kernel, in, out);
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (out[o]) {
        EXPECT_TRUE(PaddingIsZero(outputs[o])) << who << " left something in the padding of output " << o;
      }
    }
    for (const InplacePair& pair : kernel.inplace) CheckInPlace(who, kernel, pair, in, outputs);
    return outputs;
  }

  // Twice, over different garbage; the same bits must come out, and the inputs stay what they were.
  void RunWatched(const std::string& who, const Kernel& kernel, const std::vector<BufferPtr>& in,
                  const std::vector<BufferPtr>& out) const {
    std::vector<Buffer> before;
    for (const BufferPtr& buffer : in) before.push_back(buffer ? *buffer : Buffer(0));
    Bound bound(kernel, in, out, options_);
    bound.Run(kGarbage);
    std::vector<Buffer> first;
    for (const BufferPtr& buffer : out) {
      first.push_back(buffer ? *buffer : Buffer(0));
      if (buffer) buffer->Fill(kOtherGarbage);
    }
    bound.Run(kOtherGarbage);
    bound.CheckGuards(who);
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i]) {
        EXPECT_TRUE(in[i]->Equals(before[i])) << who << " changed input " << i;
      }
    }
    for (size_t o = 0; o < out.size(); ++o) {
      if (!out[o] || kernel.output_formats[o].kind == Format::Kind::kOpaque) continue;
      EXPECT_TRUE(out[o]->Equals(first[o])) << who << " gave other bits for output " << o << " when run again";
    }
  }

  // `outputs` hold the right results.
  void CheckInPlace(const std::string& who, const Kernel& kernel, const InplacePair& pair,
                    const std::vector<BufferPtr>& in, const std::vector<Value>& outputs) const {
    if (!in[pair.input] || !outputs[pair.output].buffer) return;
    if (kernel.input_formats[pair.input] != kernel.output_formats[pair.output]) return;
    if (in[pair.input]->bytes() != outputs[pair.output].buffer->bytes()) return;
    std::vector<BufferPtr> shared_in = in, out;
    shared_in[pair.input] = std::make_shared<Buffer>(*in[pair.input]);
    for (const Value& value : outputs) {
      out.push_back(value.buffer ? std::make_shared<Buffer>(value.buffer->bytes()) : nullptr);
    }
    out[pair.output] = shared_in[pair.input];
    Bound bound(kernel, shared_in, out, options_);
    bound.Run(kGarbage);
    bound.CheckGuards(who + " in place");
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!out[o] || kernel.output_formats[o].kind == Format::Kind::kOpaque) continue;
      EXPECT_TRUE(out[o]->Equals(*outputs[o].buffer))
          << who << " in place (input " << pair.input << ", output " << pair.output << ") gave another output " << o;
    }
  }

  Graph graph_;
  const HostTensorMap& inputs_;
  const RunOptions& options_;
  std::optional<int64_t> batch_;
  NodeTypes types_;
  std::vector<std::vector<bool>> used_;
  std::vector<std::vector<Value>> values_;
  RunResult result_;
};

Format BlockedChannels(int rank, int block) {
  Format format;
  format.kind = Format::Kind::kStrided;
  format.rank = static_cast<int8_t>(rank);
  for (int i = 0; i < rank; ++i) format.order[i] = static_cast<int8_t>(i);
  format.num_blocks = 1;
  format.block_axis[0] = 1;
  format.block_size[0] = static_cast<int16_t>(block);
  return format;
}

}  // namespace

const char* ToString(Layout layout) {
  switch (layout) {
    case Layout::kPlain: return "plain";
    case Layout::kChannelsLast: return "channels-last";
    case Layout::kBlocked8: return "blocks of 8";
    case Layout::kBlocked16: return "blocks of 16";
  }
  return "";
}

Format FormatOf(Layout layout, const Shape& shape) {
  if (layout == Layout::kPlain || shape.rank() < 3 || shape.rank() > 5) return Format::Plain();
  if (layout == Layout::kChannelsLast) return Format::ChannelsLast(shape.rank());
  return BlockedChannels(shape.rank(), layout == Layout::kBlocked8 ? 8 : 16);
}

RunResult RunGraph(const Symbol& symbol, const HostTensorMap& inputs, const RunOptions& options) {
  return Runner(symbol, inputs, options).Run();
}

}  // namespace bindery
