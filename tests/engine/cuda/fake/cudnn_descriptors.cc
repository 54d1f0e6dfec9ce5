#include "tests/engine/cuda/fake/cudnn_descriptors.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tests/engine/cuda/fake/cudnn_convolution.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake::dnn {
namespace {

// ---- what is known of attributes that are set ----

struct Known {
  cudnnBackendAttributeName_t name;
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeType_t type;
  int64_t most = 1;  // elements
  bool required = true;
};
constexpr Known kKnown[] = {
    {CUDNN_ATTR_TENSOR_UNIQUE_ID, kTensor, CUDNN_TYPE_INT64},
    {CUDNN_ATTR_TENSOR_DATA_TYPE, kTensor, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensor, CUDNN_TYPE_INT64},
    {CUDNN_ATTR_TENSOR_DIMENSIONS, kTensor, CUDNN_TYPE_INT64, CUDNN_DIM_MAX},
    {CUDNN_ATTR_TENSOR_STRIDES, kTensor, CUDNN_TYPE_INT64, CUDNN_DIM_MAX},
    {CUDNN_ATTR_TENSOR_IS_VIRTUAL, kTensor, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, kConvolution, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_ATTR_CONVOLUTION_CONV_MODE, kConvolution, CUDNN_TYPE_CONVOLUTION_MODE},
    {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, kConvolution, CUDNN_TYPE_INT64},
    {CUDNN_ATTR_CONVOLUTION_DILATIONS, kConvolution, CUDNN_TYPE_INT64, CUDNN_DIM_MAX},
    {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, kConvolution, CUDNN_TYPE_INT64, CUDNN_DIM_MAX},
    {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, kConvolution, CUDNN_TYPE_INT64, CUDNN_DIM_MAX},
    {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, kConvolution, CUDNN_TYPE_INT64, CUDNN_DIM_MAX},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kForward, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kForward, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kForward, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kForward, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, kForward, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, kForward, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kGradData, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kGradData, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kGradData, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kGradData, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, kGradData, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, kGradData, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kGradWeight, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kGradWeight, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kGradWeight, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kGradWeight, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, kGradWeight, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, kGradWeight, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_POINTWISE_MODE, kPointwise, CUDNN_TYPE_POINTWISE_MODE},
    {CUDNN_ATTR_POINTWISE_MATH_PREC, kPointwise, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kSum, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kSum, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kSum, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kSum, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, kGraph, CUDNN_TYPE_HANDLE},
    {CUDNN_ATTR_OPERATIONGRAPH_OPS, kGraph, CUDNN_TYPE_BACKEND_DESCRIPTOR, 3},
    {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kHeuristics, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_ENGINEHEUR_MODE, kHeuristics, CUDNN_TYPE_HEUR_MODE},
    {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, kPlan, CUDNN_TYPE_HANDLE},
    {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kPlan, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kPack, CUDNN_TYPE_INT64, 5},
    {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, kPack, CUDNN_TYPE_VOID_PTR, 5},
    {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, kPack, CUDNN_TYPE_VOID_PTR},
};

size_t BytesOfElement(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_HANDLE: return 8;
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    default: return 4;
  }
}

// ---- what descriptors are when they are finalized: null, or what is wrong with them ----

TensorSeen TensorOf(const Descriptor& d) {
  return {.type = d.Get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)[0],
          .alignment = d.Get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)[0],
          .extents = d.Get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          .strides = d.Get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES)};
}

const char* FaultOfTensor(const Descriptor& d) {
  const TensorSeen t = TensorOf(d);
  if (BytesOf(t.type) == 0) return "a type that the fake does not know";
  if (t.alignment < 1 || t.alignment % static_cast<int64_t>(BytesOf(t.type)) != 0) return "an alignment that cannot be";
  if (t.extents.size() != t.strides.size()) return "extents and strides of other numbers of axes";
  int64_t packed = 1;
  for (size_t axis = t.extents.size(); axis-- > 0; packed *= t.extents[axis]) {
    if (t.extents[axis] < 1) return "no elements";
    if (t.strides[axis] != packed) return "a tensor that is not packed, which the fake does not do";
  }
  return nullptr;
}

