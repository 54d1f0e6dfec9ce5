// Private to train/updater: the parts of a step where each device updates a range of the elements.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/names.h"
#include "engine/backend.h"
#include "engine/collective.h"
#include "engine/fetch.h"
#include "train/updater/updater.h"

namespace bindery {

// Appends those parts for all devices, one after the other.
class Updater::OnDevices {
 public:
  OnDevices(Updater* updater, const std::vector<VarPtr>& gates)
      : updater_(*updater), gates_(gates), engine_(updater->group_->engine()) {
    for (const DataParallelExecutorGroup* stage : updater_.stages_) {
      first_device_.push_back(devices_.size());
      for (const auto& executor : stage->executors()) {
        devices_.push_back(executor->device());
        executors_.push_back(executor.get());
      }
    }
    first_device_.push_back(devices_.size());
    for (const BlockState& block : updater_.blocks_) {
      first_place_.push_back(static_cast<int64_t>(updater_.verdict_->names.size()));
      for (const Piece& piece : block.pieces) updater_.verdict_->names.push_back(piece.name);
    }
    ShareOut();
    MakeRecount();
    MakeForgive();
    for (int b = 0; b < static_cast<int>(updater_.blocks_.size()); ++b) AppendSum(b);
    for (const Owner& owner : owners_) AppendRefusals(owner);
    AppendStatuses();
    if (clips_) AppendClipFactors();
    for (Owner& owner : owners_) ListUpdates(&owner);
    if (updater_.optimizer_->measure()) AppendMeasures();
    for (const Owner& owner : Updating()) AppendUpdate(owner);
    for (int b = 0; b < static_cast<int>(updater_.blocks_.size()); ++b) {
      std::vector<Tensor> new_weights;
      ForEachShare(b, [&](const Owner&, const Share& share) { new_weights.push_back(share.new_weight); });
      new_weights_.push_back(GatherFor(DevicesOf(b), "new parameters " + NamesOf(b), new_weights));
    }
    StepParts parts = std::move(parts_);
    for (size_t slot = 0; slot < kInFlight; ++slot) {
      parts_.clear();
      AppendReport(slot);
      for (size_t d = 0; d < devices_.size(); ++d) AppendCommit(d, slot);
      AppendPublish(slot);
      updater_.finish_[slot] = StepRange(engine_, std::move(parts_));
    }
    parts_ = std::move(parts);
  }
  StepParts Take() { return std::move(parts_); }

 private:
  // Elements begin..end-1 of a block on the device that updates them.
  struct Share {
    int block = 0;
    int64_t begin = 0, end = 0;
    Tensor sum = {}, new_weight = {};
  };

  // A device that has a status: one that updates something, or whose kernels may refuse its data.
  struct Owner {
    size_t device = 0;
    std::vector<Share> shares = {};      // none: it only has a status
    Tensor status = {}, committed = {};  // of its StepTally
    // Sums of squares by place: of gradients, and of what is measured; and what follows from those of all owners.
    Tensor gradients = {}, measured = {}, clip_factor = {}, squares = {};
    std::vector<DeviceUpdate> updates = {};
  };

  // What a part of a step holds and works on.
  struct Copy {
    const void* from;
    void* to;
    int64_t bytes;
  };

  static char* At(const Tensor& tensor, int64_t element) {
    return static_cast<char*>(tensor.address()) + element * SizeOf(tensor.dtype());
  }

  template <class T>
  static T* Of(const Tensor& tensor) {
    return static_cast<T*>(tensor.address());
  }

  template <class T>
  static std::vector<T*> Addresses(const std::vector<Tensor>& tensors) {
    std::vector<T*> addresses;
    for (const Tensor& tensor : tensors) addresses.push_back(Of<T>(tensor));
    return addresses;
  }

  static void AppendVars(const std::vector<Tensor>& tensors, std::vector<VarPtr>* vars) {
    for (const Tensor& tensor : tensors) vars->push_back(tensor.var());
  }

