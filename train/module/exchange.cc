#include "train/module/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/names.h"
#include "engine/backend.h"
#include "engine/kernels/flat.h"
#include "engine/team.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/reformat.h"
#include "kvstore/exchanged_value.h"

namespace bindery {
namespace {

// Elements that are scaled on the side and then added: on a CPU they stay in the first cache, on a device in the last.
constexpr int64_t kCpuElements = 2048, kDeviceElements = int64_t{1} << 20;

// to += factor * from, of host memory, by the calling thread's team.
void AddScaledOnHost(DType dtype, const void* from, void* to, int64_t elements, double factor) {
  const int64_t width = SizeOf(dtype);
  ParallelFor(elements, kCpuElements, kSerialElements, [&](int64_t begin, int64_t end, int) {
    alignas(64) char scaled[kCpuElements * 8];
    for (int64_t i = begin; i < end; i += kCpuElements) {
      const int64_t n = std::min(kCpuElements, end - i);
      flat::Copy(static_cast<const char*>(from) + i * width, scaled, n * width);
      flat::Scale(dtype, scaled, n, factor);
      flat::Add(dtype, scaled, static_cast<char*>(to) + i * width, n);
    }
  });
}

}  // namespace

ParameterExchange::ParameterExchange(ExecutorGroup* group, const ExchangeOptions& options)
    : engine_(group->engine()), threads_(group->threads_per_device()), exchange_(options.exchange),
      own_store_(options.store != nullptr), memory_(MemoryCollectives(engine_, /*shared_out=*/true)) {
  if (own_store_ && exchange_ == Exchange::kFlat) Throw("a store of one's own is for Exchange::kStore");
  if (exchange_ == Exchange::kStore) {
    store_ = own_store_ ? options.store(engine_) : KVStore::Create(options.kvstore, engine_);
    if (!store_) Throw("ModuleOptions::store made no store");
  } else if (options.collectives) {
    try {
      given_ = options.collectives(engine_);
      if (!given_) LogLine(LogLevel::kWarning, "no collectives were given: replicas exchange through memory");
    } catch (const Error& e) {
      LogLine(LogLevel::kWarning, fmt::format("replicas exchange through memory: {}", e.message()));
    }
  }
  for (DataParallelExecutorGroup* stage : group->stages()) {
    for (size_t i = 0; i < stage->store().blocks().size(); ++i) Add(stage, static_cast<int>(i));
  }
  for (size_t i = 0; i < blocks_.size(); ++i) Prepare(&blocks_[i], buffers_[i]);
}

ParameterExchange::~ParameterExchange() {
  std::vector<VarPtr> vars;
  for (const ParameterBuffer& buffer : buffers_) {
    for (const Tensor& values : buffer.values) vars.push_back(values.var());
    if (buffer.gradients.defined()) vars.push_back(buffer.gradients.var());
  }
  try {
    for (const VarPtr& var : vars) engine_->WaitIdle(var);
  } catch (...) {  // called from inside an operation: what others brought stays until all that was pushed has run
    engine_->Push({.name = "let go",
                   .device = Cpu(),
                   .updates = vars,
                   .run = [store = std::shared_ptr<KVStore>(std::move(store_)),
                           given = std::shared_ptr<Collectives>(std::move(given_))](const OpContext&) {}});
  }
}

void ParameterExchange::Add(DataParallelExecutorGroup* stage, int index) {
  const ParameterStore& store = stage->store();
  const ParameterStore::Block& stored = store.blocks()[static_cast<size_t>(index)];
  Check(stored.row_gradients.empty(), "a module's gradients are whole");
  ParameterBuffer& buffer =
      buffers_.emplace_back(ParameterBuffer{.names = store.NamesOf(stored), .values = stored.values});
  Block& block = blocks_.emplace_back(Block{.store = &store, .index = index, .values = EachOnce(stored.values)});
  if (stored.gradients.empty()) return;
  const Tensor& first = stored.gradients[0];
  buffer.gradients = Tensor(engine_, first.device(), first.dtype(), first.shape());
  block.zeroed = engine_->Version(buffer.gradients.var());
}

StepRange ParameterExchange::Collect(Collective what, const std::string& name, const Bucket& bucket) {
  StepParts parts;
  if (given_) {
    try {
      given_->Append(what, name, {bucket}, &parts);
      return StepRange(engine_, std::move(parts));
    } catch (const Error& e) {
      LogLine(LogLevel::kWarning, fmt::format("{}: replicas exchange through memory: {}", name, e.message()));
      given_ = nullptr;
      parts.clear();
    }
  }
  memory_->Append(what, name, {bucket}, &parts);
  return StepRange(engine_, std::move(parts));
}

// `may_fail`: where `from` failed, or the addition does, `to` fails. Otherwise it stays as it is.
PreparedPtr ParameterExchange::PrepareAdd(const char* name, const Tensor& from, const Tensor& to, bool may_fail,
                                          Block* block) const {
  Operation add{.name = name, .device = to.device(), .reads = {from.var()}};
  if (may_fail) add.reads.push_back(to.var());
  (may_fail ? add.writes : add.updates).push_back(to.var());
  if (HostAddressable(to.device())) {
    add.run = [from, to, threads = threads_](const OpContext& context) {
      const TeamScope team(to.elements() > kSerialElements ? threads : 1);
      const double factor = *static_cast<const double*>(context.payload);
      if (factor == 1) return flat::Add(to.dtype(), from.data(), to.data(), to.elements());
      AddScaledOnHost(to.dtype(), from.data(), to.data(), to.elements(), factor);
    };
  } else {
    if (!block->scaled.defined()) {
      const int64_t all = block->store->blocks()[static_cast<size_t>(block->index)].elements;
      block->scaled = Tensor(engine_, to.device(), to.dtype(), {std::min(all, kDeviceElements)});
      block->scaled.Wait();  // for its zeros: from here on nobody else knows it
    }
    add.run = [from, to, scaled = block->scaled,
               &flat = Backend::Of(to.device().kind).flat()](const OpContext& context) {
      const double factor = *static_cast<const double*>(context.payload);
      const int64_t width = SizeOf(to.dtype()), n = to.elements();
      if (factor == 1) return flat.Add(context.stream, to.dtype(), from.address(), to.address(), n);
      for (int64_t i = 0; i < n; i += scaled.elements()) {
        const int64_t count = std::min(scaled.elements(), n - i);
        flat.Copy(context.stream, static_cast<const char*>(from.address()) + i * width, scaled.address(),
                  count * width);
        flat.Scale(context.stream, to.dtype(), scaled.address(), count, factor);
        flat.Add(context.stream, to.dtype(), scaled.address(), static_cast<char*>(to.address()) + i * width, count);
      }
    };
  }
  return engine_->Prepare(std::move(add));
}

void ParameterExchange::Prepare(Block* block, const ParameterBuffer& buffer) {
  const ParameterStore& store = *block->store;
  const ParameterStore::Block& stored = store.blocks()[static_cast<size_t>(block->index)];
  const size_t replicas = buffer.values.size();
  if (block->values.size() > 1 && exchange_ == Exchange::kFlat) {
    block->spread =
        Collect(Collective::kBroadcast, "values of the first replica, of " + NamesInShort(buffer.names),
                {.sources = {block->values[0]}, .replicas = {block->values.begin() + 1, block->values.end()}});
  }
  block->equal = VersionsOf(*block);
  if (!buffer.gradients.defined()) return;
  if (exchange_ == Exchange::kStore && (replicas > 1 || own_store_)) {
    PrepareStore(block, buffer);
  } else {
    const bool is_one = replicas == 1;
    const Tensor& first = stored.gradients[0];
    const Tensor sum = is_one ? first : Tensor(engine_, first.device(), first.dtype(), first.shape());
    if (!is_one) {
      block->sum_up = Collect(Collective::kAllReduceSum, "sum of gradients of " + NamesInShort(buffer.names),
                              {.sources = stored.gradients, .replicas = {sum}});
    }
    block->add = PrepareAdd("add to gradients", sum, buffer.gradients, /*may_fail=*/true, block);
  }
  block->update = PrepareAdd("update values", buffer.gradients, buffer.values[0], /*may_fail=*/false, block);
}

void ParameterExchange::PrepareStore(Block* block, const ParameterBuffer& buffer) {
  const ParameterStore::Block& stored = block->store->blocks()[static_cast<size_t>(block->index)];
  for (const int p : stored.parameters) {
    const StoredParameter& parameter = block->store->parameters()[static_cast<size_t>(p)];
    const int64_t end = parameter.offset + parameter.elements;
    std::vector<Tensor> gradients;
    for (const Tensor& gradient : stored.gradients) gradients.push_back(gradient.Slice(parameter.offset, end));
    block->exchanged.push_back(std::make_shared<const ExchangedValue>(
        store_.get(), parameter.name, std::move(gradients), buffer.gradients.device(), -p));
    block->add_exchanged.push_back(PrepareAdd("add to gradients", block->exchanged.back()->sum(),
                                              buffer.gradients.Slice(parameter.offset, end), /*may_fail=*/true, block));
  }
}

void ParameterExchange::Accumulate(double scale) {
  const auto factor = std::make_shared<const double>(scale);
  for (const Block& block : blocks_) {
    for (size_t i = 0; i < block.exchanged.size(); ++i) {
      block.exchanged[i]->Exchange();
      engine_->Push(block.add_exchanged[i], factor);
    }
    if (!block.add) continue;
    block.sum_up.Push();
    engine_->Push(block.add, factor);
  }
  added_ = true;
}

void ParameterExchange::ZeroGradients() {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Tensor& gradients = buffers_[i].gradients;
    if (!gradients.defined()) continue;
    gradients.Fill(0);
    blocks_[i].zeroed = engine_->Version(gradients.var());
  }
  added_ = false;
}

