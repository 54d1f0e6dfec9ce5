// Updater, of several processes. Each sums and updates ranges of the elements of its own (Processes::OwnRanges), in the
// host's memory, with the optimizer's state of these. A step's parts, in order, on every process:
//
//   sum       of the gradients over its devices, if it has several, and then over the processes, to each its ranges.
//             Each says before whether its gradients are there: the step goes on everywhere or nowhere
//   look      are the sums finite? Each notes what it finds
//   norms     where the optimizer goes by them: sums of squares, added up in the order of the processes; first those of
//             gradients, to be clipped by, then those of weights and of their directions (UpdateRule::measure)
//   update    to arrays of its own: new values, and the states' other slot
//   gather    what each has noted, which fails the step on all if it is not good, and then all new values
//   spread    which become the parameters, once in each memory of its devices
//
// What fails before the values are gathered leaves everything as it was, on all processes: states are in the slot that
// holds until the step is committed.
#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/backend.h"
#include "engine/collective.h"
#include "engine/fetch.h"
#include "engine/kernels/flat.h"
#include "train/updater/host_range.h"
#include "train/updater/rows.h"

namespace bindery {
namespace {

using Words = std::span<const ProcessExchange::Word>;

}  // namespace

// Appends those parts.
class Updater::InProcesses {
 public:
  InProcesses(Updater* updater, const std::vector<VarPtr>& gates)
      : updater_(*updater), engine_(updater->group_->engine()), home_(updater->Home()),
        exchange_(engine_, updater->processes_), gates_(gates), together_({updater->committed_}) {
    for (BlockState& block : updater_.blocks_) MakeRoom(&block);
    AppendSums();
    // Those of the step before are updated behind its update.
    gates_.push_back(
        updater_.AppendRates({together_.back()}, {StoredBlock(updater_.blocks_[0]).values[0].var()}, &parts_));
    ListRanges();
    RangeLooks looks = {On(&Updater::LookAtGradients)};
    if (updater_.optimizer_->options().clip_norm > 0) {
      AppendWork(std::exchange(looks, {})[0], {});
      AppendNorms("norms of gradients", [&updater = updater_](Processes* processes, Words words) {
        updater.CheckStatuses(words);
        updater.ShareSquares(processes);
      });
    }
    if (updater_.optimizer_->measure()) {
      AppendWork(On(&Updater::Measure), std::exchange(looks, {}));
      AppendNorms("norms of parameters", [&updater = updater_](Processes* processes, Words words) {
        updater.CheckStatuses(words);
        updater.ShareMeasures(processes);
      });
    }
    AppendWork(On(&Updater::UpdateRange), std::move(looks));
    AppendGather();
  }
  StepParts Take() { return std::move(parts_); }

 private:
  // This process's ranges: what it works on.
  struct Own {
    size_t block = 0, range = 0;  // of its states
    Tensor weights = {};          // as the host has them
  };

  void MakeRoom(BlockState* block) const;
  void AppendSums();
  void ListRanges();
  RangeFunction On(void (Updater::*function)(const Range&)) const;
  void AppendWork(RangeFunction function, RangeLooks looks);
  void AppendNorms(const char* name, std::function<void(Processes*, Words)> run);
  void AppendGather();
  // What becomes of the values of all, and what each says of its own. A tensor without elements would never be written
  // again once an exchange has failed: no work is done on it.
  ProcessExchange::Options Exchange(const char* name) const {
    ProcessExchange::Options options{.name = name, .device = home_, .together = together_};
    for (const BlockState& block : updater_.blocks_) {
      if (block.own_values.elements() > 0) options.values.push_back(block.own_values);
    }
    options.say = [shared = updater_.shared_](ProcessExchange::Word* word) { word->status = shared->status; };
    return options;
  }
  void Append(ProcessExchange::Options options) {
    together_.push_back(options.results[0].var());
    updater_.outcome_.push_back(exchange_.Append(std::move(options), &parts_));
    updater_.outcome_.push_back(together_.back());
  }

  Updater& updater_;
  const std::shared_ptr<Engine> engine_;
  const Device home_;
  const ProcessExchange exchange_;
  std::vector<VarPtr> gates_;     // of work
  std::vector<VarPtr> together_;  // what fails on all or on none
  std::vector<Own> own_;
  std::vector<Bucket> buckets_;  // by own_
  StepParts parts_;
};

void Updater::InProcesses::MakeRoom(BlockState* block) const {
  const ParameterStore::Block& stored = StoredBlock(*block);
  if (block->by_rows) {
    Throw(
        "parameter \"{}\": its gradient is kept by rows, but processes sum whole gradients: bind without "
        "sparse_gradients",
        block->pieces[0].name);
  }
  if (block->dtype != DType::kFloat32 && block->dtype != DType::kFloat64) {
    Throw("parameter \"{}\" is {}: processes sum float32 and float64", block->pieces[0].name, block->dtype);
  }
  std::vector<std::string>& names = updater_.verdict_->names;
  block->first_place = std::ssize(names);
  for (const Piece& piece : block->pieces) names.push_back(piece.name);
  const auto room = [&](int64_t elements) { return Tensor(engine_, home_, block->dtype, Shape{elements}); };
  const std::vector<Processes::Range> ranges = updater_.processes_->OwnRanges(block->dtype, stored.elements);
  int64_t own = 0;
  for (const auto& [begin, end] : ranges) own += end - begin;
  block->sum = room(stored.elements);
  block->own_sum = room(own);
  block->own_values = room(own);
  for (std::vector<Tensor>& slot : block->own_states) slot = updater_.NewStates(home_, block->dtype, own);
  int64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    StateRange& range = block->states.emplace_back(StateRange{.begin = begin, .end = end});
    for (size_t slot : {0, 1}) {
      for (const Tensor& state : block->own_states[slot]) {
        range.slots[slot].push_back(state.Slice(at, at + end - begin));
      }
    }
    at += end - begin;
  }
}

