#include "train/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/cpu/pages.h"
#include "engine/cuda/report.h"

namespace bindery {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

// Bytes of parameters that are trained.
int64_t TrainedBytes(const Plan& plan) {
  std::set<int> trained;
  for (const PlanGradient& gradient : plan.gradients) {
    if (plan.ArgumentOf(gradient).is_parameter()) trained.insert(gradient.argument);
  }
  int64_t bytes = 0;
  for (const int argument : trained) bytes += plan.arguments[static_cast<size_t>(argument)].bytes();
  return bytes;
}

// Adds what train/updater keeps: on the host one state, where the host updates; else new weights and sums on each
// device, and of the states its range, twice.
void AddOptimizer(const GroupOptions& options, int64_t trained, int64_t states, const Optimizer& optimizer,
                  std::vector<MemoryNeed>* needs) {
  const auto updates = [&](const Device& device) {
    return Backend::Of(device.kind).flat().HasUpdate(optimizer.kernel(), optimizer.measure());
  };
  if (std::ranges::all_of(options.devices, HostAddressable) || !std::ranges::all_of(options.devices, updates)) {
    if (HostAddressable(needs->front().device)) needs->front().optimizer = states * trained;
    return;
  }
  const auto devices = static_cast<int64_t>(options.devices.size());
  for (MemoryNeed& need : *needs) need.optimizer = 2 * trained + CeilDiv(2 * states * trained, devices);
}

bool IsHosts(const Device& device) { return device.kind == DeviceKind::kCpu; }

// Of a device that has memory of its own.
int64_t MemoryOf(const Device& device) {
  if (device.kind != DeviceKind::kCuda) return kNoEnd;
  const CudaReport report = ReportCuda();
  const auto index = static_cast<size_t>(device.index);
  return index < report.gpus.size() ? report.gpus[index].bytes / 8 * 7 : 0;
}

int64_t MostWorking(const std::vector<MemoryNeed>& needs) {
  int64_t most = 0;
  for (const MemoryNeed& need : needs) most = std::max(most, need.program.arena);
  return most;
}

std::string Short(const std::string& who, int64_t needed, int64_t there) {
  return fmt::format("{} needs {} and has {}", who, Mebibytes(needed), Mebibytes(there));
}

// What is left for each device's working memory.
int64_t WorkingBytes(const std::vector<MemoryNeed>& needs, int64_t limit) {
  int64_t left = kNoEnd, of_hosts = AvailableMemory(), hosts = 0;
  for (const MemoryNeed& need : needs) {
    const int64_t others = need.total() - need.program.arena;
    if (limit == 0 && IsHosts(need.device)) {
      of_hosts -= others;
      ++hosts;
    } else {
      left = std::min(left, (limit > 0 ? limit : MemoryOf(need.device)) - others);
    }
  }
  return hosts > 0 ? std::min(left, of_hosts / hosts) : left;
}

}  // namespace

std::string Mebibytes(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::vector<MemoryNeed> NeedsOf(const std::vector<DevicePlan>& plans, const GroupOptions& options,
                                const Optimizer* optimizer, bool average) {
  std::vector<MemoryNeed> needs;
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto& [device, samples, plan] = plans[i];
    std::vector<const Plan*> beside;
    for (size_t other = 0; other < i; ++other) {
      if (ShareMemory(plans[other].device, device)) beside.push_back(&plans[other].plan);
    }
    needs.push_back({.device = device, .samples = samples.size(), .program = ReportMemory(plan, beside)});
  }
  if (!options.for_training || !optimizer || plans.empty()) return needs;
  AddOptimizer(options, TrainedBytes(plans[0].plan), optimizer->state_count() + (average ? 1 : 0), *optimizer, &needs);
  return needs;
}

std::vector<MemoryNeed> PlanMemory(const Symbol& symbol, const GroupOptions& options, const Optimizer* optimizer,
                                   bool average) {
  if (!options.placements.empty()) {
    Throw(
        "memory is planned for parts that lie together: with placements, give the number of micro-batches and "
        "the bytes of the mirror");
  }
  return NeedsOf(DataParallelExecutorGroup::MakePlans(symbol, options), options, optimizer, average);
}

std::string WhatIsShort(const std::vector<MemoryNeed>& needs, int64_t limit) {
  int64_t of_host = 0;
  std::vector<std::string> hosts;
  for (const MemoryNeed& need : needs) {
    if (limit == 0 && IsHosts(need.device)) {
      of_host += need.total();
      hosts.push_back(ToString(need.device));
      continue;
    }
    const int64_t there = limit > 0 ? limit : MemoryOf(need.device);
    if (need.total() > there) return Short(ToString(need.device), need.total(), there);
  }
  if (hosts.empty()) return {};
  const int64_t there = AvailableMemory();
  const char* const together = hosts.size() > 1 ? " together" : "";
  return of_host > there ? Short(fmt::format("{}{}", fmt::join(hosts, ", "), together), of_host, there) : "";
}

int64_t LargestThatFits(int64_t most, const std::function<bool(int64_t)>& fits) {
  int64_t fitting = 0, above = most + 1;  // the least that is known not to fit
  for (int64_t next = 1; next < above; next = std::min(2 * next, most)) {
    if (!fits(next)) {
      above = next;
      break;
    }
    fitting = next;
    if (next == most) return most;
  }
  while (above - fitting > 1) {
    const int64_t middle = fitting + (above - fitting) / 2;
    (fits(middle) ? fitting : above) = middle;
  }
  return fitting;
}