bool ParameterExchange::any_gradients() const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Tensor& gradients = buffers_[i].gradients;
    if (!gradients.defined()) continue;
    const std::optional<uint64_t> now = engine_->Version(gradients.var());
    if (now ? now != blocks_[i].zeroed : added_) return true;
  }
  return false;
}

void ParameterExchange::Update(double rate) {
  const auto factor = std::make_shared<const double>(-rate);
  for (const Block& block : blocks_) {
    if (block.update) engine_->Push(block.update, factor);
  }
}

ParameterExchange::Versions ParameterExchange::VersionsOf(const Block& block) const {
  Versions versions;
  for (const Tensor& values : block.values) versions.push_back(engine_->Version(values.var()));
  return versions;
}

bool ParameterExchange::NeedsSync() const {
  return std::ranges::any_of(
      blocks_, [this](const Block& block) { return block.values.size() > 1 && VersionsOf(block) != block.equal; });
}

int ParameterExchange::Sync() {
  int spread = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    const ParameterBuffer& buffer = buffers_[i];
    if (block.values.size() == 1) continue;
    const Versions now = VersionsOf(block);
    if (now == block.equal || !now[0]) continue;
    if (exchange_ == Exchange::kFlat) {
      block.spread.Push();
    } else {
      for (const std::string& name : buffer.names) {
        const StoredParameter& p = *Find(name)->stored;
        const auto of = [&p](const Tensor& values) { return values.Slice(p.offset, p.offset + p.elements); };
        for (size_t v = 1; v < block.values.size(); ++v) of(block.values[v]).CopyFrom(of(block.values[0]));
      }
    }
    block.equal = VersionsOf(block);
    ++spread;
  }
  return spread;
}

