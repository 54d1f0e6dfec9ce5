#include "executor/group/device_executor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "engine/backend.h"

namespace bindery {

DeviceExecutor::DeviceExecutor(std::shared_ptr<Engine> engine, std::shared_ptr<ParameterStore> store, int index,
                               std::shared_ptr<Arena> arena)
    : engine_(std::move(engine)), store_(std::move(store)), index_(index), device_(store_->devices()[index]),
      arena_(std::move(arena)), inputs_{.var = engine_->NewVar()}, states_{.var = engine_->NewVar()},
      input_gradients_{.var = engine_->NewVar()}, landed_{engine_->NewVar(), engine_->NewVar()},
      block_(engine_->NewVar()),
      step_(DefaultStorage()->Allocate(device_, sizeof(StepBlock))), row_gradients_{.var = engine_->NewVar()} {}

DeviceExecutor::~DeviceExecutor() {
  try {
    WaitIdle();
  } catch (...) {
    // Called from inside an operation. Bound programs know addresses, so the memory stays until they have run.
    engine_->Push(
        {.name = "let go",
         .device = device_,
         .updates = Variables(),
         .run = [arena = arena_, store = store_, step = step_, landing = std::to_array(landing_),
                 arrays = std::array{inputs_, states_, input_gradients_, row_gradients_}](const OpContext&) {}});
  }
}

std::vector<VarPtr> DeviceExecutor::Variables() const {
  std::vector<VarPtr> variables = {arena_->var(), landed_[0],  landed_[1],          block_,
                                   inputs_.var,   states_.var, input_gradients_.var};
  if (const VarPtr& derived = store_->derived(index_)->var) variables.push_back(derived);
  for (const ParameterStore::Block& block : store_->blocks()) {
    if (!block.row_gradients.empty()) variables.push_back(block.row_gradients[index_]->var);
  }
  return variables;
}

void DeviceExecutor::WaitIdle() const {
  for (const VarPtr& var : Variables()) engine_->WaitIdle(var);
}

void DeviceExecutor::Reserve(Arrays* arrays, int argument, int64_t bytes) {
  std::vector<Buffer>& buffers = arrays->buffers;
  if (buffers.size() <= static_cast<size_t>(argument)) buffers.resize(static_cast<size_t>(argument) + 1);
  if (buffers[argument].chunk && buffers[argument].bytes >= bytes) return;
  WaitIdle();
  const Buffer before = std::exchange(buffers[argument], {.chunk = NewZeros(bytes, arrays->var), .bytes = bytes});
  if (arrays == &states_ && before.chunk) {
    engine_->Push({.name = "move state",
                   .device = device_,
                   .updates = {arrays->var},
                   .run = [before, to = buffers[argument].chunk,
                           &flat = Backend::Of(device_.kind).flat()](const OpContext& context) {
                     flat.Copy(context.stream, before.chunk->data(), to->data(), before.bytes);
                   }});
  }
  bound_.clear();
  zero_input_gradients_ = nullptr;
  ++addresses_version_;
}

std::shared_ptr<Chunk> DeviceExecutor::NewZeros(int64_t bytes, const VarPtr& var) const {
  std::shared_ptr<Chunk> chunk = DefaultStorage()->Allocate(device_, bytes);
  if (HostAddressable(device_)) {
    std::memset(chunk->data(), 0, static_cast<size_t>(bytes));  // nobody else knows this memory yet
  } else {
    engine_->Push(
        {.name = "zero", .device = device_, .updates = {var}, .run = [chunk, bytes](const OpContext& context) {
           Backend::Of(chunk->device().kind).flat().Zero(context.stream, chunk->data(), bytes);
         }});
  }
  return chunk;
}

std::shared_ptr<const BoundProgram> DeviceExecutor::Bind(const std::shared_ptr<const Program>& program) {
  std::erase_if(bound_, [](const auto& bound) { return bound.expired(); });
  for (const auto& known : bound_) {
    if (auto bound = known.lock(); bound->program == program) return bound;
  }
  const Plan& plan = program->plan;
  for (size_t a = 0; a < plan.arguments.size(); ++a) {
    const PlanArgument& argument = plan.arguments[a];
    if (!argument.is_parameter()) Reserve(&HomeOf(argument), static_cast<int>(a), argument.bytes());
  }
  for (const PlanGradient& g : plan.gradients) {
    const PlanArgument& a = plan.ArgumentOf(g);
    if (!a.is_parameter()) Reserve(&input_gradients_, g.argument, a.bytes());
    if (g.part == GradientPart::kWhole) continue;
    const int64_t bytes = plan.GradientBytes(static_cast<int>(&g - plan.gradients.data()));
    Reserve(&row_gradients_, RowArrayOf(g), std::max<int64_t>(bytes, 1));
  }
  if (plan.arena_bytes > arena_->committed()) {
    WaitIdle();
    int threads = 1;
    for (const PlanCall& call : plan.calls) threads = std::max(threads, call.threads);
    arena_->Grow(plan.arena_bytes, threads);
  }

  auto bound = std::make_shared<BoundProgram>();
  bound->program = program;
  const auto add = [](const VarPtr& var, std::vector<VarPtr>* vars) {
    if (std::ranges::find(*vars, var) == vars->end()) vars->push_back(var);
  };
  Instance::Addresses addresses{.arena = arena_->base(), .step = block(), .stream = &engine_->StreamOf(device_)};
  std::vector<const StoredParameter*> stored;  // by argument; nullptr: an input
  std::vector<VarPtr> variables;               // of parameters, by argument
  for (const PlanArgument& a : plan.arguments) {
    stored.push_back(a.is_parameter() ? store_->Find(a.name) : nullptr);
    variables.emplace_back();
    if (!stored.back()) {
      addresses.arguments.push_back(HomeOf(a).buffers[stored.size() - 1].chunk->data());
      continue;
    }
    const Tensor value = store_->Value(*stored.back(), index_);
    addresses.arguments.push_back(value.address());
    add(value.var(), &bound->parameters);
    variables.back() = value.var();
  }
  if (!plan.derived.empty()) {
    std::vector<VarPtr> states;
    for (const PlanState& s : plan.auxiliary) states.push_back(store_->Value(*store_->Find(s.name), index_).var());
    bound->derivation =
        std::make_unique<Derivation>(engine_, device_, index_, store_->derived(index_), program, variables, states);
    addresses.derived = bound->derivation->Addresses();
  }
  bound->gradient_calls = plan.GradientCalls();
  for (const PlanGradient& g : plan.gradients) {
    const StoredParameter* parameter = stored[g.argument];
    if (const auto by_rows = parameter ? store_->Rows(*parameter, index_) : nullptr) {
      addresses.gradients.push_back(AddRows(by_rows, static_cast<int>(bound->gradients.size()), bound.get()));
      bound->gradients.push_back(by_rows->var);
      continue;
    }
    const Tensor array = parameter ? store_->Gradient(*parameter, index_) : InputGradient(*bound, g.argument);
    addresses.gradients.push_back(array.address());
    bound->gradients.push_back(array.var());
    if (g.is_zero && g.req == GradReq::kWrite) bound->zeros.emplace_back(array.address(), plan.ArgumentOf(g).bytes());
  }
  for (const PlanState& state : plan.auxiliary) {
    const Tensor value = store_->Value(*store_->Find(state.name), index_);
    addresses.auxiliary.push_back(value.address());
    add(value.var(), &bound->parameters);
  }
  for (const int slot : plan.updates) {
    const Tensor candidate = store_->Candidate(*store_->Find(plan.auxiliary[slot].name), index_);
    addresses.auxiliary[slot] = candidate.address();
    add(candidate.var(), &bound->candidates);
  }
  bound->instance = std::make_shared<const Instance>(program, addresses);
  if (bound->derivation) bound->derivation->SetInstance(bound->instance, arena_->var());
  bound_.push_back(bound);
  return bound;
}

int DeviceExecutor::RowArrayOf(const PlanGradient& g) { return 2 * g.argument + (g.part == GradientPart::kRows); }

// Numbers come before their rows (Plan::gradients). A whole one is one that nothing computes (ParameterStore::Adopt).
void* DeviceExecutor::AddRows(const std::shared_ptr<RowGradient>& of, int gradient, BoundProgram* bound) const {
  const Plan& plan = bound->plan();
  const PlanGradient& g = plan.gradients[gradient];
  if (g.part == GradientPart::kWhole) {
    if (g.req == GradReq::kWrite) bound->row_gradients.push_back({.gradient = of, .numbers = gradient});
    return nullptr;
  }
  const std::shared_ptr<Chunk>& chunk = row_gradients_.buffers[RowArrayOf(g)].chunk;
  if (g.part == GradientPart::kRowNumbers) {
    const int64_t count = plan.GradientBytes(gradient) / static_cast<int64_t>(sizeof(int64_t));
    bound->row_gradients.push_back({.gradient = of, .left = {.numbers = chunk, .count = count}, .numbers = gradient});
  } else {
    bound->row_gradients.back().left.rows = chunk;
    bound->row_gradients.back().rows = gradient;
  }
  return chunk->data();
}

std::vector<StepParts> DeviceExecutor::SegmentParts(const BoundProgram& bound) const {
  const Plan& plan = bound.plan();
  std::vector<int> cuts;  // the calls with which buckets are finished
  if (store_->bucket_bytes() > 0) {
    std::map<VarPtr, int> last;
    for (size_t g = 0; g < bound.gradients.size(); ++g) {
      if (!plan.ArgumentOf(plan.gradients[g]).is_parameter()) continue;
      int& call = last.try_emplace(bound.gradients[g], -1).first->second;
      call = std::max(call, bound.gradient_calls[g]);
    }
    for (const auto& [var, call] : last) cuts.push_back(call);
    std::ranges::sort(cuts);
  }
  std::vector<StepParts> segments;
  for (int s = 0; s < static_cast<int>(plan.segments.size()); ++s) {
    StepParts& parts = segments.emplace_back();
    int begin = plan.segments[s].begin;
    const int end = plan.segments[s].end;
    for (const int call : cuts) {
      if (call < begin || call + 1 >= end) continue;
      parts.push_back(PartOf(bound, s, begin, call + 1));
      begin = call + 1;
    }
    parts.push_back(PartOf(bound, s, begin, end));
  }
  return segments;
}

Operation DeviceExecutor::PartOf(const BoundProgram& bound, int segment, int begin, int end) const {
  const Plan& plan = bound.plan();
  const bool forward = plan.segments[segment].phase == Phase::kForward;
  Operation part{.name = fmt::format("{} {}", forward ? "forward" : "backward", device_),
                 .device = device_,
                 .reads = {inputs_.var, states_.var, block_},
                 .writes = {arena_->var()}};
  // What failed before fails it.
  if (segment > 0 || begin > plan.segments[segment].begin) part.reads.push_back(arena_->var());
  const auto append = [](const std::vector<VarPtr>& vars, std::vector<VarPtr>* to) {
    to->insert(to->end(), vars.begin(), vars.end());
  };
  append(bound.parameters, &part.reads);
  append(bound.candidates, &part.reads);
  if (bound.derivation && bound.derivation->var()) part.reads.push_back(bound.derivation->var());
  std::vector<std::pair<void*, int64_t>> zeros;
  std::vector<BoundProgram::Rows> rows;  // that are there, or change, when it is over
  if (forward) {
    append(bound.candidates, &part.writes);  // a forward that fails fails them, too
  } else {
    // What nothing computes belongs to the first part of backward.
    const bool first =
        begin == plan.segments[segment].begin && (segment == 0 || plan.segments[segment - 1].phase == Phase::kForward);
    if (first) zeros = bound.zeros;
    for (size_t g = 0; g < bound.gradients.size(); ++g) {
      const int call = bound.gradient_calls[g];
      if (call < 0 ? !first : call < begin || call >= end) continue;
      part.writes.push_back(bound.gradients[g]);
      if (plan.gradients[g].req == GradReq::kAdd) part.reads.push_back(bound.gradients[g]);
      const auto own = std::ranges::find_if(
          bound.row_gradients, [g = static_cast<int>(g)](const auto& r) { return r.numbers == g || r.rows == g; });
      if (own != bound.row_gradients.end()) rows.push_back(*own);
    }
    for (int call = begin; call < end; ++call) {  // gradients that are there already
      for (const int v : plan.calls[call].inputs) {
        if (v < 0 || plan.values[v].place != Place::kGradient) continue;
        const int g = plan.values[v].slot;
        if (bound.gradient_calls[g] < begin) part.reads.push_back(bound.gradients[g]);
      }
    }
  }
  part.run = [instance = bound.instance, begin, end, zeros = std::move(zeros), rows = std::move(rows),
              &flat = Backend::Of(device_.kind).flat()](const OpContext& context) {
    for (const auto& [address, bytes] : zeros) flat.Zero(context.stream, address, bytes);
    instance->RunCalls(begin, end);
    for (const BoundProgram::Rows& r : rows) r.gradient->now = r.left;
  };
  part.at = [instance = bound.instance] { return instance->At(); };
  return part;
}

StepParts DeviceExecutor::LoadParts(const BoundProgram& bound, SampleRange range, int turn) {
  return LoadParts(bound.plan().arguments, range, {inputs_.var, block_}, turn);
}

Tensor DeviceExecutor::Rates() const {
  char* const address = static_cast<char*>(step_->data()) + offsetof(StepBlock, rates);
  return Tensor(engine_, device_, DType::kUInt8, {sizeof(StepRates)}, address, step_, block_);
}

StepParts DeviceExecutor::LoadParts(const std::vector<PlanArgument>& arguments, SampleRange range,
                                    const std::vector<VarPtr>& written, int turn) {
  std::vector<InputSlot> data, labels;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const PlanArgument& a = arguments[i];
    if (a.place < 0 || (a.role != Role::kData && a.role != Role::kLabel)) continue;
    std::vector<InputSlot>& slots = a.role == Role::kData ? data : labels;
    if (slots.size() <= static_cast<size_t>(a.place)) slots.resize(static_cast<size_t>(a.place) + 1);
    slots[a.place] = {
        .dtype = a.type.dtype, .axis = a.type.batch_axis, .data = inputs_.buffers[i].chunk->data(), .bytes = a.bytes()};
  }
  Loader loader{.device = device_, .index = index_, .range = range, .block = step_, .num_data = data.size()};
  for (const InputSlot& slot : data) loader.AddSlot(slot);
  for (const InputSlot& slot : labels) loader.AddSlot(slot);
  if (!HostAddressable(device_)) {
    std::shared_ptr<Chunk>& landing = landing_[turn];
    if (!landing || landing->bytes() < loader.LandingBytes()) {
      landing = DefaultStorage()->Allocate(device_, loader.LandingBytes());
    }
    loader.landing = landing;
  }
  return loader.Parts(landed_[turn], written);
}

