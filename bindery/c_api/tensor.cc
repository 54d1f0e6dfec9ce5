#include "bindery/c_api/tensor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bindery/c_api/call.h"
#include "engine/backend.h"

namespace bindery::c_api {
namespace {

struct NamedType {
  DType dtype;
  uint8_t code, bits;
};
constexpr NamedType kTypes[] = {
    {DType::kFloat32, kDLFloat, 32}, {DType::kFloat64, kDLFloat, 64}, {DType::kBFloat16, kDLBfloat, 16},
    {DType::kFloat16, kDLFloat, 16}, {DType::kInt8, kDLInt, 8},       {DType::kInt32, kDLInt, 32},
    {DType::kInt64, kDLInt, 64},     {DType::kUInt8, kDLUInt, 8},     {DType::kBool, kDLBool, 8},
    {DType::kInt16, kDLInt, 16},     {DType::kUInt16, kDLUInt, 16},   {DType::kUInt32, kDLUInt, 32},
    {DType::kUInt64, kDLUInt, 64},
};
static_assert(std::size(kTypes) == kNumDTypes);

void CheckStrides(const DLTensor& memory, const Shape& shape) {
  if (!memory.strides || shape.Elements() <= 1) return;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1 || memory.strides[axis] == shape.CountFrom(axis + 1)) continue;
    Throw<ShapeError>("an array of shape {} has the stride {} along axis {}: expected {}, C order without gaps", shape,
                      memory.strides[axis], axis, shape.CountFrom(axis + 1));
  }
}

// Gives memory back to the library that it came from.
template <class Managed>
struct Owner {
  Managed* managed = nullptr;
  ~Owner() {
    if (managed && managed->deleter) managed->deleter(managed);
  }
};

// Nothing throws once the memory is taken over.
template <class Managed>
bindery_tensor* Take(Managed* managed) {
  auto handle = std::make_unique<bindery_tensor>();
  const auto owner = std::make_shared<Owner<Managed>>();
  handle->tensor = Wrap(managed->dl_tensor, owner);
  owner->managed = managed;
  if constexpr (requires { managed->flags; }) {
    handle->is_read_only = (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  }
  return handle.release();
}

DLTensor Describe(const Tensor& tensor, int64_t* extents, int64_t* strides) {
  const Shape& shape = tensor.shape();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    extents[axis] = shape[axis];
    strides[axis] = shape.CountFrom(axis + 1);
  }
  return {.data = tensor.data(),
          .device = {kDLCPU, 0},
          .ndim = shape.rank(),
          .dtype = TypeOf(tensor.dtype()),
          .shape = extents,
          .strides = strides,
          .byte_offset = 0};
}

// What a DLPack tensor of ours is: the structure, and what it points at.
template <class Managed>
struct Exported {
  Managed managed = {};
  Tensor tensor;
  int64_t extents[Shape::kMaxRank] = {}, strides[Shape::kMaxRank] = {};
};

template <class Managed>
Managed* Export(const Tensor& tensor) {
  tensor.Wait();
  auto exported = std::make_unique<Exported<Managed>>();
  exported->tensor = tensor;
  exported->managed.dl_tensor = Describe(tensor, exported->extents, exported->strides);
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return &exported.release()->managed;
}

}  // namespace

DType DTypeOf(DLDataType dtype) {
  const auto* const found = std::ranges::find_if(
      kTypes, [&](const NamedType& type) { return type.code == dtype.code && type.bits == dtype.bits; });
  if (found == std::end(kTypes) || dtype.lanes != 1) {
    Throw("there are no elements of DLPack's code {}, {} bits and {} lanes here", dtype.code, dtype.bits, dtype.lanes);
  }
  return found->dtype;
}

DLDataType TypeOf(DType dtype) {
  const auto* const found = std::ranges::find(kTypes, dtype, &NamedType::dtype);
  return {found->code, found->bits, 1};
}

Shape ShapeOf(int32_t rank, const int64_t* extents) {
  if (rank < 0) Throw<ShapeError>("an array of rank {}", rank);
  if (rank > 0 && !extents) Throw("the shape of an array of rank {} is NULL", rank);
  const Shape shape(std::span(extents, static_cast<size_t>(rank)));
  if (!shape.IsKnown()) Throw<ShapeError>("an array of shape {}: expected extents of 0 or more", shape);
  return shape;
}

