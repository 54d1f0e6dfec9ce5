// Updater: what norms of gradients change; on devices, norms of gradients and of parameters over the ranges of all.
#include <utility>

#include "engine/kernels/flat.h"
#include "train/updater/devices.h"

namespace bindery {

double Updater::Rescale() const {
  const double limit = optimizer_->options().clip_norm;
  if (limit <= 0) return rates_.rescale;
  return rates_.rescale *
         flat::ClipFactor(shared_ ? shared_->squares : gradients_.Total().direction, rates_.rescale, limit);
}

void Updater::OnDevices::AppendClipFactors() {
  std::vector<Tensor> squares;
  for (const Owner& owner : Updating()) squares.push_back(owner.gradients);
  const auto gathered = GatherForAll("norms of gradients", squares);
  for (const Owner& owner : Updating()) {
    const std::vector<Tensor>& all = gathered[owner.device];
    const Tensor rates = Rates(owner);
    Operation clip = Part("clip factor", devices_[owner.device]);
    clip.reads = {rates.var()};
    AppendVars(all, &clip.reads);
    clip.writes = {owner.clip_factor.var()};
    clip.run = [&flat = Backend::Of(devices_[owner.device].kind).flat(), all, rates, to = owner.clip_factor,
                sums = Addresses<const double>(all),
                limit = updater_.optimizer_->options().clip_norm](const OpContext& context) {
      flat.ClipFactor(context.stream, sums, all[0].elements(), Of<const StepRates>(rates), limit, Of<double>(to));
    };
    parts_.push_back(std::move(clip));
  }
}

void Updater::OnDevices::AppendMeasures() {
  std::vector<Tensor> measured;
  for (const Owner& owner : Updating()) {
    Operation measure = Part("measure", devices_[owner.device]);
    const Tensor rates = Rates(owner);
    AppendVars({rates, owner.committed}, &measure.reads);
    if (clips_) measure.reads.push_back(owner.clip_factor.var());
    for (const Share& share : owner.shares) {
      AppendVars({ValuesOn(owner.device, share.block), share.sum}, &measure.reads);
    }
    measure.writes = {owner.measured.var()};
    measure.run = [&flat = Backend::Of(devices_[owner.device].kind).flat(), owner, rates, blocks = updater_.blocks_,
                   optimizer = updater_.optimizer_](const OpContext& context) {
      flat.Measure(context.stream, owner.updates, Of<const StepRates>(rates), Of<const int64_t>(owner.committed));
    };
    parts_.push_back(std::move(measure));
    measured.push_back(owner.measured);
  }
  const auto gathered = GatherForAll("norms of parameters", measured);
  for (Owner& owner : Updating()) {
    const std::vector<Tensor>& all = gathered[owner.device];
    const Device device = devices_[owner.device];
    owner.squares = Tensor(engine_, device, DType::kFloat64, owner.measured.shape());
    Operation sum = Part("sum of norms", device);
    AppendVars(all, &sum.reads);
    sum.writes = {owner.squares.var()};
    sum.run = [&flat = Backend::Of(device.kind).flat(), all, sources = Addresses<const void>(all),
               to = owner.squares](const OpContext& context) {
      flat.Sum(context.stream, DType::kFloat64, sources, to.address(), to.elements());
    };
    parts_.push_back(std::move(sum));
    for (DeviceUpdate& u : owner.updates) {
      if (u.measure) u.squares = Of<UpdateSquares>(owner.squares) + (u.measured - Of<UpdateSquares>(owner.measured));
    }
  }
}

}  // namespace bindery
