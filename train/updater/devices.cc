// Updater, where the host cannot address the memory of all devices. Each device updates a range of the elements, with
// the optimizer's state of that range in its memory. A step's parts, in order, on every device:
//
//   sum         of all devices' gradients, in their order, each range to the device that updates it (ReduceScatterSum).
//               Bucket by bucket (ParameterStore), each when all devices' backwards have finished it
//   check       is the sum finite, and, when backward is over, has a kernel refused its data (on GPUs also where nothing
//               is updated)? The device's status tells. Bad, it stays so until the host has seen it (Updater::Forgive):
//               nothing moves behind a step that failed. What fails a part of the step, in the engine's way, fails the
//               status, which keeps that, too, by the report
//   gather      all devices' statuses, to each device (AllGather)
//   norms       where the optimizer goes by them: each device has summed the squares of its range, fetches the others'
//               sums, and adds up all in the order of the devices; first those of gradients, to be clipped by, then
//               those of weights and of their directions (UpdateRule::measure)
//   update      by the rates in the step block, to arrays of its own: new weights, and the states' other slot. Nothing
//               unless all devices' statuses are good
//   gather      all devices' new weights
//   report      the statuses, to the host: to one of as many places as steps are in flight, since a device that trains
//               alone goes on with the next step before the host has read what it says of this one
//   commit      new weights become the parameters, once in each memory, and the states' other slot the one that holds.
//               Again nothing unless all statuses are good. Then the same for the auxiliary states
//
// Such a device waits for nothing that the host makes of a step: so a step of a GPU is one launch. Several devices wait
// until the host has seen the last step's verdict, which costs them nothing: it is long there when they come to update.
//
// The step is committed when every device has all new weights, and the host what all say: each commit comes after
// all of that, on all devices, and moves memory of its own device only. What fails before leaves everything as it
// was, everywhere. A commit that fails is that of a committed step: the device's parameters are failed then, other
// devices have them, and its states are whole, but the count that says which of them hold must be mended (Recount).
#include "train/updater/devices.h"

#include <cstddef>
#include <utility>

