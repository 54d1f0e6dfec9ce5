// Update rules: what a step of an optimizer does to a weight. A rule is a row, written once (engine/kernels/
// update_rules.h, or a user's own, engine/kernels/update_loop.h), and every backend makes its kernel of it: one pass
// over flat ranges.
//
//   g = clip(rescale * sum of the gradients);  weight, states = Rule(g, weight, states, settings, step, rate, decay)
//
// Rules that go by norms of whole parameters (LARS, LAMB) are measured first, by a pass that changes nothing.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace bindery {

// Sums of squares over elements of a parameter: of its weights, and of the directions that its rule would go. In
// double, in an order that depends on the ranges only; those of ranges add up.
struct UpdateSquares {
  double weight = 0, direction = 0;
};

// Does the rule go by norms: of the weight, and of a direction, which it then tells?
template <class Rule>
concept GoesByNorms = requires(float x, float* s) {
  Rule::Direction(s, x, x, s);
};

// What an update depends on besides its arrays.
struct UpdateArgs {
  int64_t step = 1;                       // number of this update, from 1
  double learning_rate = 0.01;            // of this step and parameter
  double weight_decay = 0;                // of this parameter
  double rescale = 1;                     // factor of the gradients' sum
  double clip = 0;                        // > 0: then each element is clipped to [-clip, clip]
  std::span<const double> settings = {};  // the rule's own, in its order
  UpdateSquares squares = {};             // of the whole parameter, if it was measured
};

// What a rule computes of them, once for all elements.
using UpdateNumbers = std::array<double, 9>;

// Equal ranges of flat arrays of float32 or float64. The new weight and states may be written over the old, or to
// arrays of their own that overlap nothing.
struct UpdateArrays {
  std::span<const void* const> gradients = {};  // summed in this order; at least one
  const void* weight = nullptr;
  void* new_weight = nullptr;
  std::span<void*const> states = {}, new_states = {};
  std::span<void* const> copies = {};  // of the new weight
  int64_t elements = 0;
};

// In host memory, by the calling thread's team. Throws Error for other dtypes, no gradients, or another number of
// states than the rule has.
using UpdateKernel = void (*)(DType dtype, const UpdateArgs& args, const UpdateArrays& arrays);

// What a rule that goes by norms needs of these elements; writes nothing. Throws as UpdateKernel.
using MeasureKernel = UpdateSquares (*)(DType dtype, const UpdateArgs& args, const UpdateArrays& arrays);

struct UpdateSetting {
  std::string name;
  double value = 0;                                        // where nobody says otherwise
  double below = std::numeric_limits<double>::infinity();  // and not negative
};

struct UpdateRule {
  std::string name;                      // "adam"
  double rate = 0.01;                    // the learning rate where none is given
  std::vector<std::string> states = {};  // of each weight: equal arrays, which begin as zero
  std::vector<UpdateSetting> settings = {};
  UpdateKernel kernel = nullptr;
  UpdateKernel without_first = nullptr;  // where its first setting is 0, if that needs no first state
  MeasureKernel measure = nullptr;       // of rules that go by norms
};

inline constexpr int kMaxUpdateStates = 8;

// What the host says of a step to updates, in the memory of the device: part of what is written there at the head of
// the step (executor/step_block.h), read when they run, never captured.
struct StepRates {
  double learning_rate = 0.01;  // times a parameter's factor
  double rescale = 1;
  int64_t step = 1;  // number of this update, from 1
  bool operator==(const StepRates&) const = default;
};

// Something that must not be, and is where `place` is not negative: data that a kernel cannot work on, or that a metric
// refuses (executor/metric.h).
struct Refusal {
  double place = -1, value = 0;
};

// What a device says of a step. Bad: then nothing of the step is committed, on no device.
struct StepStatus {
  enum Kind : int64_t { kGood, kNotFinite, kRefused };
  int64_t kind = kGood;
  int64_t place = 0;    // which of the things that were looked at
  int64_t element = 0;  // of it: the first bad one
  double value = 0;
};
// What a device keeps of steps, in its memory.
struct StepTally {
  int64_t committed = 0;   // updates
  StepStatus status = {};  // of the last step; once bad, of all that follow, until the host has seen it
};
using StepStatuses = std::span<const StepStatus* const>;  // of all devices that have a say

// Elements of a gradient that are looked at: those from `first` on of `place`.
struct PlacedElements {
  const void* in = nullptr;
  int64_t elements = 0, place = 0, first = 0;
};

// An update on a device, by the step's rates; addresses are the device's. States lie there twice: those that hold, at
// [updates committed so far % 2], and room for the next. So neither they nor the weight change before the commit.
struct DeviceUpdate {
  UpdateKernel kernel = nullptr;
  MeasureKernel measure = nullptr;
  DType dtype = DType::kFloat32;
  UpdateArgs args = {};  // learning rate, rescale: factors of the step's
  const void* gradient = nullptr;
  const void* weight = nullptr;
  void* new_weight = nullptr;
  int num_states = 0;
  std::array<void*, kMaxUpdateStates> states[2] = {};
  int64_t elements = 0;
  const double* clip_factor = nullptr;     // of the gradients, if there is one
  UpdateSquares* measured = nullptr;       // of these elements, if there is `measure`: where they are put
  const UpdateSquares* squares = nullptr;  // of the parameter, if it is measured
};

namespace flat {

bool AllGood(StepStatuses statuses);
// Unless all `n` are finite or the status is bad already, it becomes that of the first that is not. `in` begins with
// element `first` of `place`.
void CheckFinite(DType dtype, const void* in, int64_t n, int64_t place, int64_t first, StepStatus* status);
// Unless none of `n` refusals is one or the status is of one already, it becomes that of the first (refuse.h).
void Refuse(const Refusal* refusals, int64_t n, StepStatus* status);
void Update(const DeviceUpdate& update, const StepRates& rates, int64_t committed);
UpdateSquares Measure(const DeviceUpdate& update, const StepRates& rates, int64_t committed);
// The factor by which gradients of this sum of squares, times `rescale`, have the norm `limit`; at most 1.
constexpr double ClipFactor(double squares, double rescale, double limit) {
  const double norm = std::fabs(rescale) * std::sqrt(squares);
  return norm > limit ? limit / norm : 1;
}

}  // namespace flat

const std::vector<UpdateRule>& UpdateRules();  // the built-in ones (engine/kernels/update_rules.cc)

}  // namespace bindery
