#include "engine/cuda/flat_kernels.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/error.h"
#include "engine/cuda/stream.h"

namespace bindery::cuda {
namespace {

CUdeviceptr Address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// The largest unit that divides all of these.
int32_t UnitOf(std::initializer_list<uint64_t> values) {
  uint64_t bits = sizeof(Unit16);
  for (const uint64_t value : values) bits |= value;
  return static_cast<int32_t>(bits & -bits);
}

void CopyUnless(CudaStream& stream, const uint32_t* unless, const void* in, int64_t in_stride, void* out,
                int64_t out_stride, int64_t rows, int64_t bytes) {
  CopyArgs args{.in = in, .out = out, .rows = rows, .in_stride = in_stride, .out_stride = out_stride, .unless = unless};
  args.unit = UnitOf({Address(in), Address(out), static_cast<uint64_t>(in_stride), static_cast<uint64_t>(out_stride),
                      static_cast<uint64_t>(bytes)});
  args.units = bytes / args.unit;
  stream.Launch(args, rows * args.units);
}

}  // namespace

void CudaFlatKernels::Fill(Stream& stream, DType dtype, void* out, int64_t n, double value) const {
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

void CudaFlatKernels::Copy(Stream& stream, const void* in, void* out, int64_t bytes) const {
  if (in == out || bytes == 0) return;
  CudaStream& s = CudaStreamOf(stream);
  s.gpu().Check(s.gpu().api.memcpy_dtod_async(Address(out), Address(in), static_cast<size_t>(bytes), s.Handle()),
                "cuMemcpyDtoDAsync");
}

void CudaFlatKernels::CopyFinite(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const {
  const int64_t bytes = n * SizeOf(dtype);
  if (!IsFloat(dtype)) return Copy(stream, in, out, bytes);
  CudaStream& s = CudaStreamOf(stream);
  s.gpu().Check(s.gpu().api.memset_d8_async(Address(s.flag()), 0, sizeof(uint32_t), s.Handle()), "cuMemsetD8Async");
  s.Launch(FindNotFiniteArgs{.in = in, .n = n, .dtype = dtype, .found = s.flag()}, n);
  CopyUnless(s, s.flag(), in, 0, out, 0, 1, bytes);
}

void CudaFlatKernels::CopyRows(Stream& stream, const void* in, int64_t in_stride, void* out, int64_t out_stride,
                               int64_t rows, int64_t bytes) const {
  CopyUnless(CudaStreamOf(stream), nullptr, in, in_stride, out, out_stride, rows, bytes);
}

void CudaFlatKernels::Cast(Stream& stream, DType from, const void* in, DType to, void* out, int64_t n) const {
  if (from == to) return Copy(stream, in, out, n * SizeOf(from));
  CudaStreamOf(stream).Launch(CastArgs{.in = in, .out = out, .n = n, .from = from, .to = to}, n);
}

void CudaFlatKernels::Sum(Stream& stream, DType dtype, std::span<const void* const> in, void* out, int64_t n) const {
  if (in.empty()) return Fill(stream, dtype, out, n, 0);
  if (in.size() == 1) return Copy(stream, in[0], out, n * SizeOf(dtype));
  if (in.size() > SumArgs::kMaxCount) {
    Throw<DeviceError>("{}: a sum is of at most {} tensors, got {}", stream.device(), SumArgs::kMaxCount, in.size());
  }
  SumArgs args{.count = static_cast<int32_t>(in.size()), .dtype = dtype, .out = out, .n = n};
  std::ranges::copy(in, args.in);
  CudaStreamOf(stream).Launch(args, n);
}

void CudaFlatKernels::Add(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const {
  const void* const both[] = {out, in};
  Sum(stream, dtype, both, out, n);
}

void CudaFlatKernels::Scale(Stream& stream, DType dtype, void* out, int64_t n, double factor) const {
  CudaStreamOf(stream).Launch(ScaleArgs{.out = out, .n = n, .factor = factor, .dtype = dtype}, n);
}

}  // namespace bindery::cuda
