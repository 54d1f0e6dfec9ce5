// What the kernels of a step's checks, norms, update and commit are launched with (kernel_args.h), of many arrays at
// once, as flat_kernels.cc lists them; and all kernels that there are. Private to engine/cuda and its tests.
//
// Arrays of structs come last: behind them GCC 12 looks for padding in the wrong place (padding.h).
#pragma once

#include <cstdint>
#include <tuple>

#include "engine/cuda/kernel_args.h"

namespace bindery::cuda {

// Arrays are cut into parts, which blocks share out. Where depends on the number of elements only, so that sums are
// taken in one order.
struct Parts {
  static constexpr int64_t kLeast = 2048, kMost = 512;  // elements of a part, but for the last one; parts
  static constexpr int64_t LengthOf(int64_t n) { return n > kLeast * kMost ? (n / kMost / 32 + 1) * 32 : kLeast; }
};

// Of one type. `parts`: its own, and those of all before it.
struct ArrayList {
  static constexpr int kMaxCount = 80;
  struct Array {
    const void* in = nullptr;
    int64_t n = 0, before = 0;  // elements; of all before it
    int64_t place = 0, first = 0;
    int64_t parts = 0;
  };
  int32_t count = 0;
  DType dtype = {};
  Array of[kMaxCount] = {};
  void Addresses(const auto& visit) {
    for (int32_t k = 0; k < count; ++k) visit(of[k].in);
  }
};

template <class T>
struct AddressList {
  static constexpr int kMaxCount = 128;
  const T* of[kMaxCount] = {};
  int32_t count = 0;
  void Addresses(const auto& visit) {
    for (int32_t i = 0; i < count; ++i) visit(of[i]);
  }
};

// *first becomes the index, counted through all arrays, of the first element that is infinite or not a number, if that
// is less.
struct FindNotFiniteArgs {
  static constexpr const char* kName = "bindery_find_not_finite";
  uint64_t* first = nullptr;
  ArrayList arrays = {};
  void Addresses(const auto& visit) { VisitIn(visit, arrays, first); }
};

// If *first is an element of the arrays, each of which begins with element `first` of `place`, and the status is good,
// it becomes that element's. One thread.
struct SetStatusArgs {
  static constexpr const char* kName = "bindery_set_status";
  const uint64_t* first = nullptr;
  StepStatus* status = nullptr;
  ArrayList arrays = {};
  void Addresses(const auto& visit) { VisitIn(visit, arrays, first, status); }
};

// partial[p] = the sum of squares of part p.
struct SumSquaresArgs {
  static constexpr const char* kName = "bindery_sum_squares";
  double* partial = nullptr;
  ArrayList arrays = {};
  void Addresses(const auto& visit) { VisitIn(visit, arrays, partial); }
};

// What came of each array's parts, `width` numbers each, added up. A block for each number.
struct AddPartsArgs {
  static constexpr const char* kName = "bindery_add_parts";
  struct Array {
    double* out = nullptr;
    int64_t parts = 0;
  };
  int32_t count = 0, width = 1;
  const double* partial = nullptr;
  Array of[ArrayList::kMaxCount] = {};
  void Addresses(const auto& visit) {
    for (int32_t k = 0; k < count; ++k) visit(of[k].out);
    visit(partial);
  }
};

// flat::ClipFactor, of `n` sums of each device in their order. One block.
struct ClipFactorArgs {
  static constexpr const char* kName = "bindery_clip_factor";
  AddressList<double> sums = {};
  int64_t n = 0;
  const StepRates* rates = nullptr;
  double limit = 0;
  double* factor = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, sums, rates, factor); }
};

// Updates by the rule of this number in update_rules::All, alike but for what an array has of its own: DeviceUpdate,
// flat.
struct UpdateList {
  static constexpr int kMaxStates = 3, kMaxSettings = 5, kMaxCount = 24;
  struct Array {
    const void* gradient = nullptr;
    const void* weight = nullptr;
    void* new_weight = nullptr;
    void* states[2][kMaxStates] = {};
    UpdateSquares* measured = nullptr;
    const UpdateSquares* squares = nullptr;
    int64_t n = 0, parts = 0;
    double learning_rate = 0, weight_decay = 0;
  };
  int32_t count = 0, rule = 0;
  DType dtype = {};
  double rescale = 1, clip = 0;
  double settings[kMaxSettings] = {};
  const double* clip_factor = nullptr;
  const StepRates* rates = nullptr;
  const int64_t* committed = nullptr;
  Array of[kMaxCount] = {};
  void Addresses(const auto& visit) {
    for (int32_t k = 0; k < count; ++k) VisitIn(visit, of[k].gradient, of[k].weight, of[k].squares);
    VisitIn(visit, clip_factor, rates, committed);
  }
};

struct UpdateKernelArgs {
  static constexpr const char* kName = "bindery_update";
  AddressList<StepStatus> statuses = {};
  UpdateList updates = {};
  void Addresses(const auto& visit) {
    VisitIn(visit, updates, statuses);
    for (int32_t k = 0; k < updates.count; ++k) VisitIn(visit, updates.of[k].new_weight, updates.of[k].states);
  }
};

// partial[p] = what the rule measures of part p.
struct MeasureUpdateArgs {
  static constexpr const char* kName = "bindery_measure_update";
  UpdateSquares* partial = nullptr;
  UpdateList updates = {};
  void Addresses(const auto& visit) {
    updates.Addresses(visit);
    for (int32_t k = 0; k < updates.count; ++k) {
      for (auto& slot : updates.of[k].states) {
        for (void*& state : slot) {
          const void* read = state;  // no more than that
          visit(read);
          state = const_cast<void*>(read);
        }
      }
    }
    visit(partial);
  }
};

// If all statuses are good, and *unless is kNone: out = in, and one more in *committed. Both may be null.
struct CommitArgs {
  static constexpr const char* kName = "bindery_commit";
  const void* in = nullptr;
  void* out = nullptr;
  int64_t units = 0;
  int32_t unit = 1;
  const uint64_t* unless = nullptr;
  int64_t* committed = nullptr;
  AddressList<StepStatus> statuses = {};
  void Addresses(const auto& visit) { VisitIn(visit, in, out, unless, committed, statuses); }
};

// flat::RefuseFirst. One thread.
struct RefuseArgs {
  static constexpr const char* kName = "bindery_refuse";
  const Refusal* refusals = nullptr;
  int64_t n = 0;
  StepStatus* status = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, refusals, status); }
};

// All kernels that there are.
using AllKernels = std::tuple<FillArgs, CopyArgs, CastArgs, SumArgs, ScaleArgs, FindNotFiniteArgs, SetStatusArgs,
                              SumSquaresArgs, AddPartsArgs, ClipFactorArgs, UpdateKernelArgs, MeasureUpdateArgs,
                              CommitArgs, RefuseArgs, NumberPieceArgs, MarkPieceArgs>;

// What a launch has room for.
static_assert([]<class... Args>(std::type_identity<std::tuple<Args...>>) {
  return ((sizeof(Args) <= 4096) && ...);
}(std::type_identity<AllKernels>()));

}  // namespace bindery::cuda
