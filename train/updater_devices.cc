// Updater, where the host cannot address the memory of all devices. Each device updates a range of the elements, with
// the optimizer's state of that range in its memory. A step's parts, in order, on every device:
//
//   rates       the step's rates go to the device
//   fetch, sum  the range of all devices' gradients, in their order; is it finite? The device's status tells
//   update      by the rates, to arrays of its own: new weights, and the states' other slot. Nothing unless all
//               devices' statuses are good
//   fetch       the other devices' new weights; and the statuses, to the host
//   commit      new weights become the parameters, and the states' other slot the one that holds. Again nothing unless
//               all statuses are good
//
// The step is committed when every device has all new weights: each commit comes after all of that, on all devices, and
// moves memory of its own device only. What fails before leaves everything as it was, everywhere. A commit that fails
// is that of a committed step: the device's parameters are failed then, other devices have them, and its states are
// whole, but the count that says which of them hold must be mended (Recount).
#include <algorithm>
#include <utility>

#include "engine/backend.h"
#include "engine/fetch.h"
#include "train/updater.h"

namespace bindery {
namespace {

// Elements begin..end-1 of a block on the device that updates them.
struct Share {
  int block = 0;
  int64_t begin = 0, end = 0;
  Tensor sum = {}, new_weight = {};
};

struct Owner {
  size_t device = 0;
  std::vector<Share> shares = {};
  Tensor rates = {}, status = {}, committed = {};
};

// What a part of a step holds and works on.
struct CheckedRange {
  DType dtype;
  const void* gradient;
  int64_t elements, place;
};
struct Copy {
  const void* from;
  void* to;
  int64_t bytes;
};

char* At(const Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.address()) + element * SizeOf(tensor.dtype());
}

template <class T>
T* Of(const Tensor& tensor) {
  return static_cast<T*>(tensor.address());
}

std::vector<const StepStatus*> Addresses(const std::vector<Tensor>& statuses) {
  std::vector<const StepStatus*> addresses;
  for (const Tensor& status : statuses) addresses.push_back(Of<const StepStatus>(status));
  return addresses;
}

void AppendVars(const std::vector<Tensor>& tensors, std::vector<VarPtr>* vars) {
  for (const Tensor& tensor : tensors) vars->push_back(tensor.var());
}

}  // namespace

