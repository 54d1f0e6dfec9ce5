// Trainer: what several processes do together, beside the steps themselves (train/updater/process_sums.cc).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/files.h"
#include "base/log.h"
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

void Trainer::LeaveProcesses(const std::exception& error) const noexcept {
  if (!InProcesses()) return;
  const auto* own = dynamic_cast<const Error*>(&error);
  options_.processes->Leave(own ? own->message() : error.what());
}

void Trainer::CheckParts(const DataIter& data, bool for_training) const {
  const int64_t parts = data.parts(), processes = options_.processes->size();
  if (parts == processes || (parts == 1 && !for_training)) return;
  Throw<DataError>(
      "{} processes train together, but their data come in {} part{}: each needs a part of its own "
      "(SampleIterOptions::part, or a PartIter around another iterator)",
      processes, parts, parts == 1 ? "" : "s");
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
  const std::vector<std::string> all = options_.processes->AllGather(mine);
  for (size_t process = 1; process < all.size(); ++process) {
    std::istringstream first(all[0]), other(all[process]);
    std::string a, b;
    while (a == b && (std::getline(first, a), std::getline(other, b))) {
    }
    if (a == b) continue;
    Throw("the processes do not train the same: process 0 has {}, process {} has {}", a, process, b);
  }
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
  return CheckpointFromBytes(bytes);
}

// All processes must end before the same step: after one that was settled, and in which somebody asked for it.
bool Trainer::IsAskedToStop() const {
  if (!InProcesses()) return stop_.load(std::memory_order_relaxed);
  return updater_ && updater_->StopAskedAt() <= updater_->step() - in_flight_;
}

}  // namespace bindery