  // The devices first..last-1 that have a block: its stage's.
  struct DeviceRange {
    size_t first = 0, last = 0;
    bool contains(size_t d) const { return first <= d && d < last; }
    size_t size() const { return last - first; }
  };
  DeviceRange DevicesOf(int block) const {
    const auto stage = std::ranges::find(updater_.stages_, Block(block).stage) - updater_.stages_.begin();
    return {first_device_[static_cast<size_t>(stage)], first_device_[static_cast<size_t>(stage) + 1]};
  }
  const Tensor& ValuesOn(size_t device, int block) const {
    return Stored(block).values[device - DevicesOf(block).first];
  }
  // Are these the values of an earlier device, which shares its memory?
  bool IsOfAnother(size_t device, int block) const {
    const std::vector<Tensor>& values = Stored(block).values;
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(device - DevicesOf(block).first);
    return std::ranges::find(values.begin(), end, ValuesOn(device, block).var(), &Tensor::var) != end;
  }
  const ParameterStore::Block& Stored(int block) const { return StoredBlock(Block(block)); }
  BlockState& Block(int block) const { return updater_.blocks_[static_cast<size_t>(block)]; }
  std::string NamesOf(int block) const { return NamesInShort(Block(block).stage->store().NamesOf(Stored(block))); }
  static Operation Part(const char* name, Device device, Lane lane = Lane::kCollective) {
    return {.name = fmt::format("{} {}", name, device), .device = device, .lane = lane};
  }
  // What every owner has, as each device of a range reads it, CPUs the same copies; by device, empty for others. All of
  // them must be there before the step is committed.
  std::vector<std::vector<Tensor>> GatherFor(DeviceRange readers, const std::string& what,
                                             const std::vector<Tensor>& sources);
  std::vector<std::vector<Tensor>> GatherForAll(const char* what, const std::vector<Tensor>& sources) {
    return GatherFor({0, devices_.size()}, what, sources);
  }
  std::vector<std::reference_wrapper<Owner>> Updating() {
    std::vector<std::reference_wrapper<Owner>> updating;
    for (Owner& owner : owners_) {
      if (!owner.shares.empty()) updating.emplace_back(owner);
    }
    return updating;
  }
  // visit(owner, share) for what owners have of a block, in the order of its elements.
  template <class Visit>
  void ForEachShare(int block, const Visit& visit) {
    for (Owner& owner : owners_) {
      for (Share& share : owner.shares) {
        if (share.block == block) visit(owner, share);
      }
    }
  }
  // visit(piece, its place, begin, end) for what a share has of its block's parameters.
  template <class Visit>
  void ForEachPiece(const Share& share, const Visit& visit) const {
    int64_t place = first_place_[static_cast<size_t>(share.block)];
    for (const Piece& piece : Block(share.block).pieces) {
      const int64_t begin = std::max(share.begin, piece.begin), end = std::min(share.end, piece.end);
      if (begin < end) visit(piece, place, begin, end);
      ++place;
    }
  }

  void ShareOut();
  void MakeRecount();
  void MakeForgive();
  void AppendSum(int block);
  void AppendCheck(const Owner& owner, const Share& share);
  void AppendRefusals(const Owner& owner);
  void AppendStatuses();
  void AppendClipFactors();
  void AppendMeasures();
  void ListUpdates(Owner* owner);
  Tensor Rates(const Owner& owner) const { return executors_[owner.device]->Rates(); }
  void AppendUpdate(const Owner& owner);
  void AppendReport(size_t slot);
  void AppendCommit(size_t d, size_t slot);
  void AppendPublish(size_t slot);

  Updater& updater_;
  const std::vector<VarPtr>& gates_;
  const std::shared_ptr<Engine> engine_;
  std::vector<Device> devices_;  // of all stages, one behind the other; one may come twice
  std::vector<const DeviceExecutor*> executors_;
  std::vector<size_t> first_device_;  // of each stage; and their number
  const bool clips_ = updater_.optimizer_->options().clip_norm > 0;
  std::vector<int64_t> first_place_;  // of each block, among all parameters
  std::vector<Owner> owners_;
  const std::unique_ptr<Collectives> collectives_ = MemoryCollectives(engine_, true);
  std::vector<std::vector<Tensor>> statuses_;                  // of all owners, as each device reads them
  std::vector<std::vector<std::vector<Tensor>>> new_weights_;  // by block, as each device reads them
  StepParts parts_;
};

}  // namespace bindery