Tensor DeviceExecutor::ArrayOf(const Arrays& arrays, const BoundProgram& bound, int argument) const {
  const PlanArgument& a = bound.plan().arguments[argument];
  if (arrays.buffers.size() <= static_cast<size_t>(argument) || !arrays.buffers[argument].chunk) {
    Throw("{} for \"{}\"", &arrays == &input_gradients_ ? "no gradient is asked" : "there is no array", a.name);
  }
  const std::shared_ptr<Chunk>& chunk = arrays.buffers[argument].chunk;
  return Tensor(engine_, device_, a.type.dtype, a.type.shape, chunk->data(), chunk, arrays.var);
}

Tensor DeviceExecutor::Input(const BoundProgram& bound, int argument) const {
  return ArrayOf(bound.plan().arguments[argument].role == Role::kState ? states_ : inputs_, bound, argument);
}

Tensor DeviceExecutor::InputGradient(const BoundProgram& bound, int argument) const {
  return ArrayOf(input_gradients_, bound, argument);
}

RowTensors DeviceExecutor::RowGradientOf(const BoundProgram& bound, const std::string& name) const {
  const auto argument_of = [&](const BoundProgram::Rows& r) -> const PlanArgument& {
    return bound.plan().ArgumentOf(bound.plan().gradients[r.numbers]);
  };
  const auto own =
      std::ranges::find_if(bound.row_gradients, [&](const auto& r) { return argument_of(r).name == name; });
  if (own == bound.row_gradients.end()) Throw("\"{}\" has no gradient that is kept by rows", name);
  const auto array = [&](const std::shared_ptr<Chunk>& chunk, DType dtype, const Shape& shape) {
    if (!chunk) return Tensor(engine_, device_, dtype, shape);
    return Tensor(engine_, device_, dtype, shape, chunk->data(), chunk, own->gradient->var);
  };
  const auto& [numbers, rows, count] = own->left;
  const ValueType& table = argument_of(*own).type;
  return {array(numbers, DType::kInt64, {count}), array(rows, table.dtype, table.shape.With(0, count))};
}