bool IsVirtual(const Descriptor& tensor) {
  return tensor.values.contains(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && tensor.Get<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)[0] != 0;
}
int64_t IdOf(const Descriptor& tensor) { return tensor.Get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)[0]; }

const char* FaultOfConvolution(const Descriptor& d) {
  const auto axes = static_cast<size_t>(d.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)[0]);
  for (const auto name : {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                          CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS}) {
    if (d.Get<int64_t>(name).size() != axes) return "other numbers of spatial axes";
  }
  if (axes != 2 && axes != 3) return "a number of spatial axes that engines do not do";
  return nullptr;
}

// In the order of the table.
struct OfOperation {
  const Known* first;
  explicit OfOperation(cudnnBackendDescriptorType_t type) : first(std::ranges::find(kKnown, type, &Known::of)) {}
  auto operator[](int i) const { return first[i].name; }
};

const char* FaultOfOperation(Descriptor* d) {
  const OfOperation of(d->type);
  const Descriptor &convolution = d->others.at(of[0]), &x = d->others.at(of[1]);
  const Descriptor &w = d->others.at(of[2]), &y = d->others.at(of[3]);
  if (convolution.type != kConvolution || x.type != kTensor || w.type != kTensor || y.type != kTensor) {
    return "descriptors of other types";
  }
  ConvolutionSeen& c = d->convolution;
  c = {.what = d->type,
       .compute = convolution.Get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE)[0],
       .mode = convolution.Get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE)[0],
       .before = convolution.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
       .after = convolution.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
       .stride = convolution.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
       .dilate = convolution.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
       .x = TensorOf(x),
       .w = TensorOf(w),
       .y = TensorOf(y)};
  d->ids = {IdOf(x), IdOf(w), IdOf(y)};
  if (d->ids[0] == d->ids[1] || d->ids[0] == d->ids[2] || d->ids[1] == d->ids[2]) return "tensors of one name";
  if (c.x.type != c.w.type || (IsVirtual(y) ? c.compute : c.x.type) != c.y.type) return "tensors of different types";
  if (IsVirtual(x) || IsVirtual(w)) return "operands that are not in memory";
  const bool is_double = c.x.type == CUDNN_DATA_DOUBLE;
  if (c.compute != (is_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT)) return "computed with in another type";
  if (c.mode != CUDNN_CROSS_CORRELATION) return "a convolution with the weight turned round";
  for (const int factor : {4, 5}) {
    const Value& value = d->values.at(of[factor]);
    if (value.type != (is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT)) return "a factor of another type";
    const double number = is_double ? d->Get<double>(of[factor])[0] : static_cast<double>(d->Get<float>(of[factor])[0]);
    if (number != (factor == 4 ? 1 : 0)) return "a factor that the fake does not do";
  }
  const size_t axes = c.before.size();
  for (const TensorSeen* tensor : {&c.x, &c.w, &c.y}) {
    if (tensor->extents.size() != axes + 2) return "tensors of another number of axes";
  }
  const int64_t groups = c.x.extents[1] / c.w.extents[1];
  if (c.x.extents[0] != c.y.extents[0] || c.w.extents[0] != c.y.extents[1] || groups < 1 ||
      groups * c.w.extents[1] != c.x.extents[1] || c.w.extents[0] % groups != 0) {
    return "channels or samples that do not go together";
  }
  for (size_t i = 0; i < axes; ++i) {
    if (c.before[i] < 0 || c.after[i] < 0 || c.stride[i] < 1 || c.dilate[i] < 1) return "windows that cannot be";
    const int64_t room = c.x.extents[i + 2] + c.before[i] + c.after[i] - (c.w.extents[i + 2] - 1) * c.dilate[i] - 1;
    if (room < 0 || c.y.extents[i + 2] != room / c.stride[i] + 1) return "windows that do not go together with extents";
  }
  return nullptr;
}

