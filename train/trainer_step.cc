// Trainer: its steps in flight, and what becomes of those that fail.
#include "train/trainer_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/log.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/update.h"
#include "executor/sample_error.h"
#include "train/loop/steps_in_flight.h"
#include "train/metrics/training_metric.h"
#include "train/trainer.h"

namespace bindery {

std::string WithoutOperation(const std::string& message) {
  const std::string failed = " failed: ";
  const size_t end = message.find(failed);
  return message.starts_with("operation ") && end != std::string::npos ? message.substr(end + failed.size()) : message;
}

Trainer::~Trainer() { WaitForAll(updater_.get(), std::span(flying_, static_cast<size_t>(in_flight_))); }

std::vector<BatchPtr> Trainer::Pieces(const BatchPtr& batch) const {
  const int64_t samples = group_->CheckBatch(*batch, Mode::kTrain);
  const auto at_once = static_cast<int64_t>(group_->devices().size()) * cut_.block;  // in blocks
  return CutBatch(batch, group_->options(), samples,
                  cut_.block != 0 ? CeilDiv(samples, at_once) : cut_.PiecesOf(samples));
}

bool Trainer::BeginMeasuring(DataIter* iterator) {
  ++untouched_;
  while (in_flight_ > 0) {
    if (!Settle(iterator)) return false;
  }
  --untouched_;
  return true;
}

bool Trainer::Step(const BatchPtr& batch, DataIter* iterator) {
  const bool measures = balancer_.IsDue();
  if (measures && !BeginMeasuring(iterator)) return false;
  if (in_flight_ == Updater::kInFlight) {
    ++untouched_;  // if the oldest failed, this batch goes back too
    if (!Settle(iterator)) return false;
    --untouched_;
  }
  InFlight& step = flying_[in_flight_];
  step.batch = batch;
  step.after = iterator->SaveState();
  step.measurement.Begin();
  // The metric has a say in whether the step is committed: it refuses outputs that are not finite, and labels.
  const auto measure = [this, &step](size_t) { updater_->Measure(*metric_, &step.measurement); };
  const Joining together = updater_->Together();
  balancer_.BeginStep(updater_.get());
  const auto begun = std::chrono::steady_clock::now();
  step.samples = cut_.pieces == 1 ? updater_->Compute({&batch, 1}, measure)
                                  : updater_->Compute(Pieces(batch), measure, /*checked=*/true);
  if (measures) {
    std::vector<int64_t> samples;
    for (size_t d = 0; d < group_->devices().size(); ++d) samples.push_back(step.measurement.Samples(d));
    balancer_.Measure(*updater_, *group_, samples, begun);
  }
  if (InProcesses() && stop_.load(std::memory_order_relaxed)) updater_->AskToStop();
  updater_->Apply(step.samples);
  step.step = updater_->step();
  samples_ += step.samples;
  ++in_flight_;  // what throws before is not in flight
  return true;
}

bool Trainer::Settle(DataIter* iterator) {
  std::exception_ptr error;
  bool committed = false;
  const double scale = updater_->loss_scale().scale;
  try {
    committed = updater_->Finish(flying_[0].step);
  } catch (const HangError&) {
    GiveBackUntouched(flying_[in_flight_ - 1].after, iterator);
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  if (committed) flying_[0].measurement.MergeInto(metric_.get());
  // The oldest leaves; its measurement is used again.
  std::rotate(flying_, flying_ + 1, flying_ + in_flight_);
  --in_flight_;
  InFlight& settled = flying_[in_flight_];
  const BatchPtr batch = std::move(settled.batch);
  if (committed) return true;
  // The iterator goes to where this step was the last one. Those behind it did nothing.
  if (error) updater_->GoBack(settled.step);
  samples_ -= settled.samples;
  for (int64_t i = 0; i < in_flight_; ++i) {
    flying_[i].batch = nullptr;
    samples_ -= flying_[i].samples;
    ++untouched_;
  }
  in_flight_ = 0;
  GiveBackUntouched(settled.after, iterator);
  if (error) std::rethrow_exception(Explain(error, batch, settled.step));
  if (IsOnceMore(*updater_, settled.step, scale, iterator != nullptr)) Step(batch, iterator);
  return false;
}

void Trainer::GiveBackUntouched(const IterState& after, DataIter* iterator) {
  const int64_t batches = std::exchange(untouched_, 0);
  if (batches == 0 || !iterator) return;  // without it, the batches behind the failed one are left out like that
  batch_in_epoch_ -= batches;
  iterator->LoadState(after);
}

bool Trainer::SettleAll(DataIter* iterator) {
  bool all = true;
  while (in_flight_ > 0) all = Settle(iterator) && all;
  return all;
}

namespace {

// Empty where all of an array are; else " (element 3 is nan, of sample 1 of the batch, row 7 of the data)".
std::string WhereNotFinite(const HostTensor& array, int batch_axis, const std::vector<int64_t>& rows) {
  if (flat::AllFinite(array.dtype(), array.raw(), array.elements())) return {};
  StepStatus status;
  flat::CheckFinite(array.dtype(), array.raw(), array.elements(), 0, 0, &status);
  std::string sample;
  if (batch_axis >= 0) {
    const int64_t number = status.element / array.shape().CountFrom(batch_axis + 1) % array.shape()[batch_axis];
    sample = ", of " + SampleText(number, rows);
  }
  return fmt::format(" (element {} is {}{})", status.element, status.value, sample);
}

// Empty where all are. `first_sample`: of the step, the first of the batch that was watched.
std::string WhereNotFinite(const ExecutorGroup::Watched& watched, int64_t first_sample) {
  StepStatus status;
  const HostTensor& value = watched.value;
  flat::CheckFinite(value.dtype(), value.raw(), value.elements(), 0, 0, &status);
  if (status.kind == StepStatus::kGood) return {};
  std::string sample;
  if (watched.type.batch_axis >= 0) {
    const Shape view = watched.type.SampleView();
    const int64_t of_share = status.element / view[2] % view[1];
    sample = ", of " + SampleText(first_sample + watched.first_sample + of_share, {});
  }
  return fmt::format(" (the first such value is in \"{}\" on {}: element {} is {}{})", watched.name, watched.device,
                     status.element, status.value, sample);
}

// Empty where all of its arrays are, as far as they are on the host.
std::string WhereNotFinite(const Batch& batch, const GroupOptions& options) {
  for (const auto& [what, arrays, descs] :
       {std::tuple("input", &batch.data, &options.data), std::tuple("label", &batch.label, &options.labels)}) {
    for (size_t i = 0; i < arrays->size() && i < descs->size(); ++i) {
      const std::string place = WhereNotFinite((*arrays)[i], (*descs)[i].BatchAxis(), batch.index);
      if (!place.empty()) return fmt::format(", nor is its {} \"{}\"{}", what, (*descs)[i].name, place);
    }
  }
  return {};
}

}  // namespace

std::exception_ptr Trainer::Explain(std::exception_ptr error, const BatchPtr& batch, int64_t step) {
  try {
    std::rethrow_exception(error);
  } catch (const NumericError& e) {
    const std::string failed = fmt::format("{} at step {}", WithoutOperation(e.message()), step);
    const std::string in_data = WhereNotFinite(*batch, group_->options());
    if (!in_data.empty()) {  // no learning rate helps
      return std::make_exception_ptr(NumericError(fmt::format("{}{}: the data are not finite", failed, in_data)));
    }
    return std::make_exception_ptr(
        NumericError(fmt::format("{}{}: training has diverged; lower the learning rate {}or look at the data", failed,
                                 FirstBadValue(batch, step), updater_->loss_scaling() ? "or the loss scale " : "")));
  } catch (...) {
    return error;
  }
}

// Runs the step's forward and backward again with all values watched. Parameters are as they were.
std::string Trainer::FirstBadValue(const BatchPtr& batch, int64_t step) {
  std::string found;
  const std::string watched = group_->watch();
  try {
    group_->Watch(".*");
    uint32_t number = 0;
    int64_t first_sample = 0;  // of the piece
    for (const BatchPtr& piece : Pieces(batch)) {
      group_->SetStep({.step = static_cast<uint64_t>(step - 1),
                       .micro_batch = number++,
                       .loss_scale = updater_->loss_scale().scale,
                       .tentative = true});
      group_->Forward(piece, Mode::kTrain);
      group_->Backward();
      for (const ExecutorGroup::Watched& watched : group_->WatchedValues()) {
        found = WhereNotFinite(watched, first_sample);
        if (!found.empty()) break;
      }
      if (!found.empty()) break;
      first_sample += group_->CheckBatch(*piece, Mode::kTrain, /*values=*/false);
    }
  } catch (const std::exception& e) {
    LogLine(LogLevel::kWarning, fmt::format("cannot tell which value was not finite first: {}", e.what()));
  }
  group_->Watch(watched);
  group_->SetStep({.step = static_cast<uint64_t>(updater_->step())});
  return found;
}

}  // namespace bindery
