#include "executor/executor_group.h"

#include <algorithm>

#include "base/names.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/group/device_feed.h"
#include "executor/placed_executor_group.h"

namespace bindery {

void ExecutorGroup::SetWorkload(const std::vector<double>&) {
  Throw("the workload of a group with placements is that of its options");
}

void ExecutorGroup::Backward(const DeviceArrays& head_gradients) {
  if (head_gradients.size() != output_names().size()) {
    Throw("Backward: expected {} head gradients, one per output, got {}", output_names().size(), head_gradients.size());
  }
  RunBackward(head_gradients);
}

void ExecutorGroup::Backward(const std::vector<HostTensor>& head_gradients) { Backward(OnHost(head_gradients)); }

void ExecutorGroup::Backward(const std::map<std::string, HostTensor>& head_gradients) {
  const std::vector<std::string>& names = output_names();
  DeviceArrays by_head;
  for (const auto& [name, gradient] : head_gradients) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) Throw("Backward: \"{}\" is not an output{}", name, NameHint(name, names));
    if (std::find(found + 1, names.end(), name) != names.end()) {
      Throw("Backward: several heads are named \"{}\": give the gradients by position", name);
    }
    by_head.Set(static_cast<size_t>(found - names.begin()), bindery::OnHost(engine(), gradient));
  }
  RunBackward(by_head);
}

DeviceArrays ExecutorGroup::OnHost(const std::vector<HostTensor>& arrays) const {
  DeviceArrays on_host;
  for (const HostTensor& array : arrays) on_host.Set(on_host.size(), bindery::OnHost(engine(), array));
  return on_host;
}

std::unique_ptr<ExecutorGroup> MakeGroup(const Symbol& symbol, const GroupOptions& options) {
  if (options.placements.empty()) return std::make_unique<DataParallelExecutorGroup>(symbol, options);
  return std::make_unique<PlacedExecutorGroup>(symbol, options);
}

}  // namespace bindery
