#include "tests/engine/cuda/fake/cudnn_convolution.h"

#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "tests/engine/cuda/fake/numbers.h"
#include "tests/engine/cuda/fake/sums.h"

namespace bindery::cuda::fake {
namespace {

constexpr char kWhat[] = "cudnnBackendExecute";

DType DTypeOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE: return DType::kFloat64;
    case CUDNN_DATA_BFLOAT16: return DType::kBFloat16;
    case CUDNN_DATA_HALF: return DType::kFloat16;
    default: return DType::kFloat32;
  }
}

size_t SpanOf(const TensorSeen& tensor) { return static_cast<size_t>(ElementsOf(tensor)) * BytesOf(tensor.type); }
CUdeviceptr Address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// Of three spatial axes, those that are missing in front.
struct Axes {
  int64_t of[3];
  Axes(const std::vector<int64_t>& values, size_t skipped, int64_t missing) : of{missing, missing, missing} {
    const size_t n = values.size() - skipped;
    for (size_t i = 0; i < n; ++i) of[3 - n + i] = values[skipped + i];
  }
  int64_t n() const { return of[0] * of[1] * of[2]; }
  // The place of element `index`.
  void Split(int64_t index, int64_t* at) const {
    for (int axis = 3; axis-- > 0; index /= of[axis]) at[axis] = index % of[axis];
  }
};

// f(place in x, in w, in y, n) for all products, n of which lie behind each other in x and w and belong to one place in
// y. Places are those in arrays with channels last.
template <class F>
void ForAllProducts(const ConvolutionSeen& c, const F& f) {
  const Axes in(c.x.extents, 2, 1), taps(c.w.extents, 2, 1), outs(c.y.extents, 2, 1);
  const Axes before(c.before, 0, 0), stride(c.stride, 0, 1), dilate(c.dilate, 0, 1);
  const int64_t channels = c.w.extents[1], groups = c.x.extents[1] / channels, filters = c.w.extents[0] / groups;
  for (int64_t out = 0; out < outs.n(); ++out) {
    for (int64_t tap = 0; tap < taps.n(); ++tap) {
      int64_t p[3], k[3], place = 0;
      outs.Split(out, p);
      taps.Split(tap, k);
      bool inside = true;
      for (int axis = 0; axis < 3; ++axis) {
        const int64_t at = p[axis] * stride.of[axis] - before.of[axis] + k[axis] * dilate.of[axis];
        inside = inside && at >= 0 && at < in.of[axis];
        place = place * in.of[axis] + at;
      }
      if (!inside) continue;
      for (int64_t sample = 0; sample < c.x.extents[0]; ++sample) {
        for (int64_t filter = 0; filter < groups * filters; ++filter) {
          f(((sample * in.n() + place) * groups + filter / filters) * channels, (filter * taps.n() + tap) * channels,
            (sample * outs.n() + out) * groups * filters + filter, channels);
        }
      }
    }
  }
}

// f(place, place with channels last) for all elements of (samples, channels, ...).
template <class F>
void ForAllPlaces(const TensorSeen& tensor, const F& f) {
  const int64_t channels = tensor.extents[1], inner = ElementsOf(tensor) / (tensor.extents[0] * channels);
  for (int64_t i = 0; i < ElementsOf(tensor); ++i) {
    f(i, (i / (channels * inner) * inner + i % inner) * channels + i / inner % channels);
  }
}

// Where element `index` of `whole` is in what is stretched to it.
int64_t PlaceIn(const TensorSeen& stretched, const TensorSeen& whole, int64_t index) {
  int64_t place = 0;
  for (size_t axis = whole.extents.size(); axis-- > 0; index /= whole.extents[axis]) {
    if (stretched.extents[axis] > 1) place += index % whole.extents[axis] * stretched.strides[axis];
  }
  return place;
}

}  // namespace

size_t BytesOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE: return 8;
    case CUDNN_DATA_FLOAT: return 4;
    case CUDNN_DATA_BFLOAT16:
    case CUDNN_DATA_HALF: return 2;
    default: return 0;
  }
}

