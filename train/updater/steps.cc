// Updater: what is pushed for a step, batch by batch.
#include "engine/backend.h"
#include "kvstore/exchanged_value.h"
#include "train/metrics/step_measurement.h"
#include "train/updater/rows.h"
#include "train/updater/updater.h"

namespace bindery {

StepRates Updater::RatesOf(int64_t step, int64_t samples) const {
  // With processes, by what they say of theirs: it is the same for all.
  const double automatic = divide_by_samples_ && !processes_ ? 1.0 / static_cast<double>(samples) : 1.0;
  const double means = means_of_pieces_.value_or(false) && !processes_ ? static_cast<double>(pieces_) : 1.0;
  return {.learning_rate = LearningRateOf(step),
          .rescale = optimizer_->options().rescale_gradient.value_or(automatic) / means / run_->loss_scale.scale,
          .step = step};
}

void Updater::Compute(const BatchPtr& batch) {
  const int64_t samples = CheckMicroBatches({&batch, 1});
  if (adds_up_) group_->ZeroGradients();
  ForwardBackward({&batch, 1}, samples, {});
}

int64_t Updater::Compute(std::span<const BatchPtr> micro_batches, const std::function<void(size_t)>& measure,
                         bool checked) {
  const int64_t samples = CheckMicroBatches(micro_batches, !checked);
  if (adds_up_) group_->ZeroGradients();
  ForwardBackward(micro_batches, samples, measure);
  return samples;
}

int64_t Updater::CheckMicroBatches(std::span<const BatchPtr> micro_batches, bool values) const {
  if (micro_batches.empty()) Throw("Update: no batches");
  if (micro_batches.size() > StepBlock::kPrediction) {
    Throw("Update: a step has at most {} micro-batches, got {}", StepBlock::kPrediction, micro_batches.size());
  }
  if (blocks_of_step_ && micro_batches.size() > 1) {
    Throw("Update: a batch is computed in blocks of {} samples: give all of it, got {} micro-batches",
          blocks_of_step_->block(), micro_batches.size());
  }
  if (micro_batches.size() > 1 && !means_of_pieces_) {
    Throw<ModelError>(
        "some heads divide by what a batch has (valid labels, or the samples of a mean) and others do not: in "
        "micro-batches they would weigh otherwise");
  }
  for (size_t i = 0; micro_batches.size() > 1 && i < group_->param_names().size(); ++i) {
    if (group_->grad_req(group_->param_names()[i]) == GradReq::kWrite)
      Throw("micro-batches add up: bind the group with grad_req = GradReq::kAdd");
  }
  int64_t samples = 0;
  for (const BatchPtr& batch : micro_batches) {
    if (!batch) {
      Throw<DataError>(
          "there is no batch: where Next gave none, the iterator's epoch is over, and Reset begins another");
    }
    samples += group_->CheckBatch(*batch, Mode::kTrain, values);
  }
  return samples;
}

// Whoever writes a variable anew takes an error from it. So each piece's is kept beside it, and put back at the end.
// Devices that compute blocks of their own have a row each: with one gate for all, they would wait for each other.
void Updater::PrepareKeptGates() {
  if (!kept_gates_.empty()) return;
  Engine& engine = *group_->engine();
  const auto prepare = [&](const char* name, Device device, std::vector<VarPtr> reads, const VarPtr& writes) {
    return engine.Prepare(
        {.name = name, .device = device, .reads = std::move(reads), .writes = {writes}, .run = [](const OpContext&) {
         }});
  };
  std::vector<VarPtr> all;
  for (size_t row = 0, rows = blocks_of_step_ ? group_->devices().size() : 1; row < rows; ++row) {
    const Device own = group_->devices()[row], device = blocks_of_step_ && HostAddressable(own) ? own : Cpu();
    const VarPtr gate = blocks_of_step_ ? engine.NewVar() : refused_, kept = all.emplace_back(engine.NewVar());
    kept_gates_.push_back({.gate = gate,
                           .kept = kept,
                           .begin = prepare("begin of pieces", device, {}, kept),
                           .keep = prepare("piece", device, {gate, kept}, kept)});
  }
  end_of_gates_ = prepare("end of pieces", Cpu(), all, refused_);
}

template <class Lane, class Function>
void Updater::RunPieces(size_t pieces, int64_t samples, const std::function<void(size_t)>& measure, const Lane& lane,
                        const Function& run) {
  const bool keeps = measure && (pieces > 1 || blocks_of_step_);
  if (keeps) PrepareKeptGates();
  Engine& engine = *group_->engine();
  for (const KeptGate& gate : kept_gates_) {
    if (keeps) engine.Push(gate.begin);
  }
  StepNumber number{.step = static_cast<uint64_t>(run_->step),
                    .batch_size = samples,
                    .loss_scale = run_->loss_scale.scale,
                    .rates = RatesOf(run_->step + 1, samples),
                    .tentative = true,
                    .checked = true};
  struct Leave {  // what runs by other hands is no part of a step, whatever is thrown here
    Updater* updater;
    uint64_t step;
    ~Leave() {
      updater->group_->SetStep({.step = step});
      updater->measured_gate_ = nullptr;
    }
  } leave{this, number.step};
  for (size_t i = 0; i < pieces; ++i) {
    if (!blocks_of_step_) number.micro_batch = static_cast<uint32_t>(i);  // each block begins with the states
    number.continues = i > 0;
    group_->SetStep(number);
    run(i);
    const KeptGate* const gate = keeps ? &kept_gates_[lane(i)] : nullptr;
    if (gate) measured_gate_ = &gate->gate;
    if (measure) measure(i);
    if (gate) engine.Push(gate->keep);
  }
  if (keeps) engine.Push(end_of_gates_);
}

void Updater::ForwardBackward(std::span<const BatchPtr> micro_batches, int64_t samples,
                              const std::function<void(size_t)>& measure) {
  pieces_ = micro_batches.size();
  if (!blocks_of_step_) {
    const auto first = [](size_t) { return size_t{0}; };
    const auto run = [&](size_t i) { group_->ForwardBackward(micro_batches[i]); };
    RunPieces(micro_batches.size(), samples, measure, first, run);
    return;
  }
  const std::vector<BlockStep::Piece> pieces = blocks_of_step_->Begin(micro_batches[0], samples);
  const auto device = [&](size_t i) { return pieces[i].device; };
  const auto run = [&](size_t i) {
    group_->Forward(pieces[i].batches, Mode::kTrain);
    group_->Backward();
    blocks_of_step_->EndPiece(i);
  };
  RunPieces(pieces.size(), samples, measure, device, run);
  blocks_of_step_->End();
}

void Updater::SetWorkload(const std::vector<double>& workload) {
  if (blocks_of_step_) {
    blocks_of_step_->SetWorkload(workload);
  } else {
    group_->SetWorkload(workload);
  }
}

const std::vector<double>& Updater::workload() const {
  return blocks_of_step_ ? blocks_of_step_->workload() : group_->options().workload;
}

int64_t Updater::block() const { return blocks_of_step_ ? blocks_of_step_->block() : 0; }

void Updater::Update(const BatchPtr& batch) { Update({&batch, 1}); }

void Updater::Update(std::span<const BatchPtr> micro_batches) {
  const int64_t samples = CheckMicroBatches(micro_batches);
  FinishLast();
  const Joining together = Together();
  Forgive();
  if (adds_up_) group_->ZeroGradients();
  ForwardBackward(micro_batches, samples, {});
  Apply(samples);
}

void Updater::Apply(int64_t samples) {
  if (samples < 1) Throw("Apply: gradients are of at least 1 sample, got {}", samples);
  // The first step does not reach all: what it does not, has itself as its average.
  if (average_ && for_several_groups_ && run_->step == 0) {
    for (const BlockState& block : (steps_of_ ? steps_of_ : this)->blocks_) {
      const Tensor& average = block.states[0].slots[0].back();
      average.CopyFrom(StoredBlock(block).values[0]);
      average.Wait();
    }
  }
  ++run_->step;
  if (shared_) shared_->states.clear();
  if (!blocks_.empty()) {
    group_->SetRates(RatesOf(run_->step, samples));
    const auto word = WordOf(samples);
    pieces_ = 1;
    if (store_) store_->BeginStep(run_->loss_scale.scale, committed_);
    for (const BlockState& block : blocks_) {
      for (const auto& value : block.exchanged) value->Exchange();
    }
    update_.Push(word);
    finish_[run_->step % kInFlight].Push();
  }
  commit_[run_->step % kInFlight].Push();
  if (store_) store_->EndStep();
  run_->scale_before[run_->step % kInFlight] = run_->loss_scale;
  if (loss_scaling_) run_->loss_scale = AfterCommit(*loss_scaling_, run_->loss_scale);  // else Finish goes back
}

void Updater::Measure(const Metric& metric, StepMeasurement* measurement) {
  measurement->Push(*group_, metric, measured_gate_ ? *measured_gate_ : refused_, status_);
}

Joining Updater::Together() const {
  if (!alone_) return {};
  return {group_->engine().get(), *alone_};
}

void Updater::Verdict::Reach(size_t slot) {
  for (const Tensor& tensor : statuses[slot]) {
    const StepStatus& status = *static_cast<const StepStatus*>(tensor.data());
    if (status.kind == StepStatus::kGood) continue;
    if (status.kind == StepStatus::kRefused) {  // what refused it has said more
      Throw<DataError>("a kernel or a metric refused the data of this step, or of one before");
    }
    overflowed = true;
    ThrowNotFinite(names[static_cast<size_t>(status.place)], status.element, status.value);
  }
  ++committed;
}

}  // namespace bindery
