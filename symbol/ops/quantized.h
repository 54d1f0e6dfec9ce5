// Layers that multiply integers: what predictions make of a layer between DequantizeLinear and QuantizeLinear.
#pragma once

#include <functional>
#include <optional>

#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/fully_connected.h"

namespace bindery {

struct QuantizedConvolutionAttrs : ConvolutionAttrs {
  DType dtype = DType::kFloat32;
  static FieldList Fields() {
    using A = QuantizedConvolutionAttrs;
    return Joined(ConvolutionAttrs::Fields(), {{"dtype", &A::dtype, "of the result: float32, int8 or uint8"}});
  }
};
struct QuantizedFullyConnectedAttrs : FullyConnectedAttrs {
  DType dtype = DType::kFloat32;
  static FieldList Fields() {
    using A = QuantizedFullyConnectedAttrs;
    return Joined(FullyConnectedAttrs::Fields(), {{"dtype", &A::dtype, "of the result: float32, int8 or uint8"}});
  }
};

// (data of int8 or uint8, weight of int8, scale, zero_point [, bias] [, output_scale, output_zero_point]) ->
// y = f(scale L(data - zero_point, weight) + bias), L the layer without bias and f, which is none or relu. `scale` is
// one number or one for each output; data, and the result, have one zero point. With `dtype` int8 or uint8 y is
// quantized as QuantizeLinear does. At most kMostProducts products are summed, in 32 bits.
const OpDef& QuantizedConvolutionOp();
const OpDef& QuantizedFullyConnectedOp();
inline constexpr int64_t kMostProducts = 1 << 16;  // 255 * 128 * kMostProducts < 2^31

// Where the inputs of such a node are.
struct QuantizedInputs {
  static constexpr size_t kData = 0, kWeight = 1, kScale = 2, kZero = 3;
  int bias, output_scale, output_zero;  // or -1
  template <class Attrs>
  explicit QuantizedInputs(const Attrs& attrs)
      : bias(attrs.no_bias ? -1 : 4), output_scale(attrs.dtype == DType::kFloat32 ? -1
                                                   : attrs.no_bias                ? 4
                                                                                  : 5),
        output_zero(output_scale < 0 ? -1 : output_scale + 1) {}
};

// What models are prepared for that: is it a Convolution or a FullyConnected; one of these that integer kernels know,
// without groups and of at most two spatial axes, or a MatMul whose first operand is not transposed; a
// DequantizeLinear? No variable is any of them.
bool IsWeightedLayer(const Node& node);
bool IsIntegerLayer(const Node& node);
bool IsDequantizeLinear(const Node& node);
// The axis along which the outputs of such an integer layer lie in its weight, input 1, of this shape. None if integers
// cannot take it: a MatMul's may be no matrix, and an output may sum more than kMostProducts.
std::optional<int> AxisOfOutputs(const Node& layer, const Shape& weight);

// Layers whose data are DequantizeLinear's by one scale, perhaps flattened, and whose weight is an int8 variable's that
// `is_kept` names, by one scale or one for each output, without a zero point or with zeros, a matrix perhaps transposed
// behind it: with a relu and a QuantizeLinear behind them, which nobody else may read, they become one of the operators
// above, and so does the Add of a vector to a product without a bias. Only layers for which that is faster than in
// float32: without groups, and of at most two spatial axes. `types` are those of the graph.
Symbol FuseQuantized(const Graph& graph, const NodeTypes& types,
                     const std::function<bool(const Node& variable)>& is_kept);

}  // namespace bindery
