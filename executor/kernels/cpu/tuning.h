// The fastest of several kernels for the same work, as measured on this machine.
//
// Each is run on memory of its own with the threads that it will have, one after another over the whole process, so
// that devices that are bound at the same time do not disturb each other; what its inputs and outputs cost to reorder
// in each run is measured, too, and added. The choice holds for the process, and in a text file of a folder of the user's for later
// ones: one file for each kind of machine, a line for each choice, found by all that the times depend on. A file that
// is damaged, or of other kernels than these, is made anew.
//
// The same choice gives the same bits; other choices, measured where there is no file, may differ by rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "executor/kernel.h"

namespace bindery::cpu {

struct TuningCandidate {
  std::string name;  // among the others; it is kept
  std::function<MaybeKernel()> make;
};
// The first candidate is that of the fixed rules, and stays unless another is clearly faster; nullopt if it declines.
// Formats of outputs are charged that are neither wished for nor the first candidate's. Where another one fails, or
// memory is short, the first is taken, nothing is kept, and a warning says why.
MaybeKernel ChooseMeasured(const KernelSpec& spec, const std::vector<TuningCandidate>& candidates);

// For tests: files are in this folder from now on, "" nowhere, and what was chosen is forgotten; how often candidates
// were measured in this process.
void UseTuningFolder(const std::string& folder);
int64_t NumTuningMeasurements();
std::string TuningFile();  // its path; "" nowhere

}  // namespace bindery::cpu
