#include "train/loop/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "base/error.h"
#include "executor/executor_group.h"

namespace bindery {

double RootMeanSquare(const HostTensor& value) {
  double squares = 0;
  for (int64_t i = 0; i < value.elements(); ++i) squares += value.At(i) * value.At(i);
  return value.elements() == 0 ? 0 : std::sqrt(squares / static_cast<double>(value.elements()));
}

Monitor::Monitor(MonitorOptions options) : options_(std::move(options)) {
  if (options_.interval < 1) Throw("a monitor's interval is at least 1, got {}", options_.interval);
  try {
    pattern_ = std::regex(options_.pattern);
  } catch (const std::regex_error& e) {
    Throw("\"{}\" is not a regular expression: {}", options_.pattern, e.what());
  }
  if (!options_.statistic) options_.statistic = RootMeanSquare;
}

bool Monitor::Begin(ExecutorGroup* group, int64_t step) {
  if ((step - 1) % options_.interval != 0) return false;
  step_ = step;
  watched_before_ = group->watch();
  group->Watch(options_.pattern);
  return true;
}

void Monitor::Cancel(ExecutorGroup* group) { group->Watch(watched_before_); }

std::vector<MonitorRecord> Monitor::End(ExecutorGroup* group) {
  struct Stop {
    Monitor* monitor;
    ExecutorGroup* group;
    ~Stop() { monitor->Cancel(group); }
  } stop{this, group};
  std::vector<MonitorRecord> records;
  for (const ExecutorGroup::Watched& watched : group->WatchedValues()) {
    records.push_back({step_, watched.device, watched.name, options_.statistic(watched.value)});
  }
  if (options_.arguments) AddArguments(*group, &records);
  if (options_.sorted) std::ranges::stable_sort(records, {}, &MonitorRecord::name);
  if (options_.sink) options_.sink(records);
  return records;
}

void Monitor::AddArguments(const ExecutorGroup& group, std::vector<MonitorRecord>* records) const {
  HostTensorMap params, aux;
  group.GetParams(&params, &aux);
  for (const HostTensorMap* values : {&std::as_const(params), &std::as_const(aux)}) {
    for (const auto& [name, value] : *values) {
      if (std::regex_search(name, pattern_)) records->push_back({step_, {}, name, options_.statistic(value)});
    }
  }
  std::map<std::string, std::vector<Tensor>> replicas;  // where they lie
  for (const ReplicatedParam& param : group.params()) replicas[param.name] = param.values;
  for (const auto& [name, value] : params) {
    const std::string gradient = name + "_grad";
    if (!std::regex_search(gradient, pattern_) || group.grad_req(name) == GradReq::kNull) continue;
    for (size_t d = 0; d < group.devices().size(); ++d) {
      const HostTensor share = group.GetGradient(name, static_cast<int>(d));
      const auto found = replicas.find(name);
      const Device device = found == replicas.end() ? group.devices()[d] : found->second[d].device();
      records->push_back({step_, device, gradient, options_.statistic(share)});
    }
  }
}

void Monitor::Print(const std::vector<MonitorRecord>& records) {
  for (const auto& [step, device, name, value] : records) {
    fmt::print(stderr, "step {} {}{} {:g}\n", step, name, device ? " on " + ToString(*device) : "", value);
  }
}

}  // namespace bindery