const char* FaultOfSum(const Descriptor& d) {
  const Descriptor& how = d.others.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  if (how.type != kPointwise || how.Get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)[0] != CUDNN_POINTWISE_ADD) {
    return "an operation that the fake does not do";
  }
  TensorSeen tensors[3];
  int i = 0;
  for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                          CUDNN_ATTR_OPERATION_POINTWISE_YDESC}) {
    if (d.others.at(name).type != kTensor) return "descriptors of other types";
    tensors[i++] = TensorOf(d.others.at(name));
  }
  const auto& [x, b, y] = tensors;
  if (x.extents != y.extents || b.extents.size() != y.extents.size()) return "extents that do not go together";
  for (size_t axis = 0; axis < y.extents.size(); ++axis) {
    if (b.extents[axis] != y.extents[axis] && b.extents[axis] != 1) return "extents that do not go together";
  }
  return nullptr;
}

// A convolution, and sums onto it, each of what came before, which is nowhere in memory.
const char* FaultOfGraph(Descriptor* d) {
  const Descriptor& first = d->operations[0];
  if (first.type != kForward && first.type != kGradData && first.type != kGradWeight)
    return "a graph of something else";
  d->convolution = first.convolution;
  d->ids = first.ids;
  ConvolutionSeen& c = d->convolution;
  const Descriptor* y = &first.others.at(OfOperation(first.type)[3]);
  for (size_t i = 1; i < d->operations.size(); ++i) {
    const Descriptor& sum = d->operations[i];
    if (sum.type != kSum || first.type != kForward) return "operations that do not follow each other";
    const Descriptor& added = sum.others.at(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (!IsVirtual(*y) || IdOf(sum.others.at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) != IdOf(*y)) {
      return "operations that do not follow each other";
    }
    const Descriptor& how = sum.others.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    if (how.Get<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC)[0] != c.compute)
      return "computed with in another type";
    y = &sum.others.at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (IsVirtual(added) || TensorOf(added).type != c.x.type)
      return "what is added is not in memory, or of another type";
    if (std::ranges::find(d->ids, IdOf(added)) != d->ids.end()) return "tensors of one name";
    c.added.push_back(TensorOf(added));
    d->ids.push_back(IdOf(added));
  }
  c.y = TensorOf(*y);
  d->ids[2] = IdOf(*y);
  if (IsVirtual(*y)) return "an output that is not in memory";
  return c.y.type == c.x.type ? nullptr : "tensors of different types";
}

const char* FaultOfPack(const Descriptor& d) {
  std::vector<int64_t> ids = d.Get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  if (ids.size() != d.Get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size()) return "other numbers of addresses";
  std::ranges::sort(ids);
  if (std::ranges::adjacent_find(ids) != ids.end()) return "two addresses of one tensor";
  return nullptr;
}

}  // namespace

Library& TheLibrary() {
  static Library& library = *new Library;  // never destroyed: plans may be static
  return library;
}

cudnnStatus_t Reject(const char* call, const std::string& why, cudnnStatus_t status) {
  Violation(fmt::format("{}: {}", call, why));
  return status;
}

Descriptor* Find(const char* call, cudnnBackendDescriptor_t descriptor) {
  const auto found = TheLibrary().descriptors.find(descriptor);
  if (found == TheLibrary().descriptors.end()) return Reject(call, "no such descriptor"), nullptr;
  return &found->second;
}
const Handle* Find(const char* call, cudnnHandle_t handle) {
  const auto found = TheLibrary().handles.find(handle);
  if (found == TheLibrary().handles.end()) return Reject(call, "no such handle"), nullptr;
  if (Current(call) != found->second.gpu) return Reject(call, "a handle of another GPU"), nullptr;
  return &found->second;
}