void Updater::InProcesses::AppendSums() {
  std::vector<Bucket> buckets;
  std::vector<Processes::Shared> values;
  ProcessExchange::Options options{.name = "sum over processes", .device = home_, .together = together_};
  for (const BlockState& block : updater_.blocks_) {
    const std::vector<Tensor>& gradients = StoredBlock(block).gradients;
    const bool alone = gradients.size() == 1 && HostAddressable(gradients[0].device());
    if (!alone) buckets.push_back({.sources = gradients, .replicas = {block.sum}});
    const Tensor& from = options.values.emplace_back(alone ? gradients[0] : block.sum);
    options.results.push_back(block.own_sum);
    values.push_back({block.dtype, from.data(), block.own_sum.data(), from.elements()});
  }
  if (!buckets.empty()) {
    MemoryCollectives(engine_, updater_.kvstore_->type() == KVStoreType::kDevice)
        ->Append(Collective::kAllReduceSum, "sum over devices", std::move(buckets), &parts_);
  }
  std::ranges::copy_if(gates_, std::back_inserter(options.own),
                       [&](const VarPtr& gate) { return gate != updater_.committed_; });
  updater_.shared_->means = !updater_.divide_by_samples_;
  updater_.shared_->divides = !updater_.optimizer_->options().rescale_gradient;
  options.run = [shared = updater_.shared_, values = std::move(values)](Processes* processes, Words words) {
    shared->status = {};
    processes->ReduceScatterSum(values, shared->Hear(words));
  };
  Append(std::move(options));
}

void Updater::InProcesses::ListRanges() {
  for (size_t b = 0; b < updater_.blocks_.size(); ++b) {
    const BlockState& block = updater_.blocks_[b];
    const Tensor& values = StoredBlock(block).values[0];
    gates_.push_back(values.var());
    int64_t at = 0;
    for (size_t r = 0; r < block.states.size(); ++r) {
      const int64_t begin = block.states[r].begin, end = block.states[r].end, next = at + end - begin;
      own_.push_back({b, r, values.Slice(begin, end)});
      buckets_.push_back({.sources = {block.own_sum.Slice(at, next)}, .replicas = {block.own_values.Slice(at, next)}});
      at = next;
    }
  }
  std::vector<Tensor> weights;
  for (const Own& own : own_) weights.push_back(own.weights);
  if (!weights.empty()) weights = AppendFetch(engine_, "own parameters", weights, home_, &parts_);
  for (size_t i = 0; i < own_.size(); ++i) {
    own_[i].weights = weights[i];
    gates_.push_back(weights[i].var());
  }
}

RangeFunction Updater::InProcesses::On(void (Updater::*function)(const Range&)) const {
  const auto states = static_cast<size_t>(updater_.optimizer_->state_count());
  return [&updater = updater_, own = own_, function, states](int bucket, int64_t begin, int64_t end,
                                                             std::span<const void* const> sources,
                                                             std::span<void* const> replicas) {
    const Own& mine = own[static_cast<size_t>(bucket)];
    const BlockState& block = updater.blocks_[mine.block];
    const StateRange& range = block.states[mine.range];
    const auto slot = static_cast<size_t>(updater.verdict_->committed % 2);
    (updater.*function)({.bucket = static_cast<int>(mine.block),
                         .block = block,
                         .begin = range.begin + begin,
                         .end = range.begin + end,
                         .gradients = sources,
                         .replicas = replicas,
                         .optimizer_states = states,
                         .states = range,
                         .slot = slot,
                         .new_slot = 1 - slot,
                         .weights = static_cast<const char*>(mine.weights.data()) + begin * SizeOf(block.dtype)});
  };
}

void Updater::InProcesses::AppendWork(RangeFunction function, RangeLooks looks) {
  if (buckets_.empty()) return;  // fewer elements than processes
  std::vector<Device> workers;
  for (const Device& device : updater_.group_->devices()) {
    if (HostAddressable(device)) workers.push_back(device);
  }
  if (workers.empty()) workers = {home_};
  if (updater_.kvstore_->type() == KVStoreType::kLocal) workers.resize(1);
  const std::vector<VarPtr> outcome = AppendRangeWork(engine_,
                                                      {.name = "update",
                                                       .buckets = buckets_,
                                                       .workers = std::move(workers),
                                                       .threads = updater_.ThreadsOfHost(),
                                                       .replaces = true,
                                                       .function = std::move(function),
                                                       .looks = std::move(looks),
                                                       .gates = gates_},
                                                      &parts_);
  updater_.outcome_.insert(updater_.outcome_.end(), outcome.begin(), outcome.end());
}