std::optional<Mirror> FitMirror(const Symbol& symbol, const GroupOptions& options, const Optimizer* optimizer,
                                bool average, int64_t limit, std::string* lacking) {
  GroupOptions tried = options;
  tried.mirror = {};
  const std::vector<MemoryNeed> without = PlanMemory(symbol, tried, optimizer, average);
  *lacking = WhatIsShort(without, limit);
  if (lacking->empty()) return Mirror{};
  tried.mirror.bytes = WorkingBytes(without, limit);
  if (tried.mirror.bytes > 0) {
    try {
      const std::vector<MemoryNeed> with = PlanMemory(symbol, tried, optimizer, average);
      if (WhatIsShort(with, limit).empty()) {
        LogLine(LogLevel::kInfo, fmt::format("working memory is {} in place of {}, as backward computes some values "
                                             "again: without, {}",
                                             Mebibytes(MostWorking(with)), Mebibytes(MostWorking(without)), *lacking));
        return tried.mirror;
      }
    } catch (const DeviceError&) {  // it says how many bytes are too few, of one device
    }
  }
  tried.mirror = {.least = true};
  *lacking = WhatIsShort(PlanMemory(symbol, tried, optimizer, average), limit);
  return std::nullopt;
}

MicroBatches FitMicroBatches(const Symbol& symbol, const GroupOptions& whole, const Optimizer* optimizer, bool average,
                             int64_t limit) {
  const int64_t batch_size = BatchSizeOf(whole.data);
  const bool mirrors = whole.mirror.bytes == Mirror::kAutomatic;
  const auto plan = [&](int64_t samples) {
    GroupOptions options = samples == batch_size ? whole : ForMicroBatches(whole, samples);
    if (mirrors) options.mirror = {.least = true};
    return PlanMemory(symbol, options, optimizer, average);
  };
  const auto fits = [&](int64_t samples) { return WhatIsShort(plan(samples), limit).empty(); };
  const std::vector<MemoryNeed> at_once = plan(batch_size);
  const std::string lacking = WhatIsShort(at_once, limit);
  if (lacking.empty()) return {.pieces = 1, .batch_size = batch_size};
  const int64_t largest = batch_size == 1 ? 0 : LargestThatFits(batch_size - 1, fits);
  if (largest == 0) {
    const std::vector<MemoryNeed> needs = plan(1);
    const auto most = [](const std::vector<MemoryNeed>& of) {
      return *std::ranges::max_element(of, {}, &MemoryNeed::total);
    };
    const MemoryNeed need = most(needs);
    const MemoryReport& program = need.program;
    // Gradients that add up take room of their own beside their sum, which a small batch at once may not.
    const int64_t least = std::min(need.total(), most(at_once).total());
    Throw<DeviceError>(
        "not even one sample at a time can be trained on: {}; {} for parameters and running statistics, {} for "
        "gradients, {} for the optimizer, {} for inputs and working memory{}",
        WhatIsShort(needs, limit), Mebibytes(program.parameters + program.derived + program.auxiliary),
        Mebibytes(program.gradients), Mebibytes(need.optimizer), Mebibytes(program.inputs + program.arena),
        limit > 0 ? fmt::format("; it takes a limit of {} bytes at least", least) : "");
  }
  // Pieces as equal as possible may be smaller than the largest that fits; and what is smaller fits but for kernels
  // that want more, which is looked at.
  MicroBatches cut{.pieces = CeilDiv(batch_size, largest), .batch_size = batch_size};
  while (cut.largest() != largest && cut.largest() > 1 && !fits(cut.largest())) ++cut.pieces;
  LogLine(LogLevel::kInfo, fmt::format("a batch of {} samples is computed in {} micro-batches of up to {}: at once {}",
                                       batch_size, cut.pieces, cut.largest(), lacking));
  return cut;
}

BatchPlan PlanBatch(int64_t pieces, int64_t limit, const Symbol& symbol, const GroupOptions& whole,
                    const Optimizer* optimizer, bool average) {
  if (limit < 0) Throw("memory_limit: expected bytes of each device, got {}", limit);
  CheckMirror(whole.mirror);
  const bool mirrors = whole.mirror.bytes == Mirror::kAutomatic, cuts = pieces == MicroBatches::kAutomatic;
  if (limit > 0 && !mirrors && !cuts) {
    Throw(
        "memory_limit is for micro_batches = MicroBatches::kAutomatic and mirror.bytes = Mirror::kAutomatic, got {} "
        "micro-batches",
        pieces);
  }
  const int64_t batch_size = BatchSizeOf(whole.data);
  if (!cuts && (pieces < 1 || pieces > batch_size)) {
    Throw("micro_batches: a batch of {} samples makes 1 to {} of them, got {}", batch_size, batch_size, pieces);
  }
  BatchPlan plan{.cut = {.pieces = cuts ? 1 : pieces, .batch_size = batch_size}, .mirror = whole.mirror};
  if (!mirrors || !whole.for_training) {
    if (cuts) plan.cut = FitMicroBatches(symbol, whole, optimizer, average, limit);
    if (mirrors) plan.mirror = {};
    return plan;
  }
  std::string lacking;
  const auto fit = [&] {
    const GroupOptions options = plan.cut.pieces == 1 ? whole : ForMicroBatches(whole, plan.cut.largest());
    const std::optional<Mirror> mirror = FitMirror(symbol, options, optimizer, average, limit, &lacking);
    if (mirror) plan.mirror = *mirror;
    return mirror.has_value();
  };
  if (fit()) return plan;
  if (cuts) {
    plan.cut = FitMicroBatches(symbol, whole, optimizer, average, limit);
    if (fit()) return plan;
  }
  Throw<DeviceError>("a batch of {} samples cannot be trained on, whatever is computed again: {}", plan.cut.largest(),
                     lacking);
}

}  // namespace bindery