StepParts Updater::DeviceParts(const std::vector<VarPtr>& gates) {
  const std::shared_ptr<Engine>& engine = group_->engine();
  const std::vector<Device>& devices = group_->devices();
  const auto stored = [&](int block) -> const ParameterStore::Block& {
    return group_->store().blocks()[blocks_[static_cast<size_t>(block)].block];
  };
  const auto part = [](const char* name, Device device, Lane lane) {
    return Operation{.name = fmt::format("{} {}", name, device),
                     .device = device,
                     .reads = {},
                     .writes = {},
                     .updates = {},
                     .run = {},
                     .lane = lane};
  };
  std::vector<int64_t> elements, first_place;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    elements.push_back(stored(static_cast<int>(b)).elements);
    first_place.push_back(static_cast<int64_t>(verdict_->names.size()));
    for (const Piece& piece : blocks_[b].pieces) verdict_->names.push_back(piece.name);
  }
  const auto bytes = [&](Device device, size_t size) {
    return Tensor(engine, device, DType::kUInt8, Shape{static_cast<int64_t>(size)});
  };

  // Who updates what.
  std::vector<Owner> owners;
  const auto cut = CutBuckets(elements, kvstore_->type() == KVStoreType::kLocal ? 1 : static_cast<int>(devices.size()));
  for (size_t d = 0; d < cut.size(); ++d) {
    if (cut[d].empty()) continue;
    Owner& owner = owners.emplace_back(Owner{.device = d});
    owner.rates = bytes(devices[d], sizeof(StepRates));
    owner.status = bytes(devices[d], sizeof(StepStatus));
    owner.committed = Tensor(engine, devices[d], DType::kInt64, Shape{1});
    for (const auto& [b, begin, end] : cut[d]) {
      BlockState& block = blocks_[static_cast<size_t>(b)];
      const Shape shape{end - begin};
      owner.shares.push_back({b, begin, end, {}, Tensor(engine, devices[d], block.dtype, shape)});
      StateRange& states = block.states.emplace_back(StateRange{begin, end, {}, owner.committed});
      for (std::vector<Tensor>& slot : states.slots) {
        for (const Tensor& state : NewStates(devices[d], block.dtype, end - begin)) {
          slot.emplace_back(engine, devices[d], block.dtype, shape, state.address(),
                            std::make_shared<const Tensor>(state), owner.committed.var());
        }
      }
    }
  }

  StepParts parts, recount;
  for (const Owner& owner : owners) {
    const Device device = devices[owner.device];
    Operation rates = part("step rates", device, Lane::kCollective), count = part("count", device, Lane::kCollective);
    rates.writes = {owner.rates.var()};
    rates.run = [to = owner.rates](const OpContext& context) {
      CopyBetween(context.stream, Cpu(), context.payload, to.device(), to.address(), sizeof(StepRates));
    };
    parts.push_back(std::move(rates));
    count.writes = {owner.committed.var()};
    count.run = [to = owner.committed, verdict = verdict_](const OpContext& context) {
      CopyBetween(context.stream, Cpu(), &verdict->committed, to.device(), to.address(), sizeof(int64_t));
    };
    recount.push_back(std::move(count));
  }
  recount_ = StepRange(engine, std::move(recount));

  for (Owner& owner : owners) {
    const Device device = devices[owner.device];
    const FlatKernels& flat = Backend::Of(device.kind).flat();
    std::vector<Tensor> gradients;  // by share and device
    for (const Share& share : owner.shares) {
      for (const Tensor& gradient : stored(share.block).gradients) {
        gradients.push_back(gradient.Slice(share.begin, share.end));
      }
    }
    gradients = AppendFetch(engine, fmt::format("gradients for {}", device), gradients, device, &parts);
    Operation sum = part("sum of gradients", device, Lane::kCollective);
    AppendVars(gradients, &sum.reads);
    sum.writes = {owner.status.var()};
    std::vector<CheckedRange> checks;
    std::vector<std::vector<const void*>> sources;
    for (size_t i = 0; i < owner.shares.size(); ++i) {
      Share& share = owner.shares[i];
      const BlockState& block = blocks_[static_cast<size_t>(share.block)];
      share.sum = gradients[i * devices.size()];
      if (devices.size() > 1) {
        share.sum = Tensor(engine, device, block.dtype, Shape{share.end - share.begin});
        sum.writes.push_back(share.sum.var());
      }
      std::vector<const void*>& list = sources.emplace_back();
      for (size_t d = 0; d < devices.size(); ++d) list.push_back(gradients[i * devices.size() + d].address());
      for (size_t p = 0; check_gradients_ && p < block.pieces.size(); ++p) {
        const int64_t from = std::max(share.begin, block.pieces[p].begin),
                      to = std::min(share.end, block.pieces[p].end);
        if (from >= to) continue;
        checks.push_back({block.dtype, At(share.sum, from - share.begin), to - from,
                          first_place[static_cast<size_t>(share.block)] + static_cast<int64_t>(p)});
      }
    }
    sum.run = [&flat, gradients, shares = owner.shares, status = owner.status, sources = std::move(sources),
               checks = std::move(checks)](const OpContext& context) {
      flat.Zero(context.stream, status.address(), status.bytes());
      for (size_t i = 0; i < shares.size() && sources[i].size() > 1; ++i) {
        const Tensor& to = shares[i].sum;
        flat.Sum(context.stream, to.dtype(), sources[i], to.address(), to.elements());
      }
      for (const CheckedRange& check : checks) {
        flat.CheckFinite(context.stream, check.dtype, check.gradient, check.elements, check.place,
                         Of<StepStatus>(status));
      }
    };
    parts.push_back(std::move(sum));
  }

  // Every device, and the host, sees all statuses.
  std::vector<Tensor> statuses;
  for (const Owner& owner : owners) statuses.push_back(owner.status);
  std::vector<std::vector<Tensor>> seen;  // by device
  for (const Device& device : devices) {
    seen.push_back(AppendFetch(engine, fmt::format("statuses for {}", device), statuses, device, &parts));
    AppendVars(seen.back(), &outcome_);
  }

  for (const Owner& owner : owners) {
    const Device device = devices[owner.device];
    Operation update = part("update", device, Lane::kCollective);
    update.reads = gates;
    AppendVars({owner.rates, owner.status, owner.committed}, &update.reads);
    AppendVars(seen[owner.device], &update.reads);
    std::vector<DeviceUpdate> updates;
    for (const Share& share : owner.shares) {
      const BlockState& block = blocks_[static_cast<size_t>(share.block)];
      const Tensor& weight = stored(share.block).values[owner.device];
      update.reads.push_back(weight.var());
      AppendVars({share.sum}, &update.reads);
      update.writes.push_back(share.new_weight.var());
      const StateRange& states = *std::ranges::find(block.states, share.begin, &StateRange::begin);
      for (const Piece& piece : block.pieces) {
        const int64_t from = std::max(share.begin, piece.begin), to = std::min(share.end, piece.end);
        if (from >= to) continue;
        const int64_t at = from - share.begin;
        DeviceUpdate& u = updates.emplace_back(
            DeviceUpdate{.kernel = optimizer_->kernel(),
                         .dtype = block.dtype,
                         .args = {.learning_rate = piece.multipliers.lr,
                                  .weight_decay = optimizer_->options().weight_decay * piece.multipliers.wd,
                                  .clip = optimizer_->options().clip_gradient,
                                  .settings = optimizer_->settings()},
                         .gradient = At(share.sum, at),
                         .weight = At(weight, from),
                         .new_weight = At(share.new_weight, at),
                         .num_states = optimizer_->state_count(),
                         .elements = to - from});
        for (int slot = 0; slot < 2; ++slot) {
          for (size_t i = 0; i < states.slots[slot].size(); ++i) u.states[slot][i] = At(states.slots[slot][i], at);
        }
      }
    }
    // The slot that does not hold is whoever's who creates the new weights: only an update or SetState writes it.
    update.run = [&flat = Backend::Of(device.kind).flat(), owner, updates = std::move(updates),
                  seen = seen[owner.device], states = blocks_, optimizer = optimizer_](const OpContext& context) {
      const std::vector<const StepStatus*> all = Addresses(seen);
      for (const DeviceUpdate& u : updates) {
        flat.Update(context.stream, u, Of<const StepRates>(owner.rates), Of<const int64_t>(owner.committed), all);
      }
    };
    parts.push_back(std::move(update));
  }

  verdict_->statuses = AppendFetch(engine, "statuses", statuses, Cpu(), &parts);
  AppendVars(verdict_->statuses, &outcome_);
  std::vector<Tensor> new_weights;
  for (const Owner& owner : owners) {
    for (const Share& share : owner.shares) new_weights.push_back(share.new_weight);
  }
  std::vector<std::vector<Tensor>> fetched;  // by device
  for (const Device& device : devices) {
    fetched.push_back(AppendFetch(engine, fmt::format("new parameters for {}", device), new_weights, device, &parts));
    AppendVars(fetched.back(), &outcome_);
  }

  for (size_t d = 0; d < devices.size(); ++d) {
    Operation commit = part("commit", devices[d], Lane::kCompute);
    commit.reads = outcome_;
    std::vector<Copy> copies;
    size_t i = 0;
    for (const Owner& owner : owners) {
      for (const Share& share : owner.shares) {
        const Tensor& from = fetched[d][i++];
        const Tensor& to = stored(share.block).values[d];
        commit.updates.push_back(to.var());
        bool joins = false;
        for (const Piece& piece : blocks_[static_cast<size_t>(share.block)].pieces) {
          const int64_t begin = std::max(share.begin, piece.begin), end = std::min(share.end, piece.end);
          joins &= piece.joins;
          if (begin >= end) continue;
          char* const first = At(to, begin);
          if (joins) {
            copies.back().bytes = first + (end - begin) * SizeOf(to.dtype()) - static_cast<char*>(copies.back().to);
          } else {
            copies.push_back({At(from, begin - share.begin), first, (end - begin) * SizeOf(to.dtype())});
          }
          joins = true;
        }
      }
    }
    Tensor committed;
    for (const Owner& owner : owners) {
      if (owner.device != d) continue;
      committed = owner.committed;
      commit.updates.push_back(committed.var());
    }
    std::vector<Tensor> values;
    for (size_t b = 0; b < blocks_.size(); ++b) values.push_back(stored(static_cast<int>(b)).values[d]);
    commit.run = [&flat = Backend::Of(devices[d].kind).flat(), copies = std::move(copies), committed, seen = seen[d],
                  values = std::move(values), fetched = fetched[d]](const OpContext& context) {
      const std::vector<const StepStatus*> all = Addresses(seen);
      for (const Copy& copy : copies) {
        flat.Commit(context.stream, all, copy.from, copy.to, copy.bytes,
                    committed.defined() && &copy == &copies.back() ? Of<int64_t>(committed) : nullptr);
      }
    };
    parts.push_back(std::move(commit));
  }
  return parts;
}

}  // namespace bindery
