#include "tools/cli/operator_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/split_text.h"

namespace bindery::cli {
namespace {

struct Purpose {
  const char* what;
  const char* names;  // with commas between; behind a "=" what PyTorch calls it, where that is something else
};

// Functions of several operators are among them. Who adds an operator may leave it out: it is then among the others.
constexpr Purpose kPurposes[] = {
    {"layers",
     "FullyConnected=Linear, Convolution=Conv1d to Conv3d, Deconvolution=ConvTranspose2d, Pooling=MaxPool2d/AvgPool2d/"
     "AdaptiveAvgPool2d, Embedding, Rnn=RNN/LSTM/GRU, Recurrent=one layer of it, "
     "Attention=scaled_dot_product_attention, MultiHeadAttention=MultiheadAttention, Dropout, Resize=interpolate, "
     "GridSample=grid_sample, AffineGrid=affine_grid"},
    {"normalisation",
     "BatchNorm=BatchNorm1d to 3d, LayerNorm, RMSNorm, GroupNorm, InstanceNorm, Normalize=what these are, "
     "LRN=LocalResponseNorm, L2Normalization=normalize, MeanVarianceNormalization, "
     "Standardize"},
    {"functions of layers",
     "Activation, Relu, Sigmoid, Tanh, Softplus, SoftSign=Softsign, Curve, LeakyRelu, Elu, Selu, Celu, Gelu, "
     "Swish=SiLU, HardSigmoid, HardSwish, "
     "HardTanh, Relu6, Mish, ThresholdedRelu, Shrink, PRelu, Softmax, LogSoftmax, Hardmax"},
    {"losses",
     "SoftmaxOutput=CrossEntropyLoss, SoftmaxCrossEntropy=reduction none, "
     "NegativeLogLikelihood=NLLLoss, CrossEntropy=what these two are, LinearRegressionOutput=MSELoss, "
     "MAERegressionOutput=L1Loss, LogisticRegressionOutput=BCEWithLogitsLoss, SVMOutput=hinges, CTCLoss, "
     "MakeLoss=makes a loss of an expression, BlockGrad=detach"},
    {"arithmetic",
     "Add, Sub, Mul, Div, AddN=sum of several, Mod=remainder, Fmod, Power=pow, Negative=neg, Reciprocal, Abs, Sign, "
     "Maximum, Minimum, Clip=clamp, Exp, Expm1, Log, Log1p, Log2, Log10, Sqrt, Rsqrt, Square, Erf, Ceil, Floor, Round, "
     "Trunc, Identity"},
    {"angles", "Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh"},
    {"comparisons, truths",
     "Equal=eq, NotEqual=ne, Less=lt, LessEqual=le, Greater=gt, GreaterEqual=ge, Where=where, And=logical_and, "
     "Or=logical_or, Xor=logical_xor, Not=logical_not, IsNaN=isnan, IsInf=isinf"},
    {"bits",
     "BitAnd=bitwise_and, BitOr=bitwise_or, BitXor=bitwise_xor, BitNot=bitwise_not, "
     "ShiftLeft=bitwise_left_shift, ShiftRight=bitwise_right_shift"},
    {"sums and the like",
     "Sum, Mean, Max=amax, Min=amin, Prod, SumSquare, L1Norm, L2Norm=norm, LogSum, LogSumExp, CumSum, CumProd, "
     "SumExactly"},
    {"order", "ArgMax, ArgMin, TopK, Sort, ArgSort"},
    {"products", "MatMul, Dot=mm/dot, Gemm=addmm, Einsum"},
    {"shapes",
     "Reshape, Flatten, ExpandDims=unsqueeze, Squeeze, Transpose=permute, SwapAxes=transpose, Expand, "
     "BroadcastTo=broadcast_to, Tile=repeat, Repeat=repeat_interleave, Pad, PadWith=pad with modes, Crop, "
     "CenterCropPad, "
     "DepthToSpace=PixelShuffle, SpaceToDepth=PixelUnshuffle"},
    {"parts", "Concat=cat, Stack, Split, SliceChannel=chunk, Slice=x[a:b:c], Flip"},
    {"indices",
     "Take=index_select, Pick=gather along an axis, GatherElements=gather, GatherND, ScatterElements=scatter, "
     "ScatterND, OneHot=one_hot"},
    {"sequences", "SequenceMask, SequenceReverse, SequenceLast"},
    {"making values",
     "Constant, Scalar, Full, FullLike=full_like, Range=arange, Eye, EyeLike, Trilu=tril and triu, "
     "RandomUniform=rand, RandomUniformLike=rand_like, RandomNormal=randn, RandomNormalLike=randn_like, "
     "RandomInt=randint, RandomIntLike=randint_like, Bernoulli, Multinomial"},
    {"types and extents", "Cast=to, QuantizeLinear, DequantizeLinear, ShapeArray=shape, SizeArray=numel"},
};

// What other operators are made of, or need: no gradient, fusion or other system's file is among a program's words.
constexpr std::string_view kParts =
    "BatchNormNormalize, BatchNormStatistics, BatchStatistics, MergeStatistics, MoveStatistics, FirstOutside, "
    "LossScale, "
    "RankOf, Resample, RowNumbers, ScaleLoss, SumOverDevices, SumTo";

std::vector<std::string> NamesIn(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view name : SplitText(list, ',')) names.emplace_back(Trim(name));
  return names;
}

}  // namespace

bool IsMadeByTheLibrary(const OpDef& op) {
  const std::vector<std::string> parts = NamesIn(kParts);
  const bool is_gradient = op.name.find("Grad") != std::string::npos && !op.blocks_gradient;
  return is_gradient || op.name.ends_with("By") || op.doc.find("ade by fusion") != std::string::npos ||
         std::ranges::find(parts, op.name) != parts.end();
}

std::string OperatorsByPurpose(const std::vector<const OpDef*>& ops) {
  std::map<std::string, std::string> links;  // of those that are in no row yet
  for (const OpDef* op : ops) {
    std::string place = op->attrs_type->Fields().empty() ? "without-attributes" : op->name;
    std::ranges::transform(place, place.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    links[op->name] = fmt::format("[{}](#{})", op->name, place);
  }
  std::string table = "| for | here (PyTorch) |\n|---|---|\n";
  for (const Purpose& purpose : kPurposes) {
    std::vector<std::string> cell;
    for (const std::string& entry : NamesIn(purpose.names)) {
      const size_t equals = entry.find('=');
      const std::string name = entry.substr(0, equals);
      const auto link = links.extract(name);
      cell.push_back(link ? link.mapped() : fmt::format("`{}`", name));  // a function
      if (equals != std::string::npos) cell.back() += fmt::format(" ({})", entry.substr(equals + 1));
    }
    table += fmt::format("| {} | {} |\n", purpose.what, fmt::join(cell, ", "));
  }
  std::vector<std::string> others;
  for (const auto& [name, link] : links) others.push_back(link);
  if (!others.empty()) table += fmt::format("| others | {} |\n", fmt::join(others, ", "));
  return table;
}

}  // namespace bindery::cli
