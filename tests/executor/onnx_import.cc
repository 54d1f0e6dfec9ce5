#include "tests/executor/onnx_import.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/checked.h"
#include "symbol/infer.h"
#include "symbol/ops.h"

namespace bindery {
namespace {

class Importer {
 public:
  explicit Importer(const OnnxTest& test) : test_(test) {
    for (const auto& [name, value] : test.model.initializers) AddVariable(name, value);
    for (const auto& [name, value] : test.feeds) AddVariable(name, value);
  }

  ImportedOnnx Run();

  // Of the node at hand.
  const OnnxNode& node() const { return *node_; }
  int64_t opset() const { return test_.model.opset; }
  Symbol In(size_t i) const { return symbols_.at(node_->inputs.at(i)); }
  Shape ShapeOf(const Symbol& symbol) const {
    ShapeMap known;
    for (const std::string& name : symbol.ListInputs()) known[name] = result_.values.at(name).shape();
    return *InferShapes(symbol, known).outputs.at(0);
  }
  DType DTypeOf(const Symbol& symbol) const {
    DTypeMap known;
    for (const std::string& name : symbol.ListInputs()) known[name] = result_.values.at(name).dtype();
    return InferDTypes(symbol, known).outputs.at(0);
  }
  // An input whose value must be known here, because our operator has it as an attribute.
  const HostTensor& Static(size_t i) const {
    const auto found = constants_.find(node_->inputs.at(i));
    if (found == constants_.end()) Throw("input {} is computed, but our operator takes it as an attribute", i);
    return found->second;
  }
  std::vector<int64_t> StaticInts(size_t i) const {
    std::vector<int64_t> list;
    const HostTensor as_int64 = Static(i).Cast(DType::kInt64);
    for (int64_t value : as_int64.data<int64_t>()) list.push_back(value);
    return list;
  }
  // Axes and the like: an attribute up to some version, an input since.
  std::vector<int64_t> AttributeOrInput(const char* key, size_t input) const {
    return node_->HasInput(input) ? StaticInts(input) : node_->Ints(key);
  }
  void Out(size_t i, const Symbol& symbol) { symbols_[node_->outputs.at(i)] = symbol; }
  void OutConstant(const HostTensor& value) {
    constants_[node_->outputs.at(0)] = value;
    Out(0, Constant(value, node_->outputs[0]));
  }
  bool Wanted(size_t output) const { return output < node_->outputs.size() && !node_->outputs[output].empty(); }
  void OneOutput() const {
    if (Wanted(1)) Throw("only the first output can be had");
  }
  void SetMode(Mode mode) { result_.mode = mode; }

 private:
  void AddVariable(const std::string& name, const HostTensor& value) {
    symbols_[name] = Variable(name);
    constants_[name] = value;
    result_.values[name] = value;
  }