void DeviceExecutor::ZeroInputGradients() {
  if (input_gradients_.buffers.empty()) return;
  if (!zero_input_gradients_) {
    std::vector<Buffer> buffers = input_gradients_.buffers;
    std::erase_if(buffers, [](const Buffer& b) { return !b.chunk; });
    zero_input_gradients_ = engine_->Prepare(
        {.name = "zero input gradients",
         .device = device_,
         .writes = {input_gradients_.var},
         .run = [buffers = std::move(buffers), &flat = Backend::Of(device_.kind).flat()](const OpContext& context) {
           for (const Buffer& b : buffers) {
             flat.Zero(context.stream, b.chunk->data(), b.bytes);
           }
         }});
  }
  engine_->Push(zero_input_gradients_);
}

void DeviceExecutor::CheckFresh(const char* what) const {
  if (generation_ == 0) Throw("{}: nothing has run yet; call Forward first", what);
  if (generation_ != arena_->generation()) {
    Throw(
        "{}: another program has used the shared memory of {} since this one ran forward; read results before running "
        "another",
        what, device_);
  }
}

Tensor DeviceExecutor::Value(const BoundProgram& bound, int value) const {
  const ValueType& type = bound.plan().values[value].type;
  return Tensor(engine_, device_, type.dtype, type.shape, bound.instance->AddressOf(value), arena_, arena_->var());
}

Tensor DeviceExecutor::CopyOutput(const BoundProgram& bound, int i) const {
  CheckFresh("outputs");
  const Tensor inside = Value(bound, bound.plan().outputs[i].value);
  Tensor copy(engine_, device_, inside.dtype(), inside.shape());
  copy.CopyFrom(inside);
  return copy;
}

}  // namespace bindery
