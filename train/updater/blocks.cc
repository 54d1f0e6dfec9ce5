#include "train/updater/blocks.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/backend.h"
#include "engine/fetch.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "train/updater/micro_batches.h"

namespace bindery {
namespace {

constexpr size_t kKept = 4;  // schedules

bool Says(const Node& node, const char* attribute, const AttrValue& value) {
  const AttrMap attributes = node.attrs().ToFullMap();
  const auto found = attributes.find(attribute);
  return found != attributes.end() && found->second == value;
}

// Throws ModelError for what would be of other samples than those of the batch, or of more than a block's.
void CheckSymbol(const Symbol& symbol) {
  for (const Entry& head : symbol.entries()) {
    const NodePtr& node = head.node;
    if (node->is_variable() || node->op().blocks_gradient || !IsMeanOfPiece(node)) continue;
    Throw<ModelError>(
        "{} divides by what a block has (valid labels, or the samples of a mean): in blocks, a head is a sum over "
        "samples, or normalised by the batch",
        Describe(*node));
  }
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (node->is_variable()) continue;
    if (Says(*node, "sync", true)) {
      Throw<ModelError>("{} normalises by the samples of all devices (sync): in blocks, statistics are a block's",
                        Describe(*node));
    }
    if (Says(*node, "sparse_grad", true)) {
      Throw<ModelError>("{} wants its table updated by rows (sparse_grad): in blocks, gradients are whole",
                        Describe(*node));
    }
  }
}

}  // namespace

GroupOptions ForBlocks(const GroupOptions& whole, int64_t block) {
  if (block < 1) Throw("blocks have at least 1 sample, got {}", block);
  if (!whole.placements.empty()) Throw("blocks are computed by one device each: there are none with placements");
  if (const auto* request = std::get_if<GradReq>(&whole.grad_req); !request || *request != GradReq::kWrite) {
    Throw("blocks need gradients that are written, of all parameters: leave grad_req as it is");
  }
  GroupOptions options =
      ForMicroBatches(whole, CheckedMul(block, static_cast<int64_t>(whole.devices.size()), "blocks"));
  options.grad_req = GradReq::kWrite;
  options.workload = {};
  options.sparse_gradients = false;
  options.threads_per_device = 1;
  options.bucket_bytes = 0;
  options.independent = true;
  return options;
}

std::vector<SampleRange> BlocksOf(int64_t samples, int64_t block) {
  std::vector<SampleRange> blocks;
  for (int64_t begin = 0; begin < samples; begin += block) blocks.push_back({begin, std::min(begin + block, samples)});
  return blocks;
}

std::vector<std::vector<BatchPtr>> DealBlocks(const BatchPtr& batch, const GroupOptions& group, int64_t samples,
                                              int64_t block) {
  const std::vector<SampleRange> blocks = BlocksOf(samples, block);
  const size_t devices = group.devices.size();
  std::vector<std::vector<BatchPtr>> rounds;
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (b % devices == 0) rounds.emplace_back(devices);
    rounds.back()[b % devices] = CutBatch(batch, group, blocks[b]);
  }
  return rounds;
}

struct BlockStep::KeptStates {
  size_t device = 0;
  VarPtr var = nullptr;
  std::vector<std::shared_ptr<Chunk>> values = {};  // by block of states, where the host can read them
};

// For batches of one size, by one workload.
struct BlockStep::Schedule {
  int64_t samples = 0;
  std::vector<SampleRange> blocks = {};
  std::vector<SampleRange> of_devices = {};  // each a range of blocks
  std::vector<KeptStates> states = {};       // by block of samples
  struct Place {
    size_t device = 0, block = 0;
  };
  std::vector<Place> places = {};      // in the order in which they are run
  std::vector<StepRange> pieces = {};  // what ends them
  StepRange end = {};
};

