// Updater: what the host does with ranges of the elements.
#include "train/updater/host_range.h"

#include "engine/kernels/flat.h"
#include "train/updater/rows.h"

namespace bindery {

void Updater::LookAtGradients(const Range& range) {
  constexpr int64_t kPart = 4096;  // elements; a sum of them stays in the first cache
  const DType dtype = range.block.dtype;
  const bool clips = optimizer_->options().clip_norm > 0;
  range.ForEachPiece([&](const Piece& piece, int64_t begin, int64_t end) {
    double squares = 0;
    for (int64_t from = begin; from < end; from += kPart) {
      const int64_t count = std::min(kPart, end - from);
      const Range::Addresses at = range.At(from);
      if (!clips && flat::SumIsFinite(dtype, {at.gradients.data(), range.gradients.size()}, count)) continue;
      alignas(64) char sum[kPart * sizeof(double)];
      const void* gradient = at.gradients[0];
      if (range.gradients.size() > 1) {
        flat::Sum(dtype, {at.gradients.data(), range.gradients.size()}, sum, count);
        gradient = sum;
      }
      StepStatus status;
      flat::CheckFinite(dtype, gradient, count, 0, from - piece.begin, &status);
      if (status.kind != StepStatus::kGood) {
        if (shared_) return shared_->Note(PlaceOf(range.block, piece), status);
        verdict_->overflowed = true;
        ThrowNotFinite(piece.name, status.element, status.value);
      }
      if (clips) squares += flat::SumOfSquares(dtype, gradient, count);
    }
    if (clips) gradients_.Set(range.bucket, begin, {.direction = squares});
  });
}

UpdateArgs Updater::ArgsOf(const Piece& piece, double rescale) const {
  return {.step = rates_.step,
          .learning_rate = rates_.learning_rate * piece.multipliers.lr,
          .weight_decay = optimizer_->options().weight_decay * piece.multipliers.wd,
          .rescale = rescale};
}

UpdateSquares Updater::SquaresOf(const Range& range, const Piece& piece) const {
  if (!shared_) return measured_.Total(range.bucket, piece.begin, piece.end);
  return shared_->measured.empty() ? UpdateSquares{}
                                   : shared_->measured[static_cast<size_t>(PlaceOf(range.block, piece))];
}

void Updater::Measure(const Range& range) {
  const double rescale = Rescale();  // once for all pieces: there may be thousands
  range.ForEachPiece([&](const Piece& piece, int64_t begin, int64_t end) {
    if (!piece.measured()) return;
    const Range::Addresses at = range.At(begin);
    measured_.Set(
        range.bucket, begin,
        optimizer_->Measure(range.block.dtype, ArgsOf(piece, rescale), {at.gradients.data(), range.gradients.size()},
                            at.weight, {at.states.data(), range.optimizer_states}, end - begin));
  });
}

void Updater::UpdateRange(const Range& range) {
  range.KeepOthers();
  const double rescale = Rescale();
  const size_t states = range.optimizer_states;
  range.ForEachPiece([&](const Piece& piece, int64_t begin, int64_t end) {
    const Range::Addresses at = range.At(begin);
    UpdateArgs args = ArgsOf(piece, rescale);
    args.squares = SquaresOf(range, piece);
    optimizer_->Update(range.block.dtype, args,
                       {.gradients = {at.gradients.data(), range.gradients.size()},
                        .weight = at.weight,
                        .new_weight = at.replicas[0],
                        .states = {at.states.data(), states},
                        .new_states = {at.new_states.data(), states},
                        .copies = {at.replicas.data() + 1, range.replicas.size() - 1},
                        .elements = end - begin});
    if (!average_) return;
    const void* const no_gradient[] = {at.replicas[0]};
    average_->kernel(range.block.dtype, AverageArgs(rates_.step),
                     {.gradients = no_gradient,
                      .weight = at.replicas[0],
                      .new_weight = at.replicas[0],
                      .states = {&at.states[states], 1},
                      .new_states = {&at.new_states[states], 1},
                      .elements = end - begin});
  });
}

}  // namespace bindery