cudnnStatus_t CreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  *descriptor = reinterpret_cast<cudnnBackendDescriptor_t>(library.next += 16);
  library.descriptors[*descriptor] = {.type = type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t DestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  constexpr char kCall[] = "cudnnBackendDestroyDescriptor";
  const std::lock_guard lock(TheLibrary().mutex);
  const Descriptor* const d = Find(kCall, descriptor);
  if (!d) return CUDNN_STATUS_BAD_PARAM;
  if (d->type == kPlan && d->finalized && Current(kCall) != d->gpu) Violation("a plan goes without its GPU's context");
  TheLibrary().descriptors.erase(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  constexpr char kCall[] = "cudnnBackendSetAttribute";
  const std::lock_guard lock(TheLibrary().mutex);
  Descriptor* const d = Find(kCall, descriptor);
  if (!d) return CUDNN_STATUS_BAD_PARAM;
  const auto* const known = std::ranges::find(kKnown, name, &Known::name);
  const auto reject = [&](const char* why) { return Reject(kCall, fmt::format("{} {}", int{name}, why)); };
  if (known == std::end(kKnown) || known->of != d->type) return reject("is no attribute of it that the fake knows");
  const bool fits = type == known->type || (known->type == CUDNN_TYPE_FLOAT && type == CUDNN_TYPE_DOUBLE);
  if (!fits || count < 1 || count > known->most || !elements) return reject("is of another type or number");
  if (d->finalized || d->values.contains(name)) return reject("is set already");
  Value value{.type = type, .bytes = std::vector<char>(static_cast<size_t>(count) * BytesOfElement(type))};
  std::memcpy(value.bytes.data(), elements, value.bytes.size());
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      const Descriptor* const other = Find(kCall, static_cast<const cudnnBackendDescriptor_t*>(elements)[i]);
      if (!other || !other->finalized) return reject("is not finalized");
      d->others.emplace(name, *other);  // the first
      if (d->type == kGraph) d->operations.push_back(*other);
    }
  }
  d->values.emplace(name, std::move(value));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Finalize(cudnnBackendDescriptor_t descriptor) {
  constexpr char kCall[] = "cudnnBackendFinalize";
  const std::lock_guard lock(TheLibrary().mutex);
  Descriptor* const d = Find(kCall, descriptor);
  if (!d) return CUDNN_STATUS_BAD_PARAM;
  if (d->finalized) return Reject(kCall, "it is finalized already");
  size_t known = 0;
  for (const Known& each : kKnown) {
    if (each.of != d->type) continue;
    ++known;
    if (each.required && !d->values.contains(each.name))
      return Reject(kCall, fmt::format("{} is missing", int{each.name}));
  }
  if (known == 0) return Reject(kCall, "what is read only, or what the fake does not know");
  const auto use = [&](cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) {
    const Descriptor& other = d->others.at(name);
    d->convolution = other.convolution;
    d->ids = other.ids;
    d->gpu = other.gpu;
    d->engine = other.engine;
    d->place = other.place;
    return other.type == type;
  };
  const auto finds = [&](const Handle* handle) {
    if (handle && handle->stream) Violation(fmt::format("{}: by a handle whose stream may be captured", kCall));
    return handle != nullptr;
  };
  const char* fault = nullptr;
  const char* const kOther = "a descriptor of another type";
  switch (d->type) {
    case kTensor: fault = FaultOfTensor(*d); break;
    case kConvolution: fault = FaultOfConvolution(*d); break;
    case kForward:
    case kGradData:
    case kGradWeight: fault = FaultOfOperation(d); break;
    case kPointwise: break;
    case kSum: fault = FaultOfSum(*d); break;
    case kPack: fault = FaultOfPack(*d); break;
    case kGraph: {
      const Handle* const handle = Find(kCall, d->Get<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)[0]);
      if (!finds(handle)) return CUDNN_STATUS_BAD_PARAM;
      fault = FaultOfGraph(d);
      d->gpu = handle->gpu;
      TheLibrary().convolutions.push_back(d->convolution);
      break;
    }
    case kHeuristics: fault = use(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kGraph) ? nullptr : kOther; break;
    default: {  // a plan
      const Handle* const handle = Find(kCall, d->Get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)[0]);
      if (!finds(handle)) return CUDNN_STATUS_BAD_PARAM;
      if (!use(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) fault = kOther;
      if (d->gpu != handle->gpu) fault = "an engine of another GPU";
      if (!fault && d->engine.status != CUDNN_STATUS_SUCCESS) return d->engine.status;
    }
  }
  if (fault) return Reject(kCall, fault);
  d->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace bindery::cuda::fake::dnn