  const OnnxTest& test_;
  const OnnxNode* node_ = nullptr;
  std::map<std::string, Symbol> symbols_;
  HostTensorMap constants_;
  ImportedOnnx result_;
};

using Handler = std::function<void(Importer&)>;

Symbol ReshapeTo(const Symbol& x, const Shape& shape) { return Reshape(x, {.shape = {shape.begin(), shape.end()}}); }

// --- Element-wise operators.

template <class F>
Handler Unary(const F& f) {
  return [f](Importer& im) { im.Out(0, f(im.In(0), "")); };
}

// Up to version 6 the second operand may be aligned at an axis instead of the last one.
Handler Binary(const BinaryFunction& f) {
  return [f](Importer& im) {
    Symbol b = im.In(1);
    const int64_t axis = im.node().Int("axis", -1);
    if (axis >= 0) {
      Shape shape = im.ShapeOf(b);
      while (shape.rank() + axis < im.ShapeOf(im.In(0)).rank()) shape = shape.Insert(shape.rank(), 1);
      b = ReshapeTo(b, shape);
    }
    im.Out(0, f(im.In(0), b, ""));
  };
}

// Any number of operands, from left to right.
Symbol Chain(Importer& im, const BinaryFunction& f) {
  Symbol y = Identity(im.In(0));
  for (size_t i = 1; i < im.node().inputs.size(); ++i) y = f(y, im.In(i), "");
  return y;
}

Handler Variadic(const BinaryFunction& f) {
  return [f](Importer& im) { im.Out(0, Chain(im, f)); };
}

void ImportIsInf(Importer& im) {
  const Symbol x = im.In(0);
  Symbol y = IsInf(x);
  if (!im.node().Int("detect_negative", 1)) y = And(y, Greater(x, 0.0));
  if (!im.node().Int("detect_positive", 1)) y = And(y, Less(x, 0.0));
  im.Out(0, y);
}

// The result has the base's type.
void ImportPow(Importer& im) {
  const DType base = im.DTypeOf(im.In(0)), exponent = im.DTypeOf(im.In(1));
  if (base == exponent) return Binary(Power)(im);
  const DType own = IsFloat(base) || !IsFloat(exponent) ? base : exponent;
  const Symbol y = Power(Cast(im.In(0), {.dtype = own}), Cast(im.In(1), {.dtype = own}));
  im.Out(0, Cast(y, {.dtype = base}));
}

// With `fmod` the remainder has the dividend's sign, else the divisor's.
void ImportMod(Importer& im) {
  if (!im.node().Int("fmod", 0)) return Binary(Mod)(im);
  im.Out(0, Sign(im.In(0)) * Mod(Abs(im.In(0)), Abs(im.In(1))));
}

// The bounds: attributes up to version 6, inputs since, each of which may be missing.
void ImportClip(Importer& im) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (im.opset() < 11) return im.Out(0, Clip(im.In(0), im.node().Float("min", -kMost), im.node().Float("max", kMost)));
  Symbol y = Identity(im.In(0));
  if (im.node().HasInput(1)) y = Maximum(y, im.In(1));
  if (im.node().HasInput(2)) y = Minimum(y, im.In(2));
  im.Out(0, y);
}

DType CastTarget(int64_t onnx_type) {
  switch (onnx_type) {
    case 1: return DType::kFloat32;
    case 2: return DType::kUInt8;
    case 3: return DType::kInt8;
    case 4: return DType::kUInt16;
    case 5: return DType::kInt16;
    case 6: return DType::kInt32;
    case 7: return DType::kInt64;
    case 9: return DType::kBool;
    case 10: return DType::kFloat16;
    case 11: return DType::kFloat64;
    case 12: return DType::kUInt32;
    case 13: return DType::kUInt64;
    case 16: return DType::kBFloat16;
    default: Throw("element type {} of ONNX has no counterpart", onnx_type);
  }
}

// --- Windows.

AutoPad AutoPadOf(const OnnxNode& node) {
  const std::string name = node.String("auto_pad", "NOTSET");
  return name == "VALID"        ? AutoPad::kValid
         : name == "SAME_UPPER" ? AutoPad::kSameUpper
         : name == "SAME_LOWER" ? AutoPad::kSameLower
                                : AutoPad::kNone;
}

ConvolutionAttrs ConvolutionAttrsOf(Importer& im) {
  const OnnxNode& node = im.node();
  const Shape weight = im.ShapeOf(im.In(1));
  return {.num_filter = weight[0],
          .kernel = {weight.begin() + 2, weight.end()},
          .stride = node.Ints("strides"),
          .pad = node.Ints("pads"),
          .dilate = node.Ints("dilations"),
          .auto_pad = AutoPadOf(node),
          .groups = node.Int("group", 1),
          .no_bias = !node.HasInput(2)};
}

void ImportConv(Importer& im) {
  const ConvolutionAttrs attrs = ConvolutionAttrsOf(im);
  std::vector<Symbol> inputs = {im.In(0), im.In(1)};
  if (!attrs.no_bias) inputs.push_back(im.In(2));
  im.Out(0, Apply(ConvolutionOp(), attrs, inputs));
}

// The gradient of a convolution's data. What the output loses at both sides is the convolution's padding.
void ImportConvTranspose(Importer& im) {
  const OnnxNode& node = im.node();
  ConvolutionGradDataAttrs attrs{ConvolutionAttrsOf(im), {}};
  attrs.no_bias = true;
  attrs.auto_pad = AutoPad::kNone;
  const Shape data = im.ShapeOf(im.In(0));
  const size_t spatial = attrs.kernel.size();
  const auto at = [&](const std::vector<int64_t>& list, size_t i, int64_t otherwise) {
    return list.empty() ? otherwise : list[i];
  };
  const std::vector<int64_t> wanted = node.Ints("output_shape"), more = node.Ints("output_padding");
  std::vector<int64_t> pads(2 * spatial);
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t size = data[static_cast<int>(i) + 2], stride = at(attrs.stride, i, 1);
    const int64_t whole = stride * (size - 1) + at(more, i, 0) + (attrs.kernel[i] - 1) * at(attrs.dilate, i, 1) + 1;
    if (!wanted.empty() || AutoPadOf(node) != AutoPad::kNone) {
      attrs.extents.push_back(at(wanted, i, size * stride));
      const int64_t total = std::max<int64_t>(whole - attrs.extents[i], 0);
      pads[i] = AutoPadOf(node) == AutoPad::kSameUpper ? total / 2 : total - total / 2;
      pads[i + spatial] = total - pads[i];
    } else {
      attrs.extents.push_back(whole - at(attrs.pad, i, 0) - at(attrs.pad, i + spatial, 0));
    }
  }
  if (attrs.pad.empty()) attrs.pad = pads;
  Symbol y = ConvolutionGradData(im.In(0), im.In(1), attrs);
  if (node.HasInput(2)) {
    Shape bias = im.ShapeOf(im.In(2));
    for (size_t i = 0; i < spatial; ++i) bias = bias.Insert(bias.rank(), 1);
    y = y + ReshapeTo(im.In(2), bias);
  }
  im.Out(0, y);
}

