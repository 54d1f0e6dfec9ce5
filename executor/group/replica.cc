#include "executor/group/replica.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "engine/backend.h"
#include "executor/group/slice_copy.h"

namespace bindery {
namespace {

constexpr int64_t kAlignment = 64;  // of pieces of staging memory

// Where one device's samples go.
struct Loader {
  Device device;
  int index;  // in the group
  SampleRange range;
  StepBlock* block;
  std::vector<InputSlot> data, label;

  // Visits the arrays of a step's input: visit(source, slot).
  template <class Visit>
  void ForEachArray(const StepInput& input, const Visit& visit) const {
    const Batch& batch = *input.shares[index].batch;
    for (size_t i = 0; i < data.size(); ++i) visit(batch.data[i], data[i]);
    if (!input.with_labels) return;
    for (size_t i = 0; i < label.size(); ++i) visit(batch.label[i], label[i]);
  }

  void Cut(const StepInput& input, const HostTensor& source, const InputSlot& slot, void* to) const {
    const SampleRange mine = input.is_cut ? SampleRange{0, range.size()} : range;
    CopySlice(source.dtype(), source.shape(), source.raw(), slot.axis, mine.begin, mine.end, slot.dtype, to);
  }

  int64_t ShareBytes(const HostTensor& source, const InputSlot& slot) const {
    const Shape& shape = source.shape();
    const int64_t elements = slot.axis < 0 ? shape.Elements() : shape.With(slot.axis, range.size()).Elements();
    return elements * SizeOf(slot.dtype);
  }