int64_t ElementsOf(const TensorSeen& tensor) {
  int64_t n = 1;
  for (const int64_t extent : tensor.extents) n *= extent;
  return n;
}

Accesses FakeConvolution::AccessedMemory() const {
  const ConvolutionSeen& c = convolution;
  Accesses accesses = {
      {Address(x), SpanOf(c.x), c.what == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR},
      {Address(w), SpanOf(c.w), c.what == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR},
      {Address(y), SpanOf(c.y), c.what == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR}};
  for (size_t i = 0; i < added.size(); ++i) accesses.push_back({Address(added[i]), SpanOf(c.added[i]), false});
  if (workspace_bytes > 0) accesses.push_back({Address(workspace), workspace_bytes, true});
  return accesses;
}

CUresult FakeConvolution::Run(const FakeGpu& gpu) const {
  const ConvolutionSeen& c = convolution;
  const DType dtype = DTypeOf(c.x.type);
  char* const at_x = Resolve(gpu, Address(x), SpanOf(c.x), kWhat);
  char* const at_w = Resolve(gpu, Address(w), SpanOf(c.w), kWhat);
  char* const at_y = Resolve(gpu, Address(y), SpanOf(c.y), kWhat);
  char* const work = workspace_bytes > 0 ? Resolve(gpu, Address(workspace), workspace_bytes, kWhat) : nullptr;
  if (!at_x || !at_w || !at_y || (workspace_bytes > 0 && !work)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (work) std::memset(work, 0xff, workspace_bytes);
  const auto zeros = [](const TensorSeen& tensor) {
    return std::vector<double>(static_cast<size_t>(ElementsOf(tensor)));
  };
  const auto read = [&](const char* memory, const TensorSeen& tensor) {
    std::vector<double> values = zeros(tensor);
    ForAllPlaces(tensor, [&](int64_t i, int64_t last) {
      const double value = Number(memory, dtype, i);
      values[static_cast<size_t>(last)] = tf32 ? ToTf32(value) : value;
    });
    return values;
  };
  const auto write = [&](char* memory, const TensorSeen& tensor, const std::vector<double>& values) {
    ForAllPlaces(tensor, [&](int64_t i, int64_t last) { Store(memory, dtype, i, values[static_cast<size_t>(last)]); });
  };
  if (c.what == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
    const std::vector<double> data = read(at_x, c.x), weight = read(at_w, c.w);
    std::vector<double> sums = zeros(c.y);
    ForAllProducts(c, [&](int64_t i, int64_t j, int64_t k, int64_t n) {
      sums[static_cast<size_t>(k)] += DotProduct(data.data() + i, weight.data() + j, n);
    });
    for (size_t n = 0; n < added.size(); ++n) {
      const TensorSeen& other = c.added[n];
      char* const memory = Resolve(gpu, Address(added[n]), SpanOf(other), kWhat);
      if (!memory) return CUDA_ERROR_ILLEGAL_ADDRESS;
      ForAllPlaces(c.y, [&](int64_t i, int64_t last) {
        sums[static_cast<size_t>(last)] += Number(memory, dtype, PlaceIn(other, c.y, i));
      });
    }
    write(at_y, c.y, sums);
  } else if (c.what == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    const std::vector<double> gradient = read(at_y, c.y), weight = read(at_w, c.w);
    std::vector<double> sums = zeros(c.x);
    ForAllProducts(c, [&](int64_t i, int64_t j, int64_t k, int64_t n) {
      AddScaled(gradient[static_cast<size_t>(k)], weight.data() + j, sums.data() + i, n);
    });
    write(at_x, c.x, sums);
  } else {
    const std::vector<double> gradient = read(at_y, c.y), data = read(at_x, c.x);
    std::vector<double> sums = zeros(c.w);
    ForAllProducts(c, [&](int64_t i, int64_t j, int64_t k, int64_t n) {
      AddScaled(gradient[static_cast<size_t>(k)], data.data() + i, sums.data() + j, n);
    });
    write(at_w, c.w, sums);
  }
  return CUDA_SUCCESS;
}

}  // namespace bindery::cuda::fake
