#include "engine/cuda/flat_kernels.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <span>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cuda/stream.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/update_kernels.h"

namespace bindery::cuda {
namespace {

CUdeviceptr Address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// The largest unit that divides all of these.
int32_t UnitOf(std::initializer_list<uint64_t> values) {
  uint64_t bits = sizeof(Unit16);
  for (const uint64_t value : values) bits |= value;
  return static_cast<int32_t>(bits & -bits);
}

template <class T>
AddressList<T> Listed(Stream& stream, std::span<const T* const> of_devices) {
  AddressList<T> list{.count = static_cast<int32_t>(of_devices.size())};
  if (of_devices.size() > std::size(list.of)) {
    Throw<DeviceError>("{}: at most {} devices have a say, got {}", stream.device(), std::size(list.of),
                       of_devices.size());
  }
  std::ranges::copy(of_devices, list.of);
  return list;
}

// ---- lists of arrays, as many in each as a launch has room for ----

template <class List>
int64_t PartsOf(const List& list) {
  return list.count == 0 ? 0 : list.of[list.count - 1].parts;
}
// A block for each part.
template <class List>
int64_t ThreadsFor(const List& list) {
  return PartsOf(list) * CudaStream::kThreads;
}
// Null: the list is full.
template <class List>
typename List::Array* AddArray(List* list, int64_t n) {
  const int64_t parts = PartsOf(*list) + CeilDiv(n, Parts::LengthOf(n));
  if (list->count == List::kMaxCount || parts > CudaStream::kMaxParts) return nullptr;
  typename List::Array& array = list->of[list->count++];
  array = {};
  array.n = n;
  array.parts = parts;
  return &array;
}

template <class F>
void ForLists(DType dtype, std::span<const PlacedElements> all, const F& f) {
  for (auto next = all.begin(); next != all.end();) {
    ArrayList list{.dtype = dtype};
    for (int64_t before = 0; next != all.end(); before += (next++)->elements) {
      ArrayList::Array* const array = AddArray(&list, next->elements);
      if (!array) break;
      array->in = next->in;
      array->before = before;
      array->place = next->place;
      array->first = next->first;
    }
    f(list);
  }
}

// Into the stream's word: the index of the first, or kNone.
void FindNotFinite(CudaStream& stream, const ArrayList& list) {
  stream.Fill(stream.word(), 0xff, sizeof kNone);
  stream.Launch(FindNotFiniteArgs{.first = stream.word(), .arrays = list}, ThreadsFor(list));
}

// What the stream has of the parts of a list, added up: out(array) is where.
template <class List, class Out>
void AddParts(CudaStream& stream, const List& list, int width, const Out& out) {
  static_assert(List::kMaxCount <= ArrayList::kMaxCount);
  AddPartsArgs args{.count = list.count, .width = width, .partial = &stream.partial()->weight};
  for (int k = 0; k < list.count; ++k) args.of[k] = {out(list.of[k]), list.of[k].parts};
  stream.Launch(args, int64_t{list.count} * width * CudaStream::kThreads);
}

void CommitUnless(CudaStream& stream, const uint64_t* unless, StepStatuses statuses, const void* in, void* out,
                  int64_t bytes, int64_t* committed) {
  CommitArgs args{.in = in, .out = out, .unless = unless, .committed = committed, .statuses = Listed(stream, statuses)};
  args.unit = UnitOf({Address(in), Address(out), static_cast<uint64_t>(bytes)});
  args.units = bytes / args.unit;
  stream.Launch(args, std::max<int64_t>(args.units, 1));
}

// The number in update_rules::All of the rule that a kernel for CPUs is of; -1 for another's.
int32_t RuleOf(UpdateKernel kernel) {
  const std::span<const UpdateKernel> kernels = UpdateKernels();
  const auto found = std::ranges::find(kernels, kernel);
  return found == kernels.end() ? -1 : static_cast<int32_t>(found - kernels.begin());
}
bool HasKernels(UpdateKernel kernel, MeasureKernel measure) {
  const int32_t rule = RuleOf(kernel);
  return rule >= 0 && (!measure || measure == MeasureKernels()[static_cast<size_t>(rule)]);
}

// Is all the same that a list has once?
bool Alike(const DeviceUpdate& a, const DeviceUpdate& b) {
  return a.kernel == b.kernel && a.dtype == b.dtype && a.args.rescale == b.args.rescale && a.args.clip == b.args.clip &&
         std::ranges::equal(a.args.settings, b.args.settings) && a.clip_factor == b.clip_factor;
}

// Of those that are measured, or of all.
template <class F>
void ForLists(Stream& stream, std::span<const DeviceUpdate> all, bool measured, const StepRates* rates,
              const int64_t* committed, const F& f) {
  for (auto next = all.begin(); next != all.end();) {
    const DeviceUpdate& first = *next;
    UpdateList list{.rule = RuleOf(first.kernel),
                    .dtype = first.dtype,
                    .rescale = first.args.rescale,
                    .clip = first.args.clip,
                    .clip_factor = first.clip_factor,
                    .rates = rates,
                    .committed = committed};
    for (; next != all.end() && Alike(first, *next); ++next) {
      if (measured && !next->measure) continue;
      if (!HasKernels(next->kernel, measured ? next->measure : nullptr)) {
        Throw<DeviceError>("{}: this update rule has no kernel for GPUs", stream.device());
      }
      Check(next->args.settings.size() <= std::size(list.settings) && next->num_states <= list.kMaxStates,
            "built-in rules fit their launch");
      UpdateList::Array* const array = AddArray(&list, next->elements);
      if (!array) break;
      array->gradient = next->gradient;
      array->weight = next->weight;
      array->new_weight = next->new_weight;
      for (int slot : {0, 1}) std::copy_n(next->states[slot].begin(), next->num_states, array->states[slot]);
      array->measured = next->measured;
      array->squares = next->squares;
      array->learning_rate = next->args.learning_rate;
      array->weight_decay = next->args.weight_decay;
    }
    if (list.count == 0) continue;
    std::ranges::copy(first.args.settings, list.settings);
    f(list);
  }
}

class CudaFlatKernels final : public FlatKernels {
 public:
  void Fill(Stream& stream, DType dtype, void* out, int64_t n, double value) const override {
    FillArgs args{.out = out};
    const int64_t bytes = n * SizeOf(dtype);
    args.unit = UnitOf({Address(out), static_cast<uint64_t>(bytes)});
    args.units = bytes / args.unit;
    Dispatch(dtype, [&]<class T>() {
      const T element = StoreDouble<T>(value);
      for (size_t at = 0; at < sizeof args.value; at += sizeof element) {
        std::memcpy(reinterpret_cast<char*>(&args.value) + at, &element, sizeof element);
      }
    });
    CudaStreamOf(stream).Launch(args, args.units);
  }
  void Copy(Stream& stream, const void* in, void* out, int64_t bytes) const override {
    if (in == out || bytes == 0) return;
    CudaStreamOf(stream).Copy({.from = in, .to = out, .bytes = static_cast<size_t>(bytes)});
  }
  void CopyFinite(Stream& stream, DType dtype, const void* in, void* out, int64_t n,
                  StepStatuses statuses) const override {
    CudaStream& s = CudaStreamOf(stream);
    const PlacedElements all{.in = in, .elements = n};
    if (IsFloat(dtype)) ForLists(dtype, {&all, 1}, [&](const ArrayList& list) { FindNotFinite(s, list); });
    CommitUnless(s, IsFloat(dtype) ? s.word() : nullptr, statuses, in, out, n * SizeOf(dtype), nullptr);
  }
  void CopyRows(Stream& stream, const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows,
                int64_t bytes) const override {
    CopyArgs args{.in = in, .out = out, .rows = rows, .in_stride = in_stride, .out_stride = out_stride};
    args.unit = UnitOf({Address(in), Address(out), static_cast<uint64_t>(in_stride), static_cast<uint64_t>(out_stride),
                        static_cast<uint64_t>(bytes)});
    args.units = bytes / args.unit;
    CudaStreamOf(stream).Launch(args, rows * args.units);
  }
  void Cast(Stream& stream, DType from, const void* in, DType to, void* out, int64_t n) const override {
    if (from == to) return Copy(stream, in, out, n * SizeOf(from));
    CudaStreamOf(stream).Launch(CastArgs{.in = in, .out = out, .n = n, .from = from, .to = to}, n);
  }
  void Sum(Stream& stream, DType dtype, std::span<const void* const> in, void* out, int64_t n) const override {
    if (in.empty()) return Fill(stream, dtype, out, n, 0);
    if (in.size() == 1) return Copy(stream, in[0], out, n * SizeOf(dtype));
    // More than a launch has room for: by several, each but the first from what there is so far. 16-bit floats are
    // rounded once for each.
    const auto late = in.subspan(std::min<size_t>(in.size(), SumArgs::kMaxCount));
    Check(std::ranges::find(late, out) == late.end(), "a sum in place is in the place of one of its first tensors");
    SumArgs args{.dtype = dtype, .out = out, .n = n};
    while (!in.empty()) {
      const size_t count = std::min(in.size(), static_cast<size_t>(SumArgs::kMaxCount - args.count));
      std::ranges::copy(in.first(count), args.in + args.count);
      args.count += static_cast<int32_t>(count);
      CudaStreamOf(stream).Launch(args, n);
      in = in.subspan(count);
      args.in[0] = out;
      args.count = 1;
    }
  }
  void Add(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const override {
    const void* const both[] = {out, in};
    Sum(stream, dtype, both, out, n);
  }
  void Scale(Stream& stream, DType dtype, void* out, int64_t n, double factor) const override {
    CudaStreamOf(stream).Launch(ScaleArgs{.out = out, .n = n, .factor = factor, .dtype = dtype}, n);
  }
  // The built-in ones: another's code is the host's.
  bool HasUpdate(UpdateKernel rule, MeasureKernel measure) const override { return HasKernels(rule, measure); }
  void CheckFinite(Stream& stream, DType dtype, std::span<const PlacedElements> all,
                   StepStatus* status) const override {
    if (!IsFloat(dtype)) return;
    CudaStream& s = CudaStreamOf(stream);
    ForLists(dtype, all, [&](const ArrayList& list) {
      FindNotFinite(s, list);
      s.Launch(SetStatusArgs{.first = s.word(), .status = status, .arrays = list}, 1);
    });
  }
  void SumOfSquares(Stream& stream, DType dtype, std::span<const PlacedElements> all, double* sums) const override {
    CudaStream& s = CudaStreamOf(stream);
    ForLists(dtype, all, [&](const ArrayList& list) {
      s.Launch(SumSquaresArgs{.partial = &s.partial()->weight, .arrays = list}, ThreadsFor(list));
      AddParts(s, list, 1, [&](const ArrayList::Array& array) { return sums + array.place; });
    });
  }
  void ClipFactor(Stream& stream, std::span<const double* const> sums, int64_t n, const StepRates* rates, double limit,
                  double* factor) const override {
    CudaStreamOf(stream).Launch(
        ClipFactorArgs{.sums = Listed(stream, sums), .n = n, .rates = rates, .limit = limit, .factor = factor},
        CudaStream::kThreads);
  }
  void Measure(Stream& stream, std::span<const DeviceUpdate> updates, const StepRates* rates,
               const int64_t* committed) const override {
    CudaStream& s = CudaStreamOf(stream);
    ForLists(stream, updates, true, rates, committed, [&](const UpdateList& list) {
      s.Launch(MeasureUpdateArgs{.partial = s.partial(), .updates = list}, ThreadsFor(list));
      AddParts(s, list, 2, [](const UpdateList::Array& array) { return &array.measured->weight; });
    });
  }
  void Update(Stream& stream, std::span<const DeviceUpdate> updates, const StepRates* rates, const int64_t* committed,
              StepStatuses statuses) const override {
    const AddressList<StepStatus> all = Listed(stream, statuses);
    ForLists(stream, updates, false, rates, committed, [&](const UpdateList& list) {
      CudaStreamOf(stream).Launch(UpdateKernelArgs{.statuses = all, .updates = list}, ThreadsFor(list));
    });
  }
  void Commit(Stream& stream, StepStatuses statuses, const void* in, void* out, int64_t bytes,
              int64_t* committed) const override {
    CommitUnless(CudaStreamOf(stream), nullptr, statuses, in, out, bytes, committed);
  }
  void Refuse(Stream& stream, const Refusal* refusals, int64_t n, StepStatus* status) const override {
    CudaStreamOf(stream).Launch(RefuseArgs{.refusals = refusals, .n = n, .status = status}, 1);
  }
};

}  // namespace

const FlatKernels& CudaFlat() {
  static const FlatKernels& kernels = *new CudaFlatKernels;  // never destroyed, as backends are not
  return kernels;
}

}  // namespace bindery::cuda
