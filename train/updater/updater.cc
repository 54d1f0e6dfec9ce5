#include "train/updater/updater.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "engine/backend.h"
#include "engine/fetch.h"
#include "engine/kernels/flat.h"
#include "executor/plan/operations.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/ops/fixed_gamma.h"
#include "symbol/ops/loss.h"
#include "train/updater/divisor.h"
#include "train/updater/host_range.h"
#include "train/updater/micro_batches.h"
#include "train/updater/rows.h"

namespace bindery {
namespace {

// Whose type parameters may have taken on.
std::string DataOf(DType dtype, const std::vector<DataDesc>& data) {
  const auto found = std::ranges::find(data, dtype, &DataDesc::dtype);
  return found == data.end()
             ? ""
             : fmt::format(", as the data \"{}\" are (Cast them in the graph, or give others)", found->name);
}

}  // namespace

// An element as it is stored: a parameter's format may have another order than its axes.
void ThrowNotFinite(const std::string& parameter, int64_t element, double value) {
  Throw<NumericError>("the gradient of \"{}\" is not finite: element {}, as it is stored, is {}", parameter, element,
                      value);
}

Updater::Updater(ExecutorGroup* group, const UpdaterOptions& options)
    : group_(group), stages_(group->stages()),
      optimizer_(options.optimizer ? options.optimizer : std::make_shared<const Optimizer>(Sgd())),
      schedule_(options.schedule ? options.schedule : ConstantSchedule(optimizer_->options().learning_rate)),
      loss_scaling_(options.loss_scale), average_(options.average), multipliers_(options.multipliers),
      kvstore_(KVStore::Create(options.kvstore, group->engine())), steps_of_(options.steps_of),
      for_several_groups_(options.for_several_groups || options.steps_of) {
  if (steps_of_) {
    GoOnWith(*steps_of_);
  } else if (options.store) {
    store_ = options.store(group->engine());
    if (!store_) Throw("UpdaterOptions::store made no store");
  }
  if (!group_->options().for_training) Throw("an updater needs a group that is bound for training");
  if (group_->devices().size() > kMaxDevices)
    Throw("an updater serves at most {} devices, got {}", kMaxDevices, group_->devices().size());
  if (options.processes && options.processes->size() > 1) {
    processes_ = options.processes;
    shared_ = std::make_shared<Shared>();
  }
  divide_by_samples_ = DividesBySamples(group_, *optimizer_);
  means_of_pieces_ = OfHeads(group_->symbol(), IsMeanOfPiece);
  if (loss_scaling_) {
    ParseLossScaling(loss_scaling_->Text());  // throws Error for numbers that make no sense
    const Symbol& symbol = group_->symbol();
    if (ScaleLosses(symbol).entries() != symbol.entries()) Throw("a loss scale needs a group of ScaleLosses(symbol)");
    if (!steps_of_) run_->loss_scale = FirstState(*loss_scaling_);
  }
  if (options.block != 0) {
    if (steps_of_) Throw("blocks are for one group with parameters of its own: there are none with steps_of");
    blocks_of_step_ = std::make_unique<BlockStep>(group_, options.block, options.workload);
    // Sums over ranges of the elements would depend on how many ranges there are.
    if (optimizer_->options().clip_norm > 0 || optimizer_->measure()) {
      kvstore_ = KVStore::Create(KVStoreType::kLocal, group_->engine());
    }
  } else if (!options.workload.empty()) {
    Throw("the workload of an updater is of blocks: give it to the group");
  }
  CheckProcesses();
  Engine& engine = *group_->engine();
  if (!steps_of_) {
    gate_ = engine.NewVar();
    refused_ = engine.NewVar();
    committed_ = engine.NewVar();
    for (VarPtr& done : done_) done = engine.NewVar();
  }
  Prepare();
  const auto noop = [&](const char* name, std::vector<VarPtr> reads, std::vector<VarPtr> writes) {
    return Operation{.name = name,
                     .device = Cpu(),
                     .reads = std::move(reads),
                     .writes = std::move(writes),
                     .run = [](const OpContext&) {}};
  };
  Operation forgive = noop("forgive", {}, {committed_, refused_});
  forgive.run = [verdict = verdict_](const OpContext&) { verdict->overflowed = false; };
  forgive_ = engine.Prepare(std::move(forgive));
  for (size_t slot = 0; slot < kInFlight; ++slot) {
    std::vector<VarPtr> outcome = {committed_, gate_, refused_};  // reads what it writes: once failed, always failed
    const std::vector<VarPtr>& more = on_devices() ? heard_[slot] : outcome_;
    outcome.insert(outcome.end(), more.begin(), more.end());
    StepParts parts = {noop("commit", outcome, {committed_, done_[slot]})};
    parts[0].run = [verdict = verdict_, slot](const OpContext&) { verdict->Reach(slot); };
    if (!on_devices()) AppendPublish({committed_}, &parts);
    commit_.emplace_back(group_->engine(), std::move(parts));
  }
  if (processes_) shared_->offer = processes_->Offer([this] { return OwnStates(); });
}

Updater::~Updater() {
  try {
    for (const BlockState& block : blocks_) {
      for (const Tensor& values : StoredBlock(block).values) group_->engine()->WaitIdle(values.var());
    }
  } catch (...) {
    // Called from inside an operation, where nobody can wait.
  }
  if (processes_) processes_->Withdraw(shared_->offer);
}

void Updater::GoOnWith(const Updater& other) {
  if (!other.for_several_groups_) Throw("steps_of: the other updater must be for_several_groups");
  const auto store_of = [](const DataParallelExecutorGroup* stage) { return &stage->store(); };
  if (!std::ranges::equal(other.stages_, stages_, {}, store_of, store_of)) {
    Throw("steps_of: the groups do not share their parameters");
  }
  optimizer_ = other.optimizer_;
  schedule_ = other.schedule_;
  loss_scaling_ = other.loss_scaling_;
  average_ = other.average_;
  multipliers_ = other.multipliers_;
  kvstore_ = KVStore::Create(other.kvstore_->type(), group_->engine());
  store_ = other.store_;
  run_ = other.run_;
  verdict_ = other.verdict_;
  gate_ = other.gate_;
  refused_ = other.refused_;
  committed_ = other.committed_;
  std::ranges::copy(other.done_, done_);
}

void Updater::AppendPublish(const std::vector<VarPtr>& gates, StepParts* parts) const {
  for (const DataParallelExecutorGroup* stage : stages_) stage->AppendPublish(gates, parts);
}

void Updater::Prepare() {
  std::map<std::string, Annotations> annotations;
  for (const NodePtr& node : Graph::Of(group_->symbol()).nodes) {
    if (node->is_variable()) annotations[node->name()] = node->annotations();
  }
  if (!steps_of_) CheckMultipliers(multipliers_, group_->param_names());
  const std::set<std::string> fixed_gammas = ListFixedGammas(group_->symbol());
  // Backward ends the last stage's first.
  std::vector<std::pair<DataParallelExecutorGroup*, size_t>> stored;
  for (size_t s = stages_.size(); s-- > 0;) {
    for (size_t b = 0; b < stages_[s]->store().blocks().size(); ++b) stored.emplace_back(stages_[s], b);
  }
  for (const auto& [stage, b] : stored) {
    const ParameterStore::Block& block = stage->store().blocks()[b];
    const bool by_rows = !block.row_gradients.empty();
    if (block.auxiliary || (block.gradients.empty() && !by_rows)) continue;
    BlockState state{.stage = stage, .block = static_cast<int>(b), .dtype = block.dtype, .by_rows = by_rows};
    bool joins = false;
    for (const int index : block.parameters) {
      const StoredParameter& p = stage->store().parameters()[index];
      const auto own = annotations.find(p.name);
      if (own == annotations.end() || group_->grad_req(p.name) == GradReq::kNull || fixed_gammas.contains(p.name)) {
        joins = false;
        continue;  // another group's, fixed, or held constant by the graph
      }
      if (p.dtype != DType::kFloat32 && p.dtype != DType::kFloat64) {
        Throw<ModelError>("parameter \"{}\" is {}{}: parameters are trained in float32 or float64", p.name, p.dtype,
                          DataOf(p.dtype, group_->options().data));
      }
      adds_up_ |= group_->grad_req(p.name) == GradReq::kAdd;
      const Multipliers multipliers = MultipliersOf(p.name, own->second, multipliers_);
      state.pieces.push_back({p.offset, p.offset + p.elements, multipliers, p.name, joins});
      joins = true;
    }
    if (state.pieces.empty()) continue;
    if (steps_of_) {
      const auto same = std::ranges::find_if(steps_of_->blocks_, [&](const BlockState& other) {
        return other.block == state.block && &other.stage->store() == &state.stage->store();
      });
      for (const Piece& piece : state.pieces) {
        const bool is_there = same != steps_of_->blocks_.end() &&
                              std::ranges::find(same->pieces, piece.begin, &Piece::begin) != same->pieces.end();
        if (!is_there) Throw("parameter \"{}\" is not trained by the updater whose steps these are", piece.name);
        if (!store_) continue;
        const auto at = std::ranges::find(same->pieces, piece.begin, &Piece::begin) - same->pieces.begin();
        state.exchanged.push_back(same->exchanged[static_cast<size_t>(at)]);
      }
      state.states = same->states;
    }
    blocks_.push_back(std::move(state));
  }
  if (blocks_.empty()) {
    if (processes_)
      Throw("all parameters of the network are fixed: there is nothing that processes could train together");
    if (!steps_of_ && !group_->param_names().empty()) {
      LogLine(LogLevel::kWarning, "all parameters of the network are fixed: nothing is trained");
    }
    return;
  }
  const bool by_weights = optimizer_->options().weight_decay > 0 || optimizer_->measure();
  const auto has_weight = [](const BlockState& block) { return std::ranges::any_of(block.pieces, &Piece::measured); };
  if (by_weights && !steps_of_ && std::ranges::none_of(blocks_, has_weight)) {
    LogLine(LogLevel::kWarning,
            fmt::format("{}: by their names and wd_mult none of the parameters is a weight, so none is decayed, nor "
                        "has its rate by norms (train/optimizers/multipliers.h)",
                        optimizer_->Text()));
  }
  std::ranges::stable_partition(blocks_, [](const BlockState& block) { return !block.by_rows; });
  if (processes_) CheckSameLayout();
  std::vector<VarPtr> gates = {gate_};
  StepParts publish;  // what these read must be there, on every device
  AppendPublish({}, &publish);
  for (const Operation& part : publish) gates.insert(gates.end(), part.reads.begin(), part.reads.end());
  const auto updates = [&](const Device& device) {
    const FlatKernels& flat = Backend::Of(device.kind).flat();
    return flat.HasUpdate(optimizer_->kernel(), optimizer_->measure()) &&
           (!average_ || flat.HasUpdate(average_->kernel));
  };
  const auto all_devices = [this](const auto& are) {
    return std::ranges::all_of(stages_, [&](const auto* stage) { return std::ranges::all_of(stage->devices(), are); });
  };
  const bool on_host =
      store_ || processes_ || for_several_groups_ || all_devices(HostAddressable) || !all_devices(updates);
  if (!on_host && stages_.size() == 1 && stages_[0]->devices().size() == 1) alone_ = stages_[0]->devices()[0];
  if (!alone_) gates.insert(gates.end(), {refused_, committed_});
  StepParts parts = processes_ ? ProcessParts(gates) : on_host ? HostParts(std::move(gates)) : DeviceParts(gates);
  update_ = StepRange(group_->engine(), std::move(parts), on_devices() ? outcome_ : std::vector<VarPtr>());
}

// So few weights, gradients and states stay near the one core that computes with them. Two would hand half of them to
// each other in every step, which takes longer than the update.
bool Updater::IsNearOneCore() const {
  constexpr int64_t kMost = 128 * 1024;
  int64_t elements = 0;
  for (const BlockState& block : blocks_) elements += StoredBlock(block).elements;
  return elements <= kMost && std::ranges::all_of(stages_, [](auto* stage) { return IsForOneThread(stage->plan()); });
}

Device Updater::Home() const {
  const Device first = stages_[0]->devices()[0];
  return HostAddressable(first) ? first : Cpu();
}

VarPtr Updater::AppendRates(std::vector<VarPtr> reads, std::vector<VarPtr> firsts, StepParts* parts) {
  const Device home = Home();
  const Tensor rates =
      AppendFetch(group_->engine(), "step rates", {stages_[0]->executors()[0]->Rates()}, home, parts).front();
  reads.push_back(rates.var());
  // After the last update and before the next.
  parts->push_back({.name = "step rates",
                    .device = home,
                    .reads = std::move(reads),
                    .updates = std::move(firsts),
                    .run = [this, rates](const OpContext&) {
                      rates_ = *static_cast<const StepRates*>(rates.data());
                      if (shared_) rates_.rescale *= shared_->rescale;
                    }});
  return rates.var();
}

StepParts Updater::HostParts(std::vector<VarPtr> gates) {
  const Device home = Home();
  std::vector<Bucket> buckets;
  std::vector<VarPtr> firsts;  // of each block, the first replica
  StepParts parts;
  for (BlockState& block : blocks_) {
    const ParameterStore::Block& stored = StoredBlock(block);
    if (store_) AppendSumsOfStore(&block, home, &parts);
    const std::vector<Tensor> sums = store_ ? std::vector{block.sum} : stored.gradients;
    if (!block.by_rows) buckets.push_back({.sources = sums, .replicas = stored.values});
    if (block.by_rows || firsts.empty()) firsts.push_back(stored.values[0].var());
    if (steps_of_) continue;
    block.states.push_back({.begin = 0, .end = stored.elements});
    block.states[0].slots[0] = NewStates(home, block.dtype, stored.elements);
  }
  const auto on_range = [this](void (Updater::*function)(const Range&)) -> RangeFunction {
    const auto states = static_cast<size_t>(optimizer_->state_count());
    return [this, function, states](int bucket, int64_t begin, int64_t end, std::span<const void* const> sources,
                                    std::span<void* const> replicas) {
      (this->*function)({bucket, blocks_[static_cast<size_t>(bucket)], begin, end, sources, replicas, states});
    };
  };
  ReductionHooks hooks{.looks = {on_range(&Updater::LookAtGradients)}, .gates = std::move(gates)};
  if (optimizer_->measure()) hooks.looks.push_back(on_range(&Updater::Measure));
  hooks.gates.push_back(AppendRates({}, std::move(firsts), &parts));
  AppendSumsOfRows(&hooks.gates, &parts);
  const std::vector<VarPtr> all_gates = hooks.gates;
  if (!buckets.empty()) {
    Reduction reduction =
        kvstore_->MakeReduction(std::move(buckets), on_range(&Updater::UpdateRange), ThreadsOfHost(), std::move(hooks));
    std::ranges::move(reduction.parts, std::back_inserter(parts));
    std::ranges::move(reduction.outcome, std::back_inserter(outcome_));
  }
  AppendUpdatesOfRows(all_gates, &parts);
  return parts;
}

}  // namespace bindery