void ImportPool(Importer& im, PoolType type) {
  const OnnxNode& node = im.node();
  im.OneOutput();
  im.Out(0, Pooling(im.In(0), {.type = type,
                               .kernel = node.Ints("kernel_shape"),
                               .stride = node.Ints("strides"),
                               .pad = node.Ints("pads"),
                               .dilate = node.Ints("dilations"),
                               .auto_pad = AutoPadOf(node),
                               .ceil_mode = node.Int("ceil_mode", 0) != 0,
                               .count_include_pad = node.Int("count_include_pad", 0) != 0}));
}

Handler GlobalPool(PoolType type) {
  return [type](Importer& im) { im.Out(0, Pooling(im.In(0), {.type = type, .global = true})); };
}

void ImportBatchNorm(Importer& im) {
  const OnnxNode& node = im.node();
  const BatchNormAttrs attrs{.eps = node.Float("epsilon", 1e-5), .fix_gamma = false, .output_mean_var = true};
  const bool training = node.Int("training_mode", 0) != 0;
  if (training) im.SetMode(Mode::kTrain);
  const Symbol bn = Apply(BatchNormOp(), attrs, {im.In(0), im.In(1), im.In(2), im.In(3), im.In(4)});
  im.Out(0, bn[0]);
  if (!training) return im.OneOutput();
  const double momentum = node.Float("momentum", 0.9);
  for (int i : {1, 2}) im.Out(i, im.In(2 + i) * momentum + bn[i] * (1 - momentum));
}

// --- Others.

void ImportDropout(Importer& im) {
  const OnnxNode& node = im.node();
  im.OneOutput();
  const bool training = node.HasInput(2) && im.Static(2).At(0) != 0;
  const double ratio = node.HasInput(1) ? im.Static(1).At(0) : node.Float("ratio", 0.5);
  if (training) im.SetMode(Mode::kTrain);
  im.Out(0, Dropout(im.In(0), {.p = ratio}));
}

void ImportSoftmax(Importer& im) {
  const Symbol x = im.In(0);
  if (im.opset() >= 13) return im.Out(0, Softmax(x, {.axis = im.node().Int("axis", -1)}));
  // Before version 13 the axes from `axis` on counted as one.
  const Shape shape = im.ShapeOf(x);
  const int axis = shape.Axis(static_cast<int>(im.node().Int("axis", 1)));
  const Symbol y = Softmax(ReshapeTo(x, {shape.CountTo(axis), shape.CountFrom(axis)}));
  im.Out(0, ReshapeTo(y, shape));
}

void ImportGemm(Importer& im) {
  const OnnxNode& node = im.node();
  Symbol y =
      Dot(im.In(0), im.In(1), {.transpose_a = node.Int("transA", 0) != 0, .transpose_b = node.Int("transB", 0) != 0});
  y = y * node.Float("alpha", 1);
  if (node.HasInput(2)) y = y + im.In(2) * node.Float("beta", 1);
  im.Out(0, y);
}

void ImportMatMul(Importer& im) {
  const Shape a = im.ShapeOf(im.In(0)), b = im.ShapeOf(im.In(1));
  const int rank = a.rank();
  if (rank == 2 && b.rank() == 2) return im.Out(0, Dot(im.In(0), im.In(1)));
  if (rank < 2 || b.rank() != rank || b.With(rank - 2, a[-2]).With(rank - 1, a[-1]) != a)
    Throw("only equally many matrices are multiplied");
  // Stacks of them, one by one.
  const SliceChannelAttrs each{.num_outputs = a.CountTo(rank - 2), .axis = 0, .squeeze_axis = true};
  const Symbol left = SliceChannel(ReshapeTo(im.In(0), {each.num_outputs, a[-2], a[-1]}), each);
  const Symbol right = SliceChannel(ReshapeTo(im.In(1), {each.num_outputs, b[-2], b[-1]}), each);
  std::vector<Symbol> products;
  for (int i = 0; i < each.num_outputs; ++i) products.push_back(Dot(left[i], right[i]));
  im.Out(0, ReshapeTo(Concat(products, {.axis = 0}), a.With(rank - 1, b[-1])));
}

