// Layers that multiply integers: what predictions make of a layer between DequantizeLinear and QuantizeLinear.
#pragma once

#include <functional>

#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/rules.h"

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

// Layers whose data are DequantizeLinear's by one scale, perhaps flattened, and whose weight is an int8 variable's that
// `is_kept` names, by one scale or one for each output, without a zero point or with zeros: with a relu and a
// QuantizeLinear behind them, which nobody else may read, they become one of the operators above. Only layers for which
// that is faster than in float32: without groups, and of at most two spatial axes. `types` are those of the graph.
Symbol FuseQuantized(const Graph& graph, const NodeTypes& types,
                     const std::function<bool(const Node& variable)>& is_kept);

namespace rule {

// The definition of such an operator. Private to symbol/ops.
template <class Attrs>
OpDef QuantizedLayer(const char* name, std::string doc, int64_t (*outputs)(const Attrs&),
                     void (*infer)(const Attrs&, Value data, Value weight, Value output),
                     std::function<void(const AnyAttrs&)> check) {
  const AttrTest has_bias = If<Attrs>([](const Attrs& attrs) { return !attrs.no_bias; });
  const AttrTest quantizes = If<Attrs>([](const Attrs& attrs) { return attrs.dtype != DType::kFloat32; });
  return {.name = name,
          .doc = std::move(doc),
          .attrs_type = &AttrsOf<Attrs>(),
          .inputs = {"data", "weight", "scale", "zero_point", Optional("bias", has_bias),
                     Optional("output_scale", quantizes), Optional("output_zero_point", quantizes)},
          .infer =
              [=](InferContext& c) {
                const auto& attrs = c.attrs<Attrs>();
                const auto is_byte = [](DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUInt8; };
                const std::optional<DType> dtype = c.in(0).dtype();
                if (dtype && !is_byte(*dtype)) Throw<ShapeError>("takes data of int8 or uint8, got {}", *dtype);
                SameDType({c.in(0), c.in(3)});
                c.in(1).SetDType(DType::kInt8);
                for (const int i : {2, 4, 5}) c.in(i).SetDType(DType::kFloat32);
                SameDType({c.in(6), c.out(0)});
                c.out(0).SetDType(attrs.dtype);
                c.in(4).Set({outputs(attrs)});
                const auto expect_one = [&](Value value, int64_t or_so_many) {
                  if (!value.Known() || value.shape()->Elements() == 1) return;
                  if (*value.shape() == Shape{or_so_many}) return;
                  Throw<ShapeError>("scales and zero points are of one element, and scale of one for each output: {}",
                                    *value.shape());
                };
                expect_one(c.in(2), outputs(attrs));
                for (const int i : {3, 5, 6}) expect_one(c.in(i), 1);
                infer(attrs, c.in(0), c.in(1), c.out(0));
              },
          .check =
              [check](const AnyAttrs& any) {
                const auto& attrs = any.get<Attrs>();
                if (attrs.dtype != DType::kFloat32 && attrs.dtype != DType::kInt8 && attrs.dtype != DType::kUInt8) {
                  Throw<ModelError>("dtype must be float32, int8 or uint8, got {}", attrs.dtype);
                }
                if (attrs.activation != ActivationType::kNone && attrs.activation != ActivationType::kRelu) {
                  throw ModelError("activation must be none or relu");
                }
                check(any);
              },
          .not_differentiable = "it is made in predictions alone"};
}

}  // namespace rule
}  // namespace bindery