void ParameterExchange::SetEqual() {
  for (Block& block : blocks_) block.equal = VersionsOf(block);
}

std::optional<ParameterExchange::Place> ParameterExchange::Find(const std::string& name) const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const StoredParameter* stored = blocks_[i].store->Find(name);
    if (stored && stored->block == blocks_[i].index) return Place{static_cast<int>(i), stored};
  }
  return std::nullopt;
}

Tensor ParameterExchange::ValueOf(const Place& place, size_t replica) const {
  const StoredParameter& p = *place.stored;
  return buffers_[static_cast<size_t>(place.buffer)].values[replica].Slice(p.offset, p.offset + p.elements);
}

Tensor ParameterExchange::GradientOf(const Place& place) const {
  const StoredParameter& p = *place.stored;
  const Tensor& gradients = buffers_[static_cast<size_t>(place.buffer)].gradients;
  return gradients.defined() ? gradients.Slice(p.offset, p.offset + p.elements) : Tensor();
}

HostTensor ParameterExchange::Gradient(const std::string& name) const {
  const std::optional<Place> place = Find(name);
  const Tensor gradient = place ? GradientOf(*place) : Tensor();
  if (!gradient.defined()) Throw("\"{}\" has no gradient", name);
  const StoredParameter& p = *place->stored;
  return FromStorage(p.dtype, p.shape, p.format, gradient.ToHost().raw());
}

void ParameterExchange::SetGradient(const std::string& name, const HostTensor& value) {
  const std::optional<Place> place = Find(name);
  const Tensor gradient = place ? GradientOf(*place) : Tensor();
  if (!gradient.defined()) Throw("\"{}\" has no gradient", name);
  const StoredParameter& p = *place->stored;
  if (value.shape() != p.shape)
    Throw<ShapeError>("gradient of \"{}\": expected {}, got {}", name, p.shape, value.shape());
  HostTensor stored(p.dtype, {p.elements});
  ToStorage(value.Cast(p.dtype), p.format, stored.raw());
  gradient.CopyFrom(stored);
  added_ = true;
}

}  // namespace bindery
