// What MXNet computed, as models.py saved it, beside what is computed here.
#pragma once

#include <string>
#include <vector>

#include "base/device.h"

namespace bindery {

// The largest difference of a value's elements, over the largest of MXNet's elements or 1.
struct MxnetDifference {
  std::string what;  // "output:0", "grad:fc1_weight"
  double difference = 0;
};

// A model NAME in a folder, loaded as a user would: its predictions, the gradients of the first step, the outputs of
// all steps, and parameters and running statistics after the last. Throws Error where there is nothing to compare.
std::vector<MxnetDifference> CompareMxnetModel(const std::string& folder, const std::string& name,
                                               const std::vector<Device>& devices,
                                               const std::vector<double>& workload = {});
// A BucketingModule's: outputs of all steps, whatever their keys are, and parameters after the last.
std::vector<MxnetDifference> CompareMxnetBuckets(const std::string& folder, const std::vector<Device>& devices,
                                                 const std::vector<double>& workload = {});
// A module's whose states go from each batch to the next: the same.
std::vector<MxnetDifference> CompareMxnetStates(const std::string& folder, const std::vector<Device>& devices,
                                                const std::vector<double>& workload = {});
// An operator NAME: outputs and gradients.
std::vector<MxnetDifference> CompareMxnetOperator(const std::string& folder, const std::string& name,
                                                  Device device = Cpu(0));

}  // namespace bindery
