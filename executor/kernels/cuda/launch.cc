#include "executor/kernels/cuda/launch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/backend.h"
#include "executor/kernels/rules.h"

namespace bindery::cuda {
namespace {

constexpr char kFamily[] = "cuda";

const FlatKernels& Flat() { return Backend::Of(DeviceKind::kCuda).flat(); }

}  // namespace

Launches::Launches(const KernelArgs& args, const KernelSpec& spec)
    : args_(args), spec_(&spec), stream_(CudaStreamOf(*args.stream)), what_(spec.Who()) {}
Launches::Launches(const KernelArgs& args, std::string what)
    : args_(args), spec_(nullptr), stream_(CudaStreamOf(*args.stream)), what_(std::move(what)) {}

void Launches::AddBytes(const unsigned long long* image, const char* name, const void* args, size_t bytes,
                        int64_t threads) {
  struct alignas(16) Sixteen {
    std::byte of[16];
  };
  std::vector<Sixteen> copy((bytes + 15) / 16);
  std::memcpy(copy.data(), args, bytes);
  work_.push_back([&stream = stream_, kernel = stream_.gpu().KernelIn(image, name), name, copy = std::move(copy), bytes,
                   threads, what = what_] { stream.LaunchKernel(kernel, name, copy.data(), bytes, threads, what); });
}

void Launches::Add(std::function<void(CudaStream&)> work) {
  work_.push_back([&stream = stream_, what = what_, work = std::move(work)] {
    const CudaStream::Naming naming(stream, what);
    work(stream);
  });
}

void Launches::AddCall(LibraryFunction function, const char* name, std::shared_ptr<const void> plan,
                       std::vector<void*> addresses) {
  work_.push_back([&stream = stream_, function, name, plan = std::move(plan), addresses = std::move(addresses),
                   what = what_] { stream.CallLibrary(function, name, plan, addresses, what); });
}

void Launches::Copy(const void* from, void* to, int64_t bytes) {
  if (from == to || bytes == 0 || !to) return;
  work_.push_back([copy = CopyCommand{.from = from, .to = to, .bytes = static_cast<size_t>(bytes)}, &stream = stream_,
                   what = what_] { stream.Copy(copy, what); });
}

void Launches::Fill(DType dtype, void* to, int64_t n, double value) {
  Add([=](CudaStream& stream) { Flat().Fill(stream, dtype, to, n, value); });
}

void Launches::Cast(Source from, Target to, int64_t n) {
  Add([=](CudaStream& stream) { Flat().Cast(stream, from.dtype, from.data, to.dtype, to.data, n); });
}

const void* Launches::Constant(const void* values, int64_t bytes) {
  if (bytes == 0) return nullptr;
  Gpu& gpu = stream_.gpu();
  const std::shared_ptr<Chunk> chunk = DefaultStorage()->Allocate(gpu.device, bytes);
  const std::shared_ptr<Chunk> staged = DefaultStorage()->AllocateStaging(gpu.device, bytes);
  std::memcpy(staged->data(), values, static_cast<size_t>(bytes));
  gpu.CopyNow(staged->data(), chunk->data(), bytes, false);
  constants_.push_back(chunk);
  return chunk->data();
}

Source Launches::in(size_t i) const { return {args_.inputs[i], spec_->inputs[i].dtype}; }
Target Launches::out(size_t o) const { return {args_.outputs[o], spec_->outputs[o].dtype}; }

void Launches::Read(std::initializer_list<Source*> inputs) const {
  const std::vector<int> places = PlacesIn(spec_->op->inputs, spec_->attrs);
  for (size_t slot = 0; slot < std::min(inputs.size(), places.size()); ++slot) {
    if (places[slot] >= 0) *inputs.begin()[slot] = in(static_cast<size_t>(places[slot]));
  }
}

void Launches::Write(std::initializer_list<Target*> outputs) const {
  const std::vector<int> places = PlacesIn(spec_->op->outputs, spec_->attrs);
  for (size_t slot = 0; slot < std::min(outputs.size(), places.size()); ++slot) {
    if (places[slot] >= 0) *outputs.begin()[slot] = out(static_cast<size_t>(places[slot]));
  }
}

// The block is the host's to write, but for this.
FaultRing Launches::faults() const {
  return stream_.faults(args_.step ? &const_cast<StepBlock*>(args_.step)->refusal : nullptr);
}

Call Launches::Finish() && {
  return [work = std::make_shared<const std::vector<std::function<void()>>>(std::move(work_)),
          constants = std::move(constants_)] {
    for (const auto& each : *work) each();
  };
}

Kernel OwnKernel(const KernelSpec& spec, std::function<void(Launches&)> bind, const char* implementation) {
  Kernel kernel{.implementation = implementation};
  for (const Format& format : spec.input_formats) {
    kernel.input_formats.push_back(IsState(format) ? format : Format::Plain());
  }
  kernel.output_formats.resize(spec.outputs.size());
  kernel.bind = [spec, bind = std::move(bind)](const KernelArgs& args) {
    Launches launches(args, spec);
    const std::function<void(Launches&)> own = bind;  // what it changes in itself is of this binding alone
    own(launches);
    return std::move(launches).Finish();
  };
  return kernel;
}

std::vector<InplacePair> PairsOfOneSize(const KernelSpec& spec) {
  std::vector<InplacePair> pairs;
  for (const InplacePair& pair : spec.op->inplace) {
    const ValueType &input = spec.inputs[pair.input], &output = spec.outputs[pair.output];
    if (input.shape == output.shape && SizeOf(input.dtype) == SizeOf(output.dtype)) pairs.push_back(pair);
  }
  return pairs;
}

DType ValueOf(DType dtype) { return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

Format StateFormat(int64_t bytes) { return Format::Opaque(bytes, kFamily); }
bool IsState(const Format& format) {
  return format.kind == Format::Kind::kOpaque && std::strcmp(format.family.data(), kFamily) == 0;
}

Grid GridOf(const Shape& shape) {
  Grid grid{.rank = shape.rank(), .n = shape.Elements()};
  std::ranges::copy(shape, grid.extents);
  return grid;
}

Strides PlainStrides(const Shape& shape) { return StretchedStrides(shape, shape); }

Strides StretchedStrides(const Shape& shape, const Shape& to) {
  Strides strides;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int to_axis = axis + to.rank() - shape.rank();
    strides.of[to_axis] = shape[axis] == to[to_axis] ? stride : 0;
    stride *= shape[axis];
  }
  return strides;
}

void JoinAxes(Grid* grid, std::initializer_list<Strides*> strides) {
  int rank = 0;
  for (int axis = 0; axis < grid->rank; ++axis) {
    const int64_t extent = grid->extents[axis];
    if (extent == 1) continue;
    const bool follows = rank > 0 && std::ranges::all_of(strides, [&](const Strides* s) {
                           return s->of[rank - 1] == s->of[axis] * extent;
                         });
    rank += !follows;
    grid->extents[rank - 1] = follows ? grid->extents[rank - 1] * extent : extent;
    for (Strides* s : strides) s->of[rank - 1] = s->of[axis];
  }
  grid->rank = rank;
}

Rows RowsOf(int64_t count, int64_t length, int64_t stride) {
  constexpr int64_t kLong = 64, kMany = 16384;
  return {count, length >= kLong && (stride == 1 || count < kMany)};
}

RowParts PartsOf(int64_t rows, int64_t length) {
  constexpr int64_t kBlocks = 512, kLeast = 8192;
  if (rows == 0 || rows > kBlocks / 2 || length < 2 * kLeast) return {1, length};
  const int64_t of_each = CeilDiv(length, std::min(kBlocks / rows, length / kLeast));
  return {CeilDiv(length, of_each), of_each};
}

}  // namespace bindery::cuda
