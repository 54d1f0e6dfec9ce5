// Trainer: what several processes do together, beside the steps themselves (train/updater/process_update.cc).
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/files.h"
#include "engine/backend.h"
#include "train/metrics/training_metric.h"
#include "train/trainer.h"

namespace bindery {
namespace {

uint64_t ChecksumOf(const HostTensorMap& values) {
  uint64_t checksum = 0;
  for (const auto& [name, value] : values) checksum = Checksum(value.raw(), value.bytes(), checksum);
  return checksum;
}

bool IsSummed(const HostTensor& value) { return value.dtype() == DType::kFloat32 || value.dtype() == DType::kFloat64; }

}  // namespace

int Trainer::ThreadsPerDevice() const {
  if (!InProcesses() || options_.threads_per_device != 0) return options_.threads_per_device;
  const std::set<Device> devices(options_.devices.begin(), options_.devices.end());
  const auto cpus = static_cast<int>(std::ranges::count_if(devices, HostAddressable));
  return std::max(1, options_.processes->cores() / std::max(1, cpus));
}

void Trainer::LeaveProcesses(const std::exception& error) const noexcept {
  // While a device hangs nothing has failed: the next Fit goes on.
  if (!InProcesses() || dynamic_cast<const HangError*>(&error)) return;
  const auto* own = dynamic_cast<const Error*>(&error);
  options_.processes->Leave(own ? own->message() : error.what());
}

// What all have computed alike, by machines that may round otherwise: then what follows goes by the first one's.
void Trainer::TakeOfFirst(NamedValues* values) const {
  if (!InProcesses()) return;
  for (auto& [name, value] : *values) options_.processes->Broadcast(&value, sizeof(value));
}

void Trainer::CheckParts(const DataIter& data, bool for_training) const {
  const int64_t parts = data.parts(), processes = options_.processes->size();
  if (parts == processes || (parts == 1 && !for_training)) return;
  Throw<DataError>(
      "{} processes train together, but their data come in {} part{}: each needs a part of its own "
      "(SampleIterOptions::part, or a PartIter around another iterator)",
      processes, parts, parts == 1 ? "" : "s");
}

// The place of one is that of all: they have the same sweeps, in the same order.
void Trainer::CheckSameData(const DataIter& data) const {
  if (!InProcesses()) return;
  std::string mine = fmt::format("{} samples\nbatches of {}\n", data.samples(), data.batch_size());
  for (const auto& [name, value] : data.SaveState()) {
    if (name != "skipped") mine += fmt::format("{} {}\n", name, value);  // damaged samples, of each part
  }
  options_.processes->CheckSame(mine, "the processes do not train on parts of the same data");
}

// Line by line what must be the same.
void Trainer::JoinProcesses(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels,
                            ExecutorGroup* group) const {
  if (!InProcesses()) return;
  const std::string graph = SerializeModel({.symbol = symbol_});
  std::string mine = fmt::format("graph {:016x}\n", Checksum(graph.data(), static_cast<int64_t>(graph.size())));
  for (const auto* arrays : {&data, &labels}) {
    for (const DataDesc& desc : *arrays) {
      const Shape sample = desc.BatchAxis() >= 0 ? desc.shape.Erase(desc.BatchAxis()) : desc.shape;
      mine += fmt::format("array \"{}\" of {} {}\n", desc.name, desc.dtype, sample);
    }
  }
  mine += fmt::format("optimizer {}\nschedule {}\n", options_.optimizer, options_.schedule);
  mine += fmt::format("precision {}\nloss scale {}\naverage {}\n", options_.precision, options_.loss_scale,
                      options_.average);
  mine += fmt::format("multipliers {}\nfixed parameters {}\n", ToText(options_.multipliers),
                      fmt::join(options_.fixed_params, ", "));
  mine += fmt::format("metrics {}\nseed {}\nstep {}\n", MetricsText(), options_.seed, pending_ ? pending_->step : 0);
  options_.processes->CheckSame(mine, "the processes do not train the same");
  ShareValues(/*merge_statistics=*/false, group);
}

// Parameters are those of the first process; on machines of one kind all have the same already, once they have begun.
// Running statistics are of each one's own samples: their means over the processes, or the first one's.
void Trainer::ShareValues(bool merge_statistics, ExecutorGroup* group) const {
  if (!InProcesses()) return;
  Processes& processes = *options_.processes;
  HostTensorMap params, aux;
  group->GetParams(&params, &aux);
  std::vector<Processes::Values> sums;
  for (auto& [name, value] : aux) {
    if (merge_statistics && IsSummed(value)) {
      sums.push_back({value.dtype(), value.raw(), value.elements()});
    } else {
      processes.Broadcast(value.raw(), value.bytes());
    }
  }
  const std::vector<double> equal(static_cast<size_t>(processes.size()), 1.0 / processes.size());
  if (!sums.empty()) processes.AllReduceSum(sums, equal);
  const uint64_t mine = ChecksumOf(params);
  std::vector<uint64_t> all(static_cast<size_t>(processes.size()));
  processes.AllGather(&mine, all.data(), sizeof(mine));
  const bool same = std::ranges::count(all, mine) == processes.size();
  for (auto& [name, value] : params) {
    if (!same) processes.Broadcast(value.raw(), value.bytes());
  }
  if (!same || !aux.empty()) group->SetParams(params, aux);
}

void Trainer::SumOverProcesses(TrainingMetric* metric) const {
  if (!InProcesses() || metric->total_size() == 0) return;
  std::vector<double> total(metric->total().begin(), metric->total().end());
  total.resize(static_cast<size_t>(metric->total_size()), 0);  // of no batch, there is none
  const Processes::Values values[] = {{DType::kFloat64, total.data(), std::ssize(total)}};
  options_.processes->AllReduceSum(values);
  metric->SetTotal(std::move(total));
}

int64_t Trainer::SamplesOfAll() const {
  if (!InProcesses()) return samples_;
  std::vector<int64_t> all(static_cast<size_t>(options_.processes->size()));
  options_.processes->AllGather(&samples_, all.data(), sizeof(samples_));
  int64_t sum = 0;
  for (const int64_t samples : all) sum += samples;
  return sum;
}

std::optional<Checkpoint> Trainer::FromFirst(std::optional<Checkpoint> checkpoint) const {
  if (!InProcesses()) return checkpoint;
  std::string bytes = checkpoint ? CheckpointToBytes(*checkpoint) : "";
  options_.processes->Broadcast(&bytes);
  if (IsFirst() || bytes.empty()) return checkpoint;
  Checkpoint first = CheckpointFromBytes(bytes);
  std::ranges::fill(first.metric_totals, 0.0);  // of the first one's samples, which counts them
  return first;
}

// All processes must end before the same step: where one that is over on all of them, whatever is in flight, is that in
// which somebody asked for it.
bool Trainer::IsAskedToStop() const {
  if (!InProcesses()) return stop_.load(std::memory_order_relaxed);
  return updater_ && updater_->StopAskedAt() <= updater_->step() - Updater::kInFlight;
}

}  // namespace bindery
