#include "executor/kernels/cuda/convolution_graph.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace bindery::cuda {
namespace {

using What = PlainConvolution::What;
using Id = ConvolutionTensors;

// Of operands: what engines ask for at most, and what whatever a kernel is bound to has.
constexpr int64_t kAlignment = 16;
// The first that stands for a tensor that is never in memory.
constexpr int64_t kVirtual = 6;

cudnnDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDNN_DATA_DOUBLE;
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
  }
}

// How an operation and its attributes are called.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};
const OperationNames& NamesOf(What what) {
  static constexpr OperationNames kForward = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  static constexpr OperationNames kGradData = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  static constexpr OperationNames kGradWeight = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  return what == What::kForward ? kForward : what == What::kGradData ? kGradData : kGradWeight;
}

// Of one library.
class Describing {
 public:
  explicit Describing(const CudnnApi& api) : api_(api) {}

  CudnnDescriptor Graph(cudnnHandle_t handle, const PlainConvolution& c) const {
    CudnnDescriptor convolution = Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution");
    const bool is_double = c.dtype == DType::kFloat64;
    const cudnnDataType_t compute = is_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    convolution.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, compute);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(c.pad.size()));
    convolution.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.pad);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.pad);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.stride);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilate);
    convolution.Finalize();
    const CudnnDescriptor x = Tensor(Id::kX, c.dtype, c.x), w = Tensor(Id::kW, c.dtype, c.w);
    const DType sums = is_double ? DType::kFloat64 : DType::kFloat32;
    int64_t left = c.adds_addend + c.adds_bias;
    const auto result = [&] { return left > 0 ? Tensor(kVirtual + left, sums, c.y) : Tensor(Id::kY, c.dtype, c.y); };
    CudnnDescriptor y = result();
    const OperationNames& names = NamesOf(c.what);
    CudnnDescriptor operation = Make(names.type, "operation");
    operation.Set(names.convolution, convolution);
    operation.Set(names.x, x);
    operation.Set(names.w, w);
    operation.Set(names.y, y);
    // Of the type that is computed with. With a factor of 0 it does not read what is there.
    if (is_double) {
      operation.Set(names.alpha, 1.0);
      operation.Set(names.beta, 0.0);
    } else {
      operation.Set(names.alpha, 1.0f);
      operation.Set(names.beta, 0.0f);
    }
    operation.Finalize();
    std::vector<CudnnDescriptor> operations;
    operations.push_back(std::move(operation));
    const auto add = [&](const CudnnDescriptor& other) {
      --left;
      CudnnDescriptor next = result();
      operations.push_back(Sum(y, other, next, compute));
      y = std::move(next);
    };
    if (c.adds_addend) add(Tensor(Id::kAddend, c.dtype, c.y));
    if (c.adds_bias) {
      std::vector<int64_t> channels(c.y.size(), 1);
      channels[1] = c.y[1];
      add(Tensor(Id::kBias, c.dtype, channels));
    }
    CudnnDescriptor graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    // Before 9.8 it must be told the handle, and since then it may be.
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
    graph.Finalize();
    return graph;
  }

 private:
  CudnnDescriptor Make(cudnnBackendDescriptorType_t type, const char* what) const { return {api_, type, what}; }

  CudnnDescriptor Tensor(int64_t id, DType dtype, const std::vector<int64_t>& extents) const {
    std::vector<int64_t> strides(extents.size(), 1);
    for (size_t axis = extents.size() - 1; axis-- > 0;) strides[axis] = strides[axis + 1] * extents[axis + 1];
    CudnnDescriptor tensor = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, TypeOf(dtype));
    tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
    tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    if (id >= kVirtual) tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    tensor.Finalize();
    return tensor;
  }

  // x + other -> y
  CudnnDescriptor Sum(const CudnnDescriptor& x, const CudnnDescriptor& other, const CudnnDescriptor& y,
                      cudnnDataType_t compute) const {
    CudnnDescriptor sum = Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "sum");
    sum.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
    sum.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
    sum.Finalize();
    CudnnDescriptor operation = Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "operation");
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, sum);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    operation.Finalize();
    return operation;
  }

  const CudnnApi& api_;
};

}  // namespace

CudnnDescriptor GraphOf(const CudnnApi& api, cudnnHandle_t handle, const PlainConvolution& convolution) {
  return Describing(api).Graph(handle, convolution);
}

}  // namespace bindery::cuda