BlockStep::BlockStep(ExecutorGroup* group, int64_t block, const std::vector<double>& workload)
    : group_(*group->stages()[0]), block_(block) {
  if (!group->options().independent || group->stages().size() != 1 || group->threads_per_device() != 1) {
    Throw("blocks need a group that is bound with the options of ForBlocks");
  }
  CheckSymbol(group_.symbol());
  const ParameterStore& store = group_.store();
  for (int b = 0; b < static_cast<int>(store.blocks().size()); ++b) {
    const ParameterStore::Block& stored = store.blocks()[static_cast<size_t>(b)];
    const std::string& name = store.parameters()[static_cast<size_t>(stored.parameters[0])].name;
    if (!stored.row_gradients.empty()) Throw<ModelError>("the gradient of \"{}\" is kept by rows, not in blocks", name);
    if (!stored.gradients.empty()) gradients_.push_back(b);
    if (stored.candidates.empty()) continue;
    if (stored.dtype != DType::kFloat32 && stored.dtype != DType::kFloat64) {
      Throw<ModelError>("the state \"{}\" is {}: only of float32 and float64 can blocks make a mean", name,
                        stored.dtype);
    }
    states_.push_back(b);
  }
  slots_.resize(group_.devices().size());
  SetWorkload(workload.empty() ? std::vector<double>(slots_.size(), 1) : workload);
}

BlockStep::~BlockStep() = default;

void BlockStep::SetWorkload(const std::vector<double>& workload) {
  if (workload.size() != slots_.size())
    Throw("workload: expected {} numbers, one per device, got {}", slots_.size(), workload.size());
  SplitBatch(1, workload);
  if (workload == workload_) return;
  workload_ = workload;
  known_.clear();
}

std::vector<BlockStep::Piece> BlockStep::Begin(const BatchPtr& batch, int64_t samples) {
  const Schedule& schedule = Of(samples);
  std::vector<Piece> pieces;
  for (const Schedule::Place& place : schedule.places) {
    Piece& piece = pieces.emplace_back(Piece{.device = place.device});
    piece.batches.resize(slots_.size());
    piece.batches[place.device] = CutBatch(batch, group_.options(), schedule.blocks[place.block]);
  }
  return pieces;
}

void BlockStep::EndPiece(size_t piece) const { known_.front()->pieces[piece].Push(); }
void BlockStep::End() const { known_.front()->end.Push(); }

const BlockStep::Schedule& BlockStep::Of(int64_t samples) {
  const auto found = std::ranges::find_if(known_, [&](const auto& s) { return s->samples == samples; });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
  } else {
    known_.push_front(Make(samples));
    if (known_.size() > kKept) known_.pop_back();
  }
  return *known_.front();
}

const BlockStep::Tensors& BlockStep::Slot(size_t device, int slot) {
  std::vector<Tensors>& slots = slots_[device];
  while (slots.size() <= static_cast<size_t>(slot)) {
    Tensors& sums = slots.emplace_back();
    for (const int b : gradients_) {
      const Tensor& gradient = group_.store().blocks()[static_cast<size_t>(b)].gradients[device];
      sums.emplace_back(group_.engine(), gradient.device(), gradient.dtype(), gradient.shape());
    }
  }
  return slots[static_cast<size_t>(slot)];
}

std::unique_ptr<BlockStep::Schedule> BlockStep::Make(int64_t samples) {
  auto schedule = std::make_unique<Schedule>(Schedule{.samples = samples, .blocks = BlocksOf(samples, block_)});
  const auto count = static_cast<int64_t>(schedule->blocks.size());
  schedule->of_devices = SplitBatch(count, workload_);
  schedule->states.resize(schedule->blocks.size());
  // The first of each device, then the second ones, so that all have something to do.
  int64_t most = 0;
  for (const SampleRange& mine : schedule->of_devices) most = std::max(most, mine.size());
  for (int64_t i = 0; i < most; ++i) {
    for (size_t d = 0; d < slots_.size(); ++d) {
      const SampleRange& mine = schedule->of_devices[d];
      if (i < mine.size()) schedule->places.push_back({.device = d, .block = static_cast<size_t>(mine.begin + i)});
    }
  }
  const std::shared_ptr<Engine>& engine = group_.engine();
  std::vector<TreeSum> sums(slots_.size(), TreeSum(count));
  for (const auto& [d, block] : schedule->places) {
    StepParts parts;
    AppendSum(d, sums[d].AddLeaf(static_cast<int64_t>(block)), &parts);
    if (!states_.empty()) {
      schedule->states[block] = {.device = d, .var = engine->NewVar()};
      AppendKeep(&schedule->states[block], &parts);
    }
    schedule->pieces.emplace_back(engine, std::move(parts));
  }
  StepParts parts;
  AppendTop(sums, *schedule, &parts);
  AppendStates(*schedule, &parts);
  schedule->end = StepRange(engine, std::move(parts));
  return schedule;
}