Handler Reduction(const OpFunction<ReduceAttrs>& f) {
  return [f](Importer& im) {
    const std::vector<int64_t> axes = im.AttributeOrInput("axes", 1);
    if (axes.empty() && im.node().Int("noop_with_empty_axes", 0)) return im.Out(0, Identity(im.In(0)));
    im.Out(0, f(im.In(0), {.axes = axes, .keepdims = im.node().Int("keepdims", 1) != 0}, ""));
  };
}

void ImportReshape(Importer& im) {
  if (im.node().Int("allowzero", 0)) Throw("0 keeps an extent");
  im.Out(0, Reshape(im.In(0), {.shape = im.AttributeOrInput("shape", 1)}));
}

void ImportFlatten(Importer& im) {
  const Shape shape = im.ShapeOf(im.In(0));
  int64_t axis = im.node().Int("axis", 1);
  if (axis == 1) return im.Out(0, Flatten(im.In(0)));
  if (axis < 0) axis += shape.rank();
  im.Out(0, ReshapeTo(im.In(0), {shape.CountTo(static_cast<int>(axis)), shape.CountFrom(static_cast<int>(axis))}));
}

void ImportSqueeze(Importer& im) {
  const Shape shape = im.ShapeOf(im.In(0));
  std::vector<bool> drop(shape.rank());
  for (int64_t axis : im.AttributeOrInput("axes", 1)) drop[shape.Axis(static_cast<int>(axis))] = true;
  std::vector<int64_t> kept;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!drop[axis]) kept.push_back(shape[axis]);
  }
  im.Out(0, Reshape(im.In(0), {.shape = kept}));
}

void ImportUnsqueeze(Importer& im) {
  Shape shape = im.ShapeOf(im.In(0));
  std::vector<int64_t> axes = im.AttributeOrInput("axes", 1);
  const int64_t rank = shape.rank() + static_cast<int64_t>(axes.size());
  for (int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  std::ranges::sort(axes);
  for (int64_t axis : axes) shape = shape.Insert(static_cast<int>(axis), 1);
  im.Out(0, ReshapeTo(im.In(0), shape));
}

void ImportConcat(Importer& im) {
  std::vector<Symbol> inputs;
  for (size_t i = 0; i < im.node().inputs.size(); ++i) inputs.push_back(im.In(i));
  im.Out(0, Concat(inputs, {.axis = im.node().Int("axis", 1)}));
}

void ImportSlice(Importer& im) {
  im.Out(0, Slice(im.In(0), {.begin = im.AttributeOrInput("starts", 1),
                             .end = im.AttributeOrInput("ends", 2),
                             .step = im.AttributeOrInput("steps", 4),
                             .axes = im.AttributeOrInput("axes", 3)}));
}

void ImportSplit(Importer& im) {
  const int64_t axis = im.node().Int("axis", 0), parts = static_cast<int64_t>(im.node().outputs.size());
  const std::vector<int64_t> sizes = im.AttributeOrInput("split", 1);
  if (sizes.empty()) {
    const Symbol all = SliceChannel(im.In(0), {.num_outputs = parts, .axis = axis});
    for (int i = 0; i < parts; ++i) im.Out(i, all[i]);
    return;
  }
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); begin += sizes[i++]) {
    im.Out(i, Slice(im.In(0), {.begin = {begin}, .end = {begin + sizes[i]}, .axes = {axis}}));
  }
}

