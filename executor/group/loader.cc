#include "executor/group/loader.h"

#include <cstddef>
#include <cstring>

#include "base/checked.h"
#include "engine/backend.h"
#include "engine/kernels/flat.h"

namespace bindery {
namespace {

constexpr int64_t kAlignment = 64;  // of pieces of staging memory
constexpr int64_t kBlockBytes = (sizeof(StepBlock) + kAlignment - 1) / kAlignment * kAlignment;

// Rows begin..end-1 of a host array along `axis` (-1: all of it), of `out_dtype` and one behind the other.
void CopySlice(const HostTensor& in, int axis, int64_t begin, int64_t end, DType out_dtype, void* out) {
  const Shape& shape = in.shape();
  const int64_t inner = axis < 0 ? shape.Elements() : shape.CountFrom(axis + 1);
  const int64_t stride = axis < 0 ? 0 : shape[axis] * inner, first = axis < 0 ? 0 : begin * inner;
  const int64_t run = axis < 0 ? inner : (end - begin) * inner;
  for (int64_t i = 0; i < (axis < 0 ? 1 : shape.CountTo(axis)); ++i) {
    const char* from = static_cast<const char*>(in.raw()) + (i * stride + first) * SizeOf(in.dtype());
    char* to = static_cast<char*>(out) + i * run * SizeOf(out_dtype);
    if (in.dtype() == out_dtype) {
      flat::Copy(from, to, run * SizeOf(out_dtype));
    } else {
      flat::Cast(in.dtype(), from, out_dtype, to, run);
    }
  }
}

// Labels that the batch does not have are zero: written each time, as nothing here knows what the batch before had.
void ZeroMissingLabels(const Loader& loader, const StepInput& input, Stream& stream) {
  if (input.with_labels) return;
  const FlatKernels& flat = Backend::Of(loader.device.kind).flat();
  for (size_t i = loader.num_data; i < loader.slots.size(); ++i) {
    flat.Zero(stream, loader.slots[i].data, loader.slots[i].bytes);
  }
}

}  // namespace

void Loader::AddSlot(InputSlot slot) {
  slot.landing = LandingBytes();
  slots.push_back(slot);
}

int64_t Loader::LandingBytes() const {
  return slots.empty() ? kBlockBytes : slots.back().landing + RoundUp(slots.back().bytes, kAlignment);
}

StepBlock Loader::BlockOf(const StepInput& input) const {
  StepBlock mine = input.block;
  mine.sample_offset = range.begin;
  if (const BatchPtr& batch = input.shares[index].batch; batch && batch->first) {
    mine.sample_offset = *batch->first + (input.is_cut ? 0 : range.begin);
    if (mine.micro_batch != StepBlock::kPrediction) mine.micro_batch = 0;
  }
  return mine;
}

// visit(source, i) for each slot.
template <class Visit>
void Loader::ForEachHostArray(const StepInput& input, const Visit& visit) const {
  const BatchPtr& share = input.shares[index].batch;  // null for the block alone
  const size_t end = input.with_labels ? slots.size() : num_data;
  for (size_t i = 0; i < end; ++i) {
    const bool is_data = i < num_data;
    const size_t place = is_data ? i : i - num_data;
    if ((is_data ? share->device_data : share->device_label).Find(place)) continue;
    visit((is_data ? share->data : share->label)[place], i);
  }
}

void Loader::Cut(const StepInput& input, const HostTensor& source, const InputSlot& slot, void* to) const {
  const SampleRange mine = input.is_cut ? SampleRange{0, range.size()} : range;
  CopySlice(source, slot.axis, mine.begin, mine.end, slot.dtype, to);
}

void Loader::Load(const StepInput& input) const {
  *static_cast<StepBlock*>(block->data()) = BlockOf(input);
  ForEachHostArray(input, [&](const HostTensor& source, size_t i) { Cut(input, source, slots[i], slots[i].data); });
  input.shares[index].batch.reset();
}

void Loader::Stage(const StepInput& input, Stream& stream) const {
  StepInput::Share& share = input.shares[index];
  if (!share.staging || share.staging->bytes() < LandingBytes()) {
    share.staging = DefaultStorage()->AllocateStaging(device, LandingBytes());
  }
  char* const staging = static_cast<char*>(share.staging->data());
  const auto land = [&](int64_t offset, int64_t bytes) {
    CopyBetween(stream, Cpu(), staging + offset, device, static_cast<char*>(landing->data()) + offset, bytes);
  };
  const StepBlock mine = BlockOf(input);
  std::memcpy(staging, &mine, sizeof(StepBlock));
  land(0, sizeof(StepBlock));
  share.landed.assign(slots.size(), false);
  ForEachHostArray(input, [&](const HostTensor& source, size_t i) {
    Cut(input, source, slots[i], staging + slots[i].landing);
    land(slots[i].landing, slots[i].bytes);
    share.landed[i] = true;
  });
  share.batch.reset();
}

void Loader::Place(const StepInput& input, Stream& stream) const {
  const FlatKernels& flat = Backend::Of(device.kind).flat();
  const char* const from = static_cast<const char*>(landing->data());
  flat.Copy(stream, from, block->data(), input.block.continues ? offsetof(StepBlock, refusal) : sizeof(StepBlock));
  for (size_t i = 0; i < slots.size(); ++i) {
    if (input.shares[index].landed[i]) flat.Copy(stream, from + slots[i].landing, slots[i].data, slots[i].bytes);
  }
}

StepParts Loader::Parts(const VarPtr& landed, const std::vector<VarPtr>& written) const {
  const auto input = [](const OpContext& context) -> const StepInput& {
    return *static_cast<const StepInput*>(context.payload);
  };
  const std::string name = fmt::format("load {}", device);
  if (HostAddressable(device)) {
    return {{.name = name,
             .device = device,
             .writes = written,
             .run =
                 [loader = *this, input](const OpContext& context) {
                   loader.Load(input(context));
                   ZeroMissingLabels(loader, input(context), context.stream);
                 },
             .lane = Lane::kCopy}};
  }
  return {{.name = fmt::format("stage {}", device),
           .device = device,
           .writes = {landed},
           .run = [loader = *this, input](const OpContext& context) { loader.Stage(input(context), context.stream); },
           .lane = Lane::kCopy},
          {.name = name,
           .device = device,
           .reads = {landed},
           .writes = written,
           .run = [loader = *this, input](const OpContext& context) {
             loader.Place(input(context), context.stream);
             ZeroMissingLabels(loader, input(context), context.stream);
           }}};
}

}  // namespace bindery