// What a block has made of the states goes where the host can read it.
void BlockStep::AppendKeep(KeptStates* state, StepParts* parts) const {
  const Device device = group_.devices()[state->device];
  Operation keep{.name = fmt::format("states of a block {}", device), .device = device, .writes = {state->var}};
  std::vector<Tensor> from;
  for (const int s : states_) {
    const ParameterStore::Block& stored = group_.store().blocks()[static_cast<size_t>(s)];
    const Tensor& candidates = from.emplace_back(stored.candidates[state->device]);
    keep.reads.push_back(candidates.var());
    state->values.push_back(DefaultStorage()->AllocateStaging(device, candidates.bytes()));
  }
  keep.run = [device, from = std::move(from), to = state->values](const OpContext& context) {
    for (size_t i = 0; i < from.size(); ++i) {
      CopyBetween(context.stream, device, from[i].address(), Cpu(), to[i]->data(), from[i].bytes());
    }
  };
  parts->push_back(std::move(keep));
}

void BlockStep::AppendSum(size_t d, const std::vector<TreeSum::Action>& actions, StepParts* parts) {
  const Device device = group_.devices()[d];
  struct Work {
    Tensor from, to;
    bool adds;
  };
  std::vector<Work> work;
  Operation sum{.name = fmt::format("sum of blocks {}", device), .device = device};
  Tensors leaf;
  for (const int b : gradients_) leaf.push_back(group_.store().blocks()[static_cast<size_t>(b)].gradients[d]);
  for (const TreeSum::Action& action : actions) {
    const Tensors to = Slot(d, action.to), from = action.from == TreeSum::kLeaf ? leaf : Slot(d, action.from);
    for (size_t g = 0; g < gradients_.size(); ++g) {
      work.push_back({from[g], to[g], action.adds});
      sum.reads.push_back(from[g].var());
      if (action.adds) sum.reads.push_back(to[g].var());  // where one has failed, so has the sum
      sum.writes.push_back(to[g].var());
    }
  }
  sum.run = [work = std::move(work), &flat = Backend::Of(device.kind).flat()](const OpContext& context) {
    for (const Work& w : work) {
      if (w.adds) {
        flat.Add(context.stream, w.to.dtype(), w.from.address(), w.to.address(), w.to.elements());
      } else {
        flat.Copy(context.stream, w.from.address(), w.to.address(), w.to.bytes());
      }
    }
  };
  parts->push_back(std::move(sum));
}

// What devices have left is added by the device that has the left one of two nodes. The sum goes to a device's gradient,
// beside zeros of the others. There it is added to a zero, so that no element is -0: adding the others' zeros would make
// +0 of it, where there are others.
void BlockStep::AppendTop(const std::vector<TreeSum>& of_devices, const Schedule& schedule, StepParts* parts) {
  std::vector<std::pair<size_t, Tensors>> places;  // by slot of the sum over devices
  TreeSum top(static_cast<int64_t>(schedule.blocks.size()));
  for (size_t d = 0; d < of_devices.size(); ++d) {
    for (TreeSum::Node node : of_devices[d].nodes()) {
      places.emplace_back(d, Slot(d, node.slot));
      node.slot = static_cast<int>(places.size()) - 1;
      for (const TreeSum::Action& action : top.AddNode(node)) {
        const auto& [adder, to] = places[static_cast<size_t>(action.to)];
        const Device device = group_.devices()[adder];
        const Tensors from = AppendFetch(group_.engine(), "sum of blocks",
                                         places[static_cast<size_t>(action.from)].second, device, parts);
        Operation add{.name = fmt::format("sum of blocks {}", device), .device = device};
        for (const Tensors* read : {&from, &to}) {
          for (const Tensor& tensor : *read) add.reads.push_back(tensor.var());
        }
        for (const Tensor& tensor : to) add.writes.push_back(tensor.var());
        add.run = [from, to = to, &flat = Backend::Of(device.kind).flat()](const OpContext& context) {
          for (size_t g = 0; g < to.size(); ++g) {
            flat.Add(context.stream, to[g].dtype(), from[g].address(), to[g].address(), to[g].elements());
          }
        };
        parts->push_back(std::move(add));
      }
    }
  }
  Check(top.nodes().size() == 1, "all blocks are below one node");
  const auto& [owner, sum] = places[static_cast<size_t>(top.nodes()[0].slot)];
  for (size_t d = 0; d < of_devices.size(); ++d) {
    const Device device = group_.devices()[d];
    Operation set{.name = fmt::format("gradients of blocks {}", device), .device = device};
    Tensors from = d == owner ? sum : Tensors(), to;
    for (const Tensor& tensor : from) set.reads.push_back(tensor.var());
    for (const int b : gradients_) {
      set.writes.push_back(to.emplace_back(group_.store().blocks()[static_cast<size_t>(b)].gradients[d]).var());
    }
    set.run = [from = std::move(from), to = std::move(to),
               &flat = Backend::Of(device.kind).flat()](const OpContext& context) {
      for (size_t g = 0; g < to.size(); ++g) {
        flat.Zero(context.stream, to[g].address(), to[g].bytes());
        if (!from.empty()) {
          flat.Add(context.stream, to[g].dtype(), from[g].address(), to[g].address(), to[g].elements());
        }
      }
    };
    parts->push_back(std::move(set));
  }
}