void Updater::InProcesses::AppendNorms(const char* name, std::function<void(Processes*, Words)> run) {
  ProcessExchange::Options options = Exchange(name);
  options.results = {Tensor(engine_, home_, DType::kFloat64, {1})};
  options.run = std::move(run);
  Append(std::move(options));
  gates_.push_back(together_.back());
}

void Updater::InProcesses::AppendGather() {
  ProcessExchange::Options options = Exchange("new parameters of processes");
  std::vector<Bucket> buckets;
  std::vector<Processes::Shared> values;
  for (const BlockState& block : updater_.blocks_) {
    options.results.push_back(block.sum);
    values.push_back({block.dtype, block.sum.data(), block.own_values.data(), block.sum.elements()});
    buckets.push_back({.sources = {block.sum}, .replicas = StoredBlock(block).values});
  }
  options.run = [&updater = updater_, values = std::move(values)](Processes* processes, Words words) {
    updater.CheckStatuses(words);
    processes->AllGatherRanges(values);
  };
  Append(std::move(options));
  Reduction spread = updater_.kvstore_->MakeReduction(std::move(buckets), nullptr, updater_.ThreadsOfHost());
  std::ranges::move(spread.parts, std::back_inserter(parts_));
  std::ranges::move(spread.outcome, std::back_inserter(updater_.outcome_));
}

StepParts Updater::ProcessParts(const std::vector<VarPtr>& gates) { return InProcesses(this, gates).Take(); }

// Of what several find, any may be told.
void Updater::Shared::Note(int64_t place, StepStatus bad) {
  const std::lock_guard lock(mutex);
  bad.place = place;
  status = bad;
}

void Updater::CheckStatuses(Words words) {
  for (const ProcessExchange::Word& word : words) {
    if (word.status.kind == StepStatus::kGood) continue;
    verdict_->overflowed = true;
    ThrowNotFinite(verdict_->names[static_cast<size_t>(word.status.place)], word.status.element, word.status.value);
  }
}

void Updater::ShareSquares(Processes* processes) {
  const double mine = gradients_.Total().direction;
  std::vector<double> all(static_cast<size_t>(processes->size()));
  processes->AllGather(&mine, all.data(), sizeof(mine));
  shared_->squares = 0;
  for (const double squares : all) shared_->squares += squares;
}

void Updater::ShareMeasures(Processes* processes) {
  std::vector<UpdateSquares> mine;
  for (const BlockState& block : blocks_) {
    const auto bucket = static_cast<int>(&block - blocks_.data());
    for (const Piece& piece : block.pieces) mine.push_back(measured_.Total(bucket, piece.begin, piece.end));
  }
  std::vector<UpdateSquares> all(mine.size() * static_cast<size_t>(processes->size()));
  processes->AllGather(mine.data(), all.data(), std::ssize(mine) * static_cast<int64_t>(sizeof(UpdateSquares)));
  shared_->measured.assign(mine.size(), {});
  for (size_t i = 0; i < all.size(); ++i) {
    UpdateSquares& sum = shared_->measured[i % mine.size()];
    sum.weight += all[i].weight;
    sum.direction += all[i].direction;
  }
}

Processes::Given Updater::OwnStates() const {
  const auto slot = static_cast<size_t>(verdict_->committed % 2);
  const auto tensors = std::make_shared<std::vector<Tensor>>();  // while others hang, an updater may end
  std::vector<Processes::Shared> values;
  for (const BlockState& block : blocks_) {
    for (const Tensor& state : block.own_states[slot]) {
      values.push_back({block.dtype, nullptr, state.data(), block.sum.elements()});
      tensors->push_back(state);
    }
  }
  return {.values = std::move(values), .keeps = tensors};
}

void Updater::KeepState() const {
  if (!shared_ || !shared_->states.empty()) return;
  if (StateNames().empty()) return shared_->states.resize(blocks_.size());
  Wait();
  Recount();
  // While a device hangs, this call ends and the operation does not.
  const auto states = std::make_shared<std::vector<std::vector<HostTensor>>>();
  const auto wholes = std::make_shared<std::vector<void*>>();
  for (const BlockState& block : blocks_) {
    std::vector<HostTensor>& whole = states->emplace_back();
    for (size_t i = 0; i < block.own_states[0].size(); ++i) {
      wholes->push_back(whole.emplace_back(block.dtype, block.sum.shape()).raw());
    }
  }
  const VarPtr done = group_->engine()->NewVar();
  group_->engine()->Push({.name = "states of all processes",
                          .device = Home(),
                          .writes = {done},
                          .run = [processes = processes_, offer = shared_->offer, states,
                                  wholes](const OpContext&) { processes->Ask(offer, *wholes); },
                          .at = [] { return std::string("waiting for the other processes"); }});
  group_->engine()->Wait(done);
  shared_->states = std::move(*states);
}

}  // namespace bindery
