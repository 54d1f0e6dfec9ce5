#include "engine/cuda/flat_kernels.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <span>

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

// Into the stream's word: the index of the first, or kNone.
void FindNotFinite(CudaStream& stream, DType dtype, const void* in, int64_t n) {
  stream.Fill(stream.word(), 0xff, sizeof kNone);
  stream.Launch(FindNotFiniteArgs{.in = in, .n = n, .dtype = dtype, .first = stream.word()}, n);
}

Statuses Listed(Stream& stream, StepStatuses statuses) {
  if (statuses.size() > Statuses::kMaxCount) {
    Throw<DeviceError>("{}: at most {} devices have a say, got {}", stream.device(), Statuses::kMaxCount,
                       statuses.size());
  }
  Statuses listed{.count = static_cast<int32_t>(statuses.size())};
  std::ranges::copy(statuses, listed.of);
  return listed;
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
    if (IsFloat(dtype)) FindNotFinite(s, dtype, in, n);
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
  bool HasUpdate(UpdateKernel rule) const override { return RuleOf(rule) >= 0; }
  void CheckFinite(Stream& stream, DType dtype, const void* in, int64_t n, int64_t place, int64_t first,
                   StepStatus* status) const override {
    if (!IsFloat(dtype)) return;
    CudaStream& s = CudaStreamOf(stream);
    FindNotFinite(s, dtype, in, n);
    s.Launch(
        SetStatusArgs{.in = in, .dtype = dtype, .first = s.word(), .place = place, .offset = first, .status = status},
        1);
  }
  void Update(Stream& stream, const DeviceUpdate& update, const StepRates* rates, const int64_t* committed,
              StepStatuses statuses) const override {
    UpdateKernelArgs args{.rule = RuleOf(update.kernel),
                          .dtype = update.dtype,
                          .learning_rate = update.args.learning_rate,
                          .weight_decay = update.args.weight_decay,
                          .rescale = update.args.rescale,
                          .clip = update.args.clip,
                          .gradient = update.gradient,
                          .weight = update.weight,
                          .new_weight = update.new_weight,
                          .n = update.elements,
                          .rates = rates,
                          .committed = committed,
                          .statuses = Listed(stream, statuses)};
    if (args.rule < 0) Throw<DeviceError>("{}: this update rule has no kernel for GPUs", stream.device());
    Check(update.args.settings.size() <= std::size(args.settings) && update.num_states <= args.kMaxStates,
          "built-in rules fit their launch");
    std::ranges::copy(update.args.settings, args.settings);
    for (int slot : {0, 1}) std::copy_n(update.states[slot].begin(), update.num_states, args.states[slot]);
    CudaStreamOf(stream).Launch(args, update.elements);
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