void BlockStep::AppendStates(const Schedule& schedule, StepParts* parts) const {
  if (states_.empty()) return;
  const ParameterStore& store = group_.store();
  const std::vector<Device>& devices = group_.devices();
  std::vector<std::vector<std::shared_ptr<Chunk>>> means(devices.size());  // by device and block of states
  for (size_t d = 0; d < devices.size(); ++d) {
    for (const int s : states_) {
      const int64_t bytes = store.blocks()[static_cast<size_t>(s)].candidates[d].bytes();
      means[d].push_back(DefaultStorage()->AllocateStaging(devices[d], bytes));
    }
  }
  struct Kind {
    DType dtype;
    int64_t elements;
  };
  std::vector<Kind> kinds;
  for (const int s : states_) {
    const ParameterStore::Block& block = store.blocks()[static_cast<size_t>(s)];
    kinds.push_back({block.dtype, block.elements});
  }
  const VarPtr done = group_.engine()->NewVar();
  Operation mean{.name = "states of blocks", .device = Cpu(), .writes = {done}};
  std::vector<double> shares;
  std::vector<std::vector<std::shared_ptr<Chunk>>> values;
  for (size_t b = 0; b < schedule.states.size(); ++b) {
    mean.reads.push_back(schedule.states[b].var);
    values.push_back(schedule.states[b].values);
    shares.push_back(static_cast<double>(schedule.blocks[b].size()) / static_cast<double>(schedule.samples));
  }
  mean.run = [kinds = std::move(kinds), shares = std::move(shares), values = std::move(values),
              means](const OpContext&) {
    for (size_t s = 0; s < kinds.size(); ++s) {
      const auto of_type = [&]<class T>(T) {
        for (int64_t i = 0; i < kinds[s].elements; ++i) {
          double sum = 0;
          for (size_t b = 0; b < values.size(); ++b) {
            sum += shares[b] * static_cast<double>(static_cast<const T*>(values[b][s]->data())[i]);
          }
          for (const auto& to : means) static_cast<T*>(to[s]->data())[i] = static_cast<T>(sum);
        }
      };
      kinds[s].dtype == DType::kFloat32 ? of_type(float{}) : of_type(double{});
    }
  };
  parts->push_back(std::move(mean));
  for (size_t d = 0; d < devices.size(); ++d) {
    Operation set{.name = fmt::format("states of blocks {}", devices[d]), .device = devices[d], .reads = {done}};
    std::vector<Tensor> to;
    for (const int s : states_) {
      set.writes.push_back(to.emplace_back(store.blocks()[static_cast<size_t>(s)].candidates[d]).var());
    }
    set.run = [device = devices[d], from = means[d], to = std::move(to)](const OpContext& context) {
      for (size_t i = 0; i < to.size(); ++i) {
        CopyBetween(context.stream, Cpu(), from[i]->data(), device, to[i].address(), to[i].bytes());
      }
    };
    parts->push_back(std::move(set));
  }
}

}  // namespace bindery
