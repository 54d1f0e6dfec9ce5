// The table of built-in operators. Forgetting a definition is an error of the linker, forgetting a line here one of the
// test that walks the table.
#include "symbol/ops.h"

#include "symbol/builtin_ops.h"
#include "symbol/ops/fusions.h"
#include "symbol/ops/quantized.h"

namespace bindery {

std::span<const OpDef& (*const)()> BuiltinOps() {
  static constexpr const OpDef& (*kOps[])() = {
      // activation.h
      ActivationOp,
      ActivationGradOp,
      // arrange.h
      ExpandDimsOp,
      SqueezeOp,
      SwapAxesOp,
      ExpandOp,
      TileOp,
      RepeatOp,
      SplitOp,
      CropOp,
      CenterCropPadOp,
      PadWithOp,
      DepthToSpaceOp,
      SpaceToDepthOp,
      FullLikeOp,
      EyeLikeOp,
      // attention.h
      AttentionOp,
      AttentionGradOp,
      // batch_norm.h
      BatchNormOp,
      BatchNormGradOp,
      BatchNormStatisticsOp,
      MergeStatisticsOp,
      BatchStatisticsOp,
      MoveStatisticsOp,
      BatchNormNormalizeOp,
      BatchNormGradSumsOp,
      BatchNormGradInputOp,
      // convolution.h
      ConvolutionOp,
      ConvolutionGradDataOp,
      ConvolutionGradWeightOp,
      // cross_entropy.h
      CrossEntropyOp,
      CrossEntropyGradOp,
      // ctc.h
      CTCLossOp,
      CTCLossGradOp,
      // curve.h
      CurveOp,
      CurveGradOp,
      // dropout.h
      DropoutOp,
      DropoutGradOp,
      // elementwise.h, besides the rows of its table
      AddNOp,
      AddReluGradOp,
      ConstantOp,
      ScalarOp,
      // fully_connected.h
      FullyConnectedOp,
      FullyConnectedGradDataOp,
      FullyConnectedGradWeightOp,
      // fusions.h
      ConvolutionAddOp,
      // grid.h
      AffineGridOp,
      GridSampleOp,
      GridSampleGradDataOp,
      GridSampleGradGridOp,
      // indexing.h
      TakeOp,
      GatherNDOp,
      GatherElementsOp,
      PickOp,
      ScatterNDOp,
      ScatterElementsOp,
      OneHotOp,
      EmbeddingOp,
      RowNumbersOp,
      // loss.h
      SoftmaxOutputOp,
      SoftmaxOutputGradOp,
      SumOverDevicesOp,
      LinearRegressionOutputOp,
      LinearRegressionOutputGradOp,
      LogisticRegressionOutputOp,
      MAERegressionOutputOp,
      MAERegressionOutputGradOp,
      SVMOutputOp,
      SVMOutputGradOp,
      MakeLossOp,
      MakeLossGradOp,
      ScaleLossOp,
      LossScaleOp,
      BlockGradOp,
      // matmul.h
      MatMulOp,
      DotOp,
      // measure.h
      ArgMaxOp,
      ArgMinOp,
      RankOfOp,
      SumExactlyOp,
      FirstOutsideOp,
      // normalize.h
      NormalizeOp,
      NormalizeGradOp,
      StandardizeOp,
      LRNOp,
      LRNGradOp,
      // order.h
      TopKOp,
      CumSumOp,
      CumProdOp,
      CumProdGradOp,
      TriluOp,
      // pooling.h
      PoolingOp,
      PoolingGradOp,
      // quantize.h
      QuantizeLinearOp,
      DequantizeLinearOp,
      // quantized.h
      QuantizedConvolutionOp,
      QuantizedFullyConnectedOp,
      // random.h
      RandomUniformOp,
      RandomNormalOp,
      RandomIntOp,
      BernoulliOp,
      MultinomialOp,
      // recurrent.h
      RecurrentOp,
      RecurrentGradOp,
      // reduce.h
      SumOp,
      MeanOp,
      MaxOp,
      MinOp,
      ProdOp,
      L1NormOp,
      L2NormOp,
      SumSquareOp,
      LogSumExpOp,
      // resize.h
      ResampleOp,
      ResizeOp,
      // sequence.h
      SequenceMaskOp,
      SequenceReverseOp,
      SequenceLastOp,
      SequenceLastGradOp,
      // shape_of.h, besides the rows of its table
      ShapeArrayOp,
      SizeArrayOp,
      RangeOp,
      // shape_ops.h
      IdentityOp,
      FlattenOp,
      ReshapeOp,
      TransposeOp,
      ConcatOp,
      SliceOp,
      SliceChannelOp,
      CastOp,
      BroadcastToOp,
      SumToOp,
      PadOp,
      // softmax.h
      SoftmaxOp,
      SoftmaxGradOp,
      LogSoftmaxOp,
      LogSoftmaxGradOp,
      HardmaxOp,
  };
  static const std::vector<const OpDef& (*)()> all = [] {
    std::vector<const OpDef& (*)()> list(std::begin(kOps), std::end(kOps));
    list.insert(list.end(), ElementwiseOps().begin(), ElementwiseOps().end());
    list.insert(list.end(), ByNumbersOps().begin(), ByNumbersOps().end());
    return list;
  }();
  return all;
}

}  // namespace bindery
