// Updater, of several processes: what they must have in common, and what they say of their gradients.
#include <algorithm>

#include "train/updater/divisor.h"
#include "train/updater/updater.h"

namespace bindery {

void Updater::CheckProcesses() const {
  if (!processes_) return;
  if (store_) Throw("a store of one's own sums the gradients of one process: there is none with processes");
  if (steps_of_ || for_several_groups_) Throw("several groups have one updater's steps in one process only");
  if (blocks_of_step_) Throw("reproducible blocks are of one process: their bits would depend on the others");
  if (!OfHeads(group_->symbol(), IsMean)) {
    Throw<ModelError>("some heads give sums over samples and others means: over processes they would weigh otherwise");
  }
}

// Gradients lie as the kernels have their parameters, which go by the instruction set and by what devices there are.
void Updater::CheckSameLayout() const {
  std::string mine;
  for (const BlockState& block : blocks_) {
    for (const int index : StoredBlock(block).parameters) {
      const StoredParameter& p = block.stage->store().parameters()[index];
      mine += fmt::format("\"{}\" as {} {} at {}\n", p.name, p.dtype, p.format, p.offset);
    }
  }
  processes_->CheckSame(
      mine,
      "the processes do not store parameters alike, as devices of one kind with one instruction set do "
      "(BINDERY_MAX_ISA holds CPUs to one)");
}

// Sums count as they are; means by the samples that they are of, relative to what a process has on average.
std::vector<double> Updater::Shared::Hear(std::span<const ProcessExchange::Word> words) {
  int64_t samples = 0;
  bool asked = false;
  for (const ProcessExchange::Word& word : words) {
    samples += word.samples;
    asked |= word.asks != 0;
  }
  if (asked) asked_at.store(std::min(asked_at.load(), words[0].step));
  const auto processes = static_cast<double>(words.size()), all = static_cast<double>(samples);
  rescale = means ? 1 / processes : divides ? 1 / all : 1;
  std::vector<double> weights;
  for (const ProcessExchange::Word& word : words) {
    if (means) weights.push_back(static_cast<double>(word.samples) * word.weight * processes / all);
  }
  return weights;
}

std::shared_ptr<const ProcessExchange::Word> Updater::WordOf(int64_t samples) const {
  if (!shared_) return nullptr;
  ProcessExchange::Word word{.step = run_->step, .samples = samples, .asks = asks_to_stop_};
  if (means_of_pieces_.value_or(false)) word.weight = 1 / static_cast<double>(pieces_);
  return std::make_shared<const ProcessExchange::Word>(word);
}

}  // namespace bindery