Tensor Wrap(const DLTensor& memory, std::shared_ptr<const void> keep_alive) {
  if (memory.device.device_type != kDLCPU && memory.device.device_type != kDLCUDAHost) {
    Throw<DeviceError>("an array on a device of DLPack's type {}: expected host memory",
                       static_cast<int>(memory.device.device_type));
  }
  const DType dtype = DTypeOf(memory.dtype);
  const Shape shape = ShapeOf(memory.ndim, memory.shape);
  const int64_t elements = shape.Elements();
  CheckStrides(memory, shape);
  if (elements > 0 && !memory.data) Throw("an array of shape {} has no memory: its data is NULL", shape);
  char* const data = elements > 0 ? static_cast<char*>(memory.data) + memory.byte_offset : nullptr;
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(SizeOf(dtype)) != 0) {
    Throw("an array of {} begins between elements", dtype);
  }
  const std::shared_ptr<Engine> engine = DefaultEngine();
  return {engine, Cpu(0), dtype, shape, data, std::move(keep_alive), engine->NewVar()};
}

bindery_tensor* HandleOf(const Tensor& tensor) {
  auto handle = std::make_unique<bindery_tensor>();
  handle->tensor = tensor;
  if (!HostAddressable(tensor.device())) {
    handle->tensor = Tensor(tensor.engine(), Cpu(0), tensor.dtype(), tensor.shape());
    handle->tensor.CopyFrom(tensor);
  }
  return handle.release();
}

}  // namespace bindery::c_api

using namespace bindery;         // NOLINT: these are its functions
using namespace bindery::c_api;  // NOLINT

bindery_status bindery_tensor_create(DLDataType dtype, int32_t rank, const int64_t* shape, bindery_tensor** tensor) {
  return Make(tensor, [&] { return HandleOf(Tensor(Cpu(0), DTypeOf(dtype), ShapeOf(rank, shape))); });
}

bindery_status bindery_tensor_borrow(const DLTensor* memory, bindery_tensor** tensor) {
  return Make(tensor, [&] { return HandleOf(Wrap(Given(memory, "memory"), nullptr)); });
}

bindery_status bindery_tensor_from_dlpack(DLManagedTensor* managed, bindery_tensor** tensor) {
  return Make(tensor, [&] { return Take(&Given(managed, "managed")); });
}

bindery_status bindery_tensor_from_dlpack_versioned(DLManagedTensorVersioned* managed, bindery_tensor** tensor) {
  return Make(tensor, [&] {
    const uint32_t major = Given(managed, "managed").version.major;
    if (major != DLPACK_MAJOR_VERSION) Throw("an array of DLPack's version {}: expected 1", major);
    return Take(managed);
  });
}

bindery_status bindery_tensor_to_dlpack(const bindery_tensor* tensor, DLManagedTensor** managed) {
  return Make(managed, [&] {
    if (Given(tensor, "tensor").is_read_only) {
      Throw(
          "an array that is not to be written: bindery_tensor_to_dlpack cannot say so, but "
          "bindery_tensor_to_dlpack_versioned can");
    }
    return Export<DLManagedTensor>(tensor->tensor);
  });
}

bindery_status bindery_tensor_to_dlpack_versioned(const bindery_tensor* tensor, DLManagedTensorVersioned** managed) {
  return Make(managed, [&] {
    auto* const result = Export<DLManagedTensorVersioned>(Given(tensor, "tensor").tensor);
    result->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    if (tensor->is_read_only) result->flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    return result;
  });
}

bindery_status bindery_tensor_view(const bindery_tensor* tensor, DLTensor* view) {
  return Make(view, [&] {
    const Tensor& shown = Given(tensor, "tensor").tensor;
    shown.Wait();
    auto* const handle = const_cast<bindery_tensor*>(tensor);  // the view's extents are no part of its value
    return Describe(shown, handle->extents, handle->strides);
  });
}

void bindery_tensor_free(bindery_tensor* tensor) { Free(tensor); }