const std::map<std::string, Handler>& Handlers() {
  static const std::map<std::string, Handler> handlers = {
      {"Abs", Unary(Abs)},
      {"Acos", Unary(Acos)},
      {"Acosh", Unary(Acosh)},
      {"Add", Binary(Add)},
      {"And", Binary(And)},
      {"Asin", Unary(Asin)},
      {"Asinh", Unary(Asinh)},
      {"Atan", Unary(Atan)},
      {"Atanh", Unary(Atanh)},
      {"AveragePool", [](Importer& im) { ImportPool(im, PoolType::kAvg); }},
      {"BatchNormalization", ImportBatchNorm},
      {"Cast", [](Importer& im) { im.Out(0, Cast(im.In(0), {.dtype = CastTarget(im.node().Int("to", 0))})); }},
      {"CastLike", [](Importer& im) { im.Out(0, Cast(im.In(0), {.dtype = im.DTypeOf(im.In(1))})); }},
      {"Ceil", Unary(Ceil)},
      {"Clip", ImportClip},
      {"Concat", ImportConcat},
      {"Constant", [](Importer& im) { im.OutConstant(im.node().tensors.at("value")); }},
      {"Conv", ImportConv},
      {"Cos", Unary(Cos)},
      {"Cosh", Unary(Cosh)},
      {"ConvTranspose", ImportConvTranspose},
      {"Div", Binary(Div)},
      {"Dropout", ImportDropout},
      {"Equal", Binary(Equal)},
      {"Erf", Unary(Erf)},
      {"Exp", Unary(Exp)},
      {"Flatten", ImportFlatten},
      {"Floor", Unary(Floor)},
      {"Gemm", ImportGemm},
      {"GlobalAveragePool", GlobalPool(PoolType::kAvg)},
      {"GlobalMaxPool", GlobalPool(PoolType::kMax)},
      {"Greater", Binary(Greater)},
      {"GreaterOrEqual", Binary(GreaterEqual)},
      {"Identity", Unary(Identity)},
      {"IsInf", ImportIsInf},
      {"IsNaN", Unary(IsNaN)},
      {"Less", Binary(Less)},
      {"LessOrEqual", Binary(LessEqual)},
      {"Log", Unary(Log)},
      {"MatMul", ImportMatMul},
      {"Max", Variadic(Maximum)},
      {"MaxPool", [](Importer& im) { ImportPool(im, PoolType::kMax); }},
      {"Mean", [](Importer& im) { im.Out(0, Chain(im, Add) / static_cast<double>(im.node().inputs.size())); }},
      {"Min", Variadic(Minimum)},
      {"Mod", ImportMod},
      {"Mul", Binary(Mul)},
      {"Neg", [](Importer& im) { im.Out(0, -im.In(0)); }},
      {"Not", Unary(Not)},
      {"Or", Binary(Or)},
      {"Pow", ImportPow},
      {"Reciprocal", Unary(Reciprocal)},
      {"ReduceMax", Reduction(Max)},
      {"ReduceMean", Reduction(Mean)},
      {"ReduceSum", Reduction(Sum)},
      {"Relu", Unary(Relu)},
      {"Reshape", ImportReshape},
      {"Round", Unary(Round)},
      {"Sigmoid", Unary(Sigmoid)},
      {"Sign", Unary(Sign)},
      {"Sin", Unary(Sin)},
      {"Sinh", Unary(Sinh)},
      {"Slice", ImportSlice},
      {"Softmax", ImportSoftmax},
      {"Softplus", Unary(SoftRelu)},
      {"Softsign", Unary(SoftSign)},
      {"Split", ImportSplit},
      {"Sqrt", Unary(Sqrt)},
      {"Squeeze", ImportSqueeze},
      {"Sub", Binary(Sub)},
      {"Sum", Variadic(Add)},
      {"Tan", Unary(Tan)},
      {"Tanh", Unary(Tanh)},
      {"Transpose", [](Importer& im) { im.Out(0, Transpose(im.In(0), {.axes = im.node().Ints("perm")})); }},
      {"Unsqueeze", ImportUnsqueeze},
      {"Where", [](Importer& im) { im.Out(0, Where(im.In(0), im.In(1), im.In(2))); }},
      {"Xor", Binary(Xor)},
  };
  return handlers;
}

ImportedOnnx Importer::Run() {
  const NameScope names("onnx_");
  for (const OnnxNode& node : test_.model.nodes) {
    node_ = &node;
    const auto handler = Handlers().find(node.op);
    if (handler == Handlers().end()) Throw("operator {} is not known", node.op);
    handler->second(*this);
  }
  std::vector<Symbol> outputs;
  for (const std::string& name : test_.model.outputs) outputs.push_back(symbols_.at(name));
  result_.symbol = Group(outputs);
  return std::move(result_);
}

}  // namespace

ImportedOnnx ImportOnnx(const OnnxTest& test) { return Importer(test).Run(); }

std::set<std::string> KnownOnnxOperators() {
  std::set<std::string> names;
  for (const auto& [name, handler] : Handlers()) names.insert(name);
  return names;
}

}  // namespace bindery
