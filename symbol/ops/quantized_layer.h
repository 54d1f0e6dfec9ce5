// The definition of a layer that multiplies integers (quantized.h). Private to symbol/ops.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "symbol/ops/quantized.h"
#include "symbol/ops/rules.h"

namespace bindery::rule {

// `outputs`: how many there are; `infer`: the shapes of the layer.
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

}  // namespace bindery::rule