namespace bindery {

// Each block among all devices that have it: whichever bucket is finished first, all of them have something to do.
void Updater::OnDevices::ShareOut() {
  const bool all = updater_.kvstore_->type() != KVStoreType::kLocal;
  for (size_t d = 0; d < devices_.size(); ++d) {
    std::vector<BucketRange> mine;
    bool computes = false;
    for (int b = 0; b < static_cast<int>(updater_.blocks_.size()); ++b) {
      const DeviceRange have = DevicesOf(b);
      computes |= have.contains(d);
      if (!have.contains(d) || (!all && d > have.first)) continue;
      const auto cut = CutBuckets({Stored(b).elements}, all ? static_cast<int>(have.size()) : 1);
      for (const BucketRange& range : cut[d - have.first]) mine.push_back({b, range.begin, range.end});
    }
    if (mine.empty() && (!computes || HostAddressable(devices_[d]))) continue;  // on CPUs, what refuses data throws
    Owner& owner = owners_.emplace_back(Owner{.device = d});
    const Tensor tally(engine_, devices_[d], DType::kUInt8, {sizeof(StepTally)});
    tally.Wait();  // for the zeros
    const auto part = [&](DType dtype, int64_t elements, size_t offset) {
      return Tensor(engine_, devices_[d], dtype, {elements}, Of<char>(tally) + offset,
                    std::make_shared<const Tensor>(tally), engine_->NewVar());
    };
    owner.committed = part(DType::kInt64, 1, offsetof(StepTally, committed));
    owner.status = part(DType::kUInt8, sizeof(StepStatus), offsetof(StepTally, status));
    const auto places = static_cast<int64_t>(updater_.verdict_->names.size());
    const auto numbers = [&](int64_t count) {
      const Tensor tensor(engine_, devices_[d], DType::kFloat64, {count});
      tensor.Wait();  // for the zeros
      return tensor;
    };
    if (clips_) {
      const Tensor own = numbers(places);
      owner.gradients = Tensor(engine_, devices_[d], DType::kFloat64, {places}, own.address(),
                               std::make_shared<const Tensor>(own), owner.status.var());
      owner.clip_factor = numbers(1);
    }
    if (updater_.optimizer_->measure()) owner.measured = numbers(2 * places);
    for (const auto& [b, begin, end] : mine) {
      BlockState& block = Block(b);
      const Shape shape{end - begin};
      owner.shares.push_back({b, begin, end, {}, Tensor(engine_, devices_[d], block.dtype, shape)});
      StateRange& states = block.states.emplace_back(StateRange{begin, end, {}, owner.committed});
      for (std::vector<Tensor>& slot : states.slots) {
        for (const Tensor& state : updater_.NewStates(devices_[d], block.dtype, end - begin)) {
          slot.emplace_back(engine_, devices_[d], block.dtype, shape, state.address(),
                            std::make_shared<const Tensor>(state), owner.committed.var());
        }
      }
    }
  }
}

void Updater::OnDevices::MakeRecount() {
  StepParts parts;
  for (const Owner& owner : Updating()) {
    Operation& count = parts.emplace_back(Part("count", devices_[owner.device]));
    count.writes = {owner.committed.var()};
    count.run = [to = owner.committed, verdict = updater_.verdict_](const OpContext& context) {
      CopyBetween(context.stream, Cpu(), &verdict->committed, to.device(), to.address(), sizeof(int64_t));
    };
  }
  updater_.recount_ = StepRange(engine_, std::move(parts));
}

void Updater::OnDevices::MakeForgive() {
  StepParts parts;
  for (const Owner& owner : owners_) {
    Operation& forgive = parts.emplace_back(Part("forgive", devices_[owner.device]));
    forgive.writes = {owner.status.var()};
    forgive.run = [&flat = Backend::Of(devices_[owner.device].kind).flat(), status = owner.status](
                      const OpContext& context) { flat.Zero(context.stream, status.address(), status.bytes()); };
  }
  updater_.forgive_on_devices_ = StepRange(engine_, std::move(parts));
}

std::vector<std::vector<Tensor>> Updater::OnDevices::GatherFor(DeviceRange readers, const std::string& what,
                                                               const std::vector<Tensor>& sources) {
  if (sources.empty()) return std::vector<std::vector<Tensor>>(devices_.size());  // a block of no elements
  std::vector<std::vector<Tensor>> read(readers.first);                           // by device
  Bucket bucket{.sources = sources};
  for (size_t reader = readers.first; reader < readers.last; ++reader) {
    const Device& device = devices_[reader];
    size_t same = readers.first;
    while (!ShareMemory(devices_[same], device)) ++same;
    if (same < reader) {
      read.push_back(read[same]);
    } else if (sources.size() == 1 && ShareMemory(sources[0].device(), device)) {
      read.push_back(sources);
    } else {
      int64_t elements = 0;
      for (const Tensor& source : sources) elements += source.elements();
      const Tensor all(engine_, device, sources[0].dtype(), Shape{elements});
      bucket.replicas.push_back(all);
      std::vector<Tensor>& ranges = read.emplace_back();
      int64_t begin = 0;
      for (const Tensor& source : sources) {
        ranges.push_back(all.Slice(begin, begin + source.elements()));
        begin += source.elements();
      }
    }
    AppendVars(read.back(), &updater_.outcome_);
  }
  if (!bucket.replicas.empty()) collectives_->Append(Collective::kAllGather, what, {bucket}, &parts_);
  read.resize(devices_.size());
  return read;
}

void Updater::OnDevices::AppendSum(int block) {
  const std::vector<Tensor>& gradients = Stored(block).gradients;
  Bucket bucket{.sources = gradients};
  ForEachShare(block, [&](const Owner& owner, Share& share) {
    share.sum = gradients.size() == 1
                    ? gradients[0]
                    : Tensor(engine_, devices_[owner.device], Block(block).dtype, Shape{share.end - share.begin});
    bucket.replicas.push_back(share.sum);
  });
  if (gradients.size() > 1 && !bucket.replicas.empty()) {
    collectives_->Append(Collective::kReduceScatterSum, "sum of gradients of " + NamesOf(block), {bucket}, &parts_);
  }
  ForEachShare(block, [&](const Owner& owner, const Share& share) { AppendCheck(owner, share); });
}

void Updater::OnDevices::AppendCheck(const Owner& owner, const Share& share) {
  const Device device = devices_[owner.device];
  Operation check = Part("check of gradients", device);
  check.reads = {share.sum.var(), owner.status.var()};
  check.writes = {owner.status.var()};
  std::vector<PlacedElements> pieces;
  ForEachPiece(share, [&](const Piece& piece, int64_t place, int64_t begin, int64_t end) {
    pieces.push_back({At(share.sum, begin - share.begin), end - begin, place, begin - piece.begin});
  });
  check.run = [&flat = Backend::Of(device.kind).flat(), sum = share.sum, status = owner.status,
               squares = owner.gradients, pieces = std::move(pieces)](const OpContext& context) {
    flat.CheckFinite(context.stream, sum.dtype(), pieces, Of<StepStatus>(status));
    if (squares.defined()) flat.SumOfSquares(context.stream, sum.dtype(), pieces, Of<double>(squares));
  };
  parts_.push_back(std::move(check));
}

void Updater::OnDevices::AppendRefusals(const Owner& owner) {
  const Device device = devices_[owner.device];
  Operation check = Part("check of data", device);
  check.reads = {Rates(owner).var(), owner.status.var()};
  // What the backward has written: then it is over, and refuses nothing any more.
  for (int b = 0; b < static_cast<int>(updater_.blocks_.size()); ++b) {
    const DeviceRange have = DevicesOf(b);
    if (have.contains(owner.device)) check.reads.push_back(Stored(b).gradients[owner.device - have.first].var());
  }
  check.writes = {owner.status.var()};
  check.run = [&flat = Backend::Of(device.kind).flat(), block = executors_[owner.device]->block(),
               status = owner.status](const OpContext& context) {
    flat.Refuse(context.stream, &block->refusal, 1, Of<StepStatus>(status));
  };
  parts_.push_back(std::move(check));
}

void Updater::OnDevices::AppendStatuses() {
  std::vector<Tensor> statuses;
  for (const Owner& owner : owners_) statuses.push_back(owner.status);
  statuses_ = GatherForAll("statuses", statuses);
}

void Updater::OnDevices::ListUpdates(Owner* owner) {
  const Optimizer& optimizer = *updater_.optimizer_;
  std::vector<DeviceUpdate> averages;
  for (const Share& share : owner->shares) {
    const BlockState& block = Block(share.block);
    const Tensor& weight = ValuesOn(owner->device, share.block);
    const StateRange& states = *std::ranges::find(block.states, share.begin, &StateRange::begin);
    ForEachPiece(share, [&](const Piece& piece, int64_t place, int64_t begin, int64_t end) {
      const int64_t at = begin - share.begin;
      DeviceUpdate& u = owner->updates.emplace_back(
          DeviceUpdate{.kernel = optimizer.kernel(),
                       .measure = piece.measured() ? optimizer.measure() : nullptr,
                       .dtype = block.dtype,
                       .args = {.learning_rate = piece.multipliers.lr,
                                .weight_decay = optimizer.options().weight_decay * piece.multipliers.wd,
                                .clip = optimizer.options().clip_gradient,
                                .settings = optimizer.settings()},
                       .gradient = At(share.sum, at),
                       .weight = At(weight, begin),
                       .new_weight = At(share.new_weight, at),
                       .num_states = optimizer.state_count(),
                       .elements = end - begin,
                       .clip_factor = clips_ ? Of<const double>(owner->clip_factor) : nullptr});
      if (u.measure) u.measured = Of<UpdateSquares>(owner->measured) + place;
      for (int slot = 0; slot < 2; ++slot) {
        for (int i = 0; i < u.num_states; ++i) {
          u.states[slot][static_cast<size_t>(i)] = At(states.slots[slot][static_cast<size_t>(i)], at);
        }
      }
      if (!updater_.average_) return;
      DeviceUpdate average{.kernel = updater_.average_->kernel,
                           .dtype = block.dtype,
                           .args = updater_.AverageArgs(1),
                           .gradient = u.new_weight,
                           .weight = u.new_weight,
                           .new_weight = u.new_weight,
                           .num_states = 1,
                           .elements = u.elements};
      for (int slot = 0; slot < 2; ++slot) average.states[slot][0] = At(states.slots[slot].back(), at);
      averages.push_back(average);
    });
  }
  owner->updates.insert(owner->updates.end(), averages.begin(), averages.end());  // of what those make
}

void Updater::OnDevices::AppendUpdate(const Owner& owner) {
  const Device device = devices_[owner.device];
  Operation update = Part("update", device);
  update.reads = gates_;
  const Tensor rates = Rates(owner);
  AppendVars({rates, owner.status, owner.committed}, &update.reads);
  AppendVars(statuses_[owner.device], &update.reads);
  for (const Tensor& numbers : {owner.clip_factor, owner.squares}) {
    if (numbers.defined()) update.reads.push_back(numbers.var());
  }
  for (const Share& share : owner.shares) {
    AppendVars({ValuesOn(owner.device, share.block), share.sum}, &update.reads);
    update.writes.push_back(share.new_weight.var());
  }
  // The slot that does not hold goes with the new weights: whoever creates these writes it.
  update.run = [&flat = Backend::Of(device.kind).flat(), owner, rates, statuses = statuses_[owner.device],
                blocks = updater_.blocks_, optimizer = updater_.optimizer_](const OpContext& context) {
    const std::vector<const StepStatus*> all = Addresses<const StepStatus>(statuses);
    flat.Update(context.stream, owner.updates, Of<const StepRates>(rates), Of<const int64_t>(owner.committed), all);
  };
  parts_.push_back(std::move(update));
}

void Updater::OnDevices::AppendReport(size_t slot) {
  std::vector<Tensor> statuses;
  for (const Owner& owner : owners_) statuses.push_back(owner.status);
  std::vector<Tensor>& reported = updater_.verdict_->statuses[slot];
  reported = AppendFetch(engine_, "statuses for the host", statuses, Cpu(), &parts_);
  std::vector<VarPtr>& heard = updater_.heard_[slot];
  AppendVars(reported, &heard);
  const bool alone = updater_.alone_ && !parts_.empty();
  std::vector<VarPtr>& waits = alone ? parts_[0].reads : heard;
  waits.insert(waits.end(), updater_.outcome_.begin(), updater_.outcome_.end());
  if (!alone) return;
  updater_.status_ = statuses[0];
  parts_[0].writes.push_back(statuses[0].var());  // what keeps this step from being committed keeps the next ones, too
}

void Updater::OnDevices::AppendCommit(size_t d, size_t slot) {
  Operation commit = Part("commit", devices_[d], Lane::kCompute);
  commit.reads = updater_.outcome_;
  commit.reads.insert(commit.reads.end(), updater_.heard_[slot].begin(), updater_.heard_[slot].end());
  std::vector<Copy> copies;
  std::vector<Tensor> kept;
  for (int b = 0; b < static_cast<int>(new_weights_.size()); ++b) {
    if (!DevicesOf(b).contains(d) || IsOfAnother(d, b)) continue;
    const std::vector<Tensor>& gathered = new_weights_[static_cast<size_t>(b)][d];
    kept.insert(kept.end(), gathered.begin(), gathered.end());
    const Tensor& to = kept.emplace_back(ValuesOn(d, b));
    commit.updates.push_back(to.var());
    auto from = gathered.begin();
    ForEachShare(b, [&](const Owner&, const Share& share) {
      bool first = true;
      ForEachPiece(share, [&](const Piece& piece, int64_t, int64_t begin, int64_t end) {
        char* const at = At(to, begin);
        const int64_t bytes = (end - begin) * SizeOf(to.dtype());
        if (!first && piece.joins) {
          copies.back().bytes = at + bytes - static_cast<char*>(copies.back().to);
        } else {
          copies.push_back({At(*from, begin - share.begin), at, bytes});
        }
        first = false;
      });
      ++from;
    });
  }
  Tensor committed;
  for (const Owner& owner : Updating()) {
    if (owner.device != d) continue;
    committed = owner.committed;
    commit.updates.push_back(committed.var());
    if (copies.empty()) copies.push_back({committed.address(), committed.address(), 0});  // it counts alone
  }
  if (commit.updates.empty()) return;  // its stage trains nothing, or another device commits for it
  commit.run = [&flat = Backend::Of(devices_[d].kind).flat(), copies = std::move(copies), committed,
                statuses = statuses_[d], kept = std::move(kept)](const OpContext& context) {
    const std::vector<const StepStatus*> all = Addresses<const StepStatus>(statuses);
    for (const Copy& copy : copies) {
      const bool last = &copy == &copies.back() && committed.defined();
      flat.Commit(context.stream, all, copy.from, copy.to, copy.bytes, last ? Of<int64_t>(committed) : nullptr);
    }
  };
  parts_.push_back(std::move(commit));
}

void Updater::OnDevices::AppendPublish(size_t slot) {
  std::vector<VarPtr> gates = updater_.outcome_;
  gates.insert(gates.end(), updater_.heard_[slot].begin(), updater_.heard_[slot].end());
  for (size_t s = 0; s < updater_.stages_.size(); ++s) {
    const size_t first = first_device_[s], count = first_device_[s + 1] - first;
    updater_.stages_[s]->AppendPublish(gates, &parts_, std::span(statuses_).subspan(first, count));
  }
}

StepParts Updater::DeviceParts(const std::vector<VarPtr>& gates) { return OnDevices(this, gates).Take(); }

}  // namespace bindery