  // Runs on the device's worker.
  void Load(const StepInput& input, const OpContext& context) const {
    StepBlock here = input.block;
    here.sample_offset = range.begin;
    if (HostAddressable(device)) {
      *block = here;
      ForEachArray(input,
                   [&](const HostTensor& source, const InputSlot& slot) { Cut(input, source, slot, slot.data); });
    } else {
      int64_t bytes = RoundUp(static_cast<int64_t>(sizeof(StepBlock)), kAlignment);
      ForEachArray(input, [&](const HostTensor& source, const InputSlot& slot) {
        bytes += RoundUp(ShareBytes(source, slot), kAlignment);
      });
      std::shared_ptr<Chunk>& staging = input.shares[index].staging;
      if (!staging || staging->bytes() < bytes) staging = DefaultStorage()->AllocateStaging(device, bytes);
      char* at = static_cast<char*>(staging->data());
      std::memcpy(at, &here, sizeof(StepBlock));
      CopyBetween(context.stream, Cpu(), at, device, block, sizeof(StepBlock));
      at += RoundUp(static_cast<int64_t>(sizeof(StepBlock)), kAlignment);
      ForEachArray(input, [&](const HostTensor& source, const InputSlot& slot) {
        const int64_t share = ShareBytes(source, slot);
        Cut(input, source, slot, at);
        CopyBetween(context.stream, Cpu(), at, device, slot.data, share);
        at += RoundUp(share, kAlignment);
      });
    }
    input.shares[index].batch.reset();
  }
};

}  // namespace

Replica::Replica(std::shared_ptr<Engine> engine, std::shared_ptr<ParameterStore> store, int index,
                 std::shared_ptr<Arena> arena)
    : engine_(std::move(engine)), store_(std::move(store)), index_(index), device_(store_->devices()[index]),
      arena_(std::move(arena)), inputs_var_(engine_->NewVar()), input_gradients_var_(engine_->NewVar()),
      step_(DefaultStorage()->Allocate(device_, sizeof(StepBlock))) {}

Replica::~Replica() {
  try {
    WaitIdle();
  } catch (...) {
    // Called from inside an operation, which holds what it needs.
  }
}

void Replica::WaitIdle() const {
  for (const VarPtr& var : {arena_->var(), inputs_var_, input_gradients_var_}) engine_->WaitIdle(var);
}

void Replica::Reserve(std::map<std::string, Buffer>* buffers, const PlanArgument& argument) {
  const int64_t bytes = StorageBytes(argument.format, argument.type.dtype, argument.type.shape);
  const auto found = buffers->find(argument.name);
  if (found != buffers->end() && found->second.bytes >= bytes) return;
  WaitIdle();
  Buffer larger{.chunk = NewZeros(bytes, buffers == &inputs_ ? inputs_var_ : input_gradients_var_), .bytes = bytes};
  (*buffers)[argument.name] = std::move(larger);
  bound_.clear();
  zero_input_gradients_ = nullptr;
  ++addresses_version_;
}

std::shared_ptr<Chunk> Replica::NewZeros(int64_t bytes, const VarPtr& var) const {
  std::shared_ptr<Chunk> chunk = DefaultStorage()->Allocate(device_, bytes);
  if (HostAddressable(device_)) {
    std::memset(chunk->data(), 0, static_cast<size_t>(bytes));  // nobody else knows this memory yet
  } else {
    engine_->Push({.name = "zero",
                   .device = device_,
                   .reads = {},
                   .writes = {},
                   .updates = {var},
                   .run = [chunk, bytes](const OpContext& context) {
                     Backend::Of(chunk->device().kind).flat().Zero(context.stream, chunk->data(), bytes);
                   }});
  }
  return chunk;
}

void* Replica::Address(const std::string& name) const {
  const auto found = inputs_.find(name);
  return found == inputs_.end() ? nullptr : found->second.chunk->data();
}

// What each segment of a program uses: looked up once, since there may be as many segments as layers.
struct Replica::Uses {
  std::vector<VarPtr> parameters;                // blocks of parameters and states that are read
  std::vector<VarPtr> candidates;                // of states that forward moves
  std::vector<VarPtr> written, added;            // of gradients; `added`: read, too
  std::vector<std::pair<void*, int64_t>> zeros;  // gradients that nothing computes
};

Replica::Uses Replica::UsesOf(const BoundProgram& bound) const {
  const Plan& plan = bound.plan();
  Uses uses;
  const auto add = [](const VarPtr& var, std::vector<VarPtr>* vars) {
    if (std::find(vars->begin(), vars->end(), var) == vars->end()) vars->push_back(var);
  };
  const auto parameter = [&](const std::string& name) {
    add(store_->blocks()[store_->Find(name)->block].values[index_].var(), &uses.parameters);
  };
  for (const PlanArgument& a : plan.arguments) {
    if (a.is_parameter) parameter(a.name);
  }
  for (const std::string& name : plan.auxiliary) parameter(name);
  for (const int b : store_->UpdatedBlocks(plan))
    uses.candidates.push_back(store_->blocks()[b].candidates[index_].var());
  for (const PlanGradient& g : plan.gradients) {
    const PlanArgument& a = plan.arguments[g.argument];
    const Tensor array =
        a.is_parameter ? store_->Gradient(*store_->Find(a.name), index_) : InputGradient(bound, a.name);
    add(array.var(), &uses.written);
    if (g.req == GradReq::kAdd) add(array.var(), &uses.added);
    if (g.is_zero && g.req == GradReq::kWrite) {
      uses.zeros.emplace_back(array.address(), StorageBytes(a.format, a.type.dtype, a.type.shape));
    }
  }
  return uses;
}

std::shared_ptr<const BoundProgram> Replica::Bind(const std::shared_ptr<const Program>& program) {
  const Plan& plan = program->plan;
  for (const PlanArgument& a : plan.arguments) {
    if (!a.is_parameter) Reserve(&inputs_, a);
  }
  for (const PlanGradient& g : plan.gradients) {
    if (!plan.arguments[g.argument].is_parameter) Reserve(&input_gradients_, plan.arguments[g.argument]);
  }
  std::erase_if(bound_, [](const auto& bound) { return bound.expired(); });
  for (const auto& known : bound_) {
    if (auto bound = known.lock(); bound->program == program) return bound;
  }
  if (plan.arena_bytes > arena_->committed()) {
    WaitIdle();
    int threads = 1;
    for (const PlanStep& step : plan.steps) threads = std::max(threads, step.threads);
    arena_->Grow(plan.arena_bytes, threads);
  }
  Instance::Addresses addresses{.arena = arena_->base(),
                                .arguments = {},
                                .gradients = {},
                                .auxiliary = {},
                                .step = static_cast<const StepBlock*>(step_->data()),
                                .stream = &engine_->StreamOf(device_)};
  for (const PlanArgument& a : plan.arguments) {
    addresses.arguments.push_back(a.is_parameter ? store_->Value(*store_->Find(a.name), index_).address()
                                                 : Address(a.name));
  }
  for (const PlanGradient& g : plan.gradients) {
    const PlanArgument& a = plan.arguments[g.argument];
    addresses.gradients.push_back(a.is_parameter ? store_->Gradient(*store_->Find(a.name), index_).address()
                                                 : input_gradients_.at(a.name).chunk->data());
  }
  for (const std::string& name : plan.auxiliary)
    addresses.auxiliary.push_back(store_->Value(*store_->Find(name), index_).address());
  for (const int slot : plan.updates)
    addresses.auxiliary[slot] = store_->Candidate(*store_->Find(plan.auxiliary[slot]), index_).address();

  auto bound = std::make_shared<BoundProgram>();
  bound->program = program;
  bound->instance = std::make_shared<const Instance>(program, addresses);
  bound_.push_back(bound);
  return bound;
}

StepParts Replica::SegmentParts(const BoundProgram& bound) const {
  const Plan& plan = bound.plan();
  const Uses uses = UsesOf(bound);
  StepParts parts;
  for (int s = 0; s < static_cast<int>(plan.segments.size()); ++s) {
    const bool forward = plan.segments[s].phase == Phase::kForward;
    Operation part{.name = fmt::format("{} {}", forward ? "forward" : "backward", device_),
                   .device = device_,
                   .reads = {inputs_var_},
                   .writes = {arena_->var()},
                   .updates = {},
                   .run = {}};
    if (s > 0) part.reads.push_back(arena_->var());  // a failed segment fails the next
    const auto append = [](const std::vector<VarPtr>& vars, std::vector<VarPtr>* to) {
      to->insert(to->end(), vars.begin(), vars.end());
    };
    append(uses.parameters, &part.reads);
    append(uses.candidates, &part.reads);
    std::vector<std::pair<void*, int64_t>> zeros;
    if (forward) {
      append(uses.candidates, &part.writes);  // a forward that fails fails them, too
    } else {
      append(uses.added, &part.reads);
      append(uses.written, &part.writes);
      if (s + 1 == static_cast<int>(plan.segments.size())) zeros = uses.zeros;
    }
    part.run = [instance = bound.instance, s, zeros = std::move(zeros),
                &flat = Backend::Of(device_.kind).flat()](const OpContext& context) {
      for (const auto& [address, bytes] : zeros) flat.Zero(context.stream, address, bytes);
      instance->Run(s);
    };
    part.at = [instance = bound.instance] { return instance->At(); };
    parts.push_back(std::move(part));
  }
  return parts;
}

Operation Replica::LoadPart(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels,
                            SampleRange range) const {
  Loader loader{.device = device_,
                .index = index_,
                .range = range,
                .block = static_cast<StepBlock*>(step_->data()),
                .data = {},
                .label = {}};
  const auto fill = [&](const std::vector<DataDesc>& descs, std::vector<InputSlot>* slots) {
    for (const DataDesc& desc : descs) {
      slots->push_back({.dtype = desc.dtype, .axis = desc.BatchAxis(), .data = Address(desc.name)});
    }
  };
  fill(data, &loader.data);
  fill(labels, &loader.label);
  return {
      .name = fmt::format("load {}", device_),
      .device = device_,
      .reads = {},
      .writes = {inputs_var_},
      .updates = {},
      .run = [loader = std::move(loader), step = step_](
                 const OpContext& context) { loader.Load(*static_cast<const StepInput*>(context.payload), context); },
      .lane = Lane::kCopy};
}

Tensor Replica::Input(const BoundProgram& bound, const std::string& name) const {
  for (const PlanArgument& a : bound.plan().arguments) {
    if (a.name != name || a.is_parameter) continue;
    const Buffer& buffer = inputs_.at(name);
    return Tensor(engine_, device_, a.type.dtype, a.type.shape, buffer.chunk->data(), buffer.chunk, inputs_var_);
  }
  Throw("\"{}\" is not an input", name);
}

Tensor Replica::InputGradient(const BoundProgram& bound, const std::string& name) const {
  for (const PlanGradient& g : bound.plan().gradients) {
    if (g.name != name) continue;
    const ValueType& type = bound.plan().arguments[g.argument].type;
    const Buffer& buffer = input_gradients_.at(name);
    return Tensor(engine_, device_, type.dtype, type.shape, buffer.chunk->data(), buffer.chunk, input_gradients_var_);
  }
  Throw("no gradient is asked for input \"{}\"", name);
}

void Replica::ZeroInputGradients() {
  if (input_gradients_.empty()) return;
  if (!zero_input_gradients_) {
    std::vector<Buffer> buffers;
    for (const auto& [name, buffer] : input_gradients_) buffers.push_back(buffer);
    zero_input_gradients_ = engine_->Prepare(
        {.name = "zero input gradients",
         .device = device_,
         .reads = {},
         .writes = {input_gradients_var_},
         .updates = {},
         .run = [buffers = std::move(buffers), &flat = Backend::Of(device_.kind).flat()](const OpContext& context) {
           for (const Buffer& b : buffers) {
             flat.Zero(context.stream, b.chunk->data(), b.bytes);
           }
         }});
  }
  engine_->Push(zero_input_gradients_);
}

void Replica::CheckFresh(const char* what) const {
  if (generation_ == 0) Throw("{}: nothing has run yet; call Forward first", what);
  if (generation_ != arena_->generation()) {
    Throw(
        "{}: another program has used the shared memory of {} since this one ran forward; read results before running "
        "another",
        what, device_);
  }
}

Tensor Replica::Value(const BoundProgram& bound, int value) const {
  const ValueType& type = bound.plan().values[value].type;
  return Tensor(engine_, device_, type.dtype, type.shape, bound.instance->AddressOf(value), arena_, arena_->var());
}

Tensor Replica::CopyOutput(const BoundProgram& bound, int i) const {
  CheckFresh("outputs");
  const Tensor inside = Value(bound, bound.plan().outputs[i].value);
  Tensor copy(engine_, device_, inside.dtype(), inside.shape());
  copy.CopyFrom(inside);
  return copy;
}

}  // namespace bindery
