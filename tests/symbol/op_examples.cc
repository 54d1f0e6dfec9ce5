#include "tests/symbol/op_examples.h"

#include "symbol/ops.h"
#include "symbol/ops/fusions.h"
#include "symbol/ops/quantized.h"
#include "tests/symbol/example_list.h"

namespace bindery {
namespace {

void AddElementwise(Examples& e) {
  for (const OpDef& (*op)() : ElementwiseOps()) {
    if (op().inputs.Count({}) == 1) {
      e.Add(op(), {}, {{5, 3, 2}});
      continue;
    }
    if (op().inputs.Count({}) == 3) {
      e.Add(op(), {}, {{5, 3, 2}, {5, 3, 2}, {5, 3, 2}});
      e.Add(op(), {}, {{5, 1, 2}, {3, 1}, {}}, {0, -1, -1});
      continue;
    }
    e.Add(op(), {}, {{5, 3, 2}, {5, 3, 2}});
    e.Add(op(), {}, {{5, 3, 2}, {3, 1}}, {0, -1});
    e.Add(op(), {}, {{2}, {5, 3, 1}}, {-1, 0});
  }
  for (const OpDef* op : {&IdentityOp(), &BlockGradOp(), &ScaleLossOp(), &FlattenOp(), &SumOverDevicesOp()}) {
    e.Add(*op, {}, {{5, 3, 2}}, {op == &SumOverDevicesOp() ? -1 : 0});
  }
  e.Add(AddNOp(), {}, {{5, 3}, {5, 3}, {5, 3}});
  e.Add(AddReluGradOp(), {}, {{5, 3}, {5, 3}, {5, 3}});
  e.Add(ConstantOp(), ConstantAttrs{std::make_shared<const HostTensor>(HostTensor::From({2}, {1, 2}))}, {});
  e.Add(ScalarOp(), ScalarAttrs{2.5}, {});
  e.Add(LossScaleOp(), {}, {});
  e.Add(CastOp(), CastAttrs{DType::kFloat64}, {{5, 3}});
  for (ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                              ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    e.Add(ActivationOp(), ActivationAttrs{type}, {{5, 3}});
    e.Add(ActivationGradOp(), ActivationAttrs{type}, {{5, 3}, {5, 3}});
  }
  for (const EnumName& type : EnumNames(static_cast<CurveType*>(nullptr))) {
    const CurveAttrs attrs{static_cast<CurveType>(type.value), 0.25, 0.75};
    e.Add(CurveOp(), attrs, {{5, 3}});
    e.Add(CurveGradOp(), attrs, {{5, 3}, {5, 3}});
  }
  e.Add(DropoutOp(), DropoutAttrs{.p = 0.25, .axes = {-1}, .mode = DropoutMode::kAlways}, {{5, 3, 4}});
  e.Add(DropoutGradOp(), DropoutAttrs{.p = 0.25, .axes = {-1}, .mode = DropoutMode::kAlways}, {{5, 3, 4}, {5, 3, 1}});
  e.Add(SoftmaxOp(), SoftmaxAttrs{.axis = 1, .temperature = 2}, {{5, 3, 4}});
  e.Add(LogSoftmaxOp(), LogSoftmaxAttrs{1}, {{5, 3, 4}});
  e.Add(LogSoftmaxGradOp(), LogSoftmaxAttrs{1}, {{5, 3, 4}, {5, 3, 4}});
  e.Add(HardmaxOp(), LogSoftmaxAttrs{1}, {{5, 3, 4}});
  e.Add(SoftmaxGradOp(), SoftmaxAttrs{.axis = 1, .temperature = 2}, {{5, 3, 4}, {5, 3, 4}});
}

void AddLayers(Examples& e) {
  const FullyConnectedAttrs fc{.num_hidden = 7, .activation = ActivationType::kTanh};
  e.Add(FullyConnectedOp(), fc, {{5, 3, 2}, {7, 6}, {7}});
  e.Add(FullyConnectedOp(), FullyConnectedAttrs{.num_hidden = 7, .no_bias = true, .flatten = false},
        {{5, 3, 2}, {7, 2}});
  e.Add(FullyConnectedGradDataOp(), FullyConnectedAttrs{.num_hidden = 7}, {{5, 7}, {7, 6}});
  e.Add(FullyConnectedGradWeightOp(), FullyConnectedAttrs{.num_hidden = 7}, {{5, 7}, {5, 3, 2}});
  e.Add(FullyConnectedGradWeightOp(), FullyConnectedAttrs{.num_hidden = 7, .no_bias = true, .flatten = false},
        {{5, 3, 7}, {5, 3, 2}});

  const ConvolutionAttrs conv{.num_filter = 6,
                              .kernel = {3, 2},
                              .stride = {2, 1},
                              .pad = {1, 0},
                              .dilate = {1, 2},
                              .groups = 2,
                              .activation = ActivationType::kRelu};
  ConvolutionAttrs grad = conv;
  grad.activation = ActivationType::kNone;
  e.Add(ConvolutionOp(), conv, {{5, 4, 9, 8}, {6, 2, 3, 2}, {6}});
  e.Add(ConvolutionOp(), ConvolutionAttrs{.num_filter = 6, .kernel = {3}, .no_bias = true}, {{5, 4, 9}, {6, 4, 3}});
  e.Add(ConvolutionOp(), ConvolutionAttrs{.num_filter = 6, .kernel = {3, 2}, .pad = {0, 1, 2, 0}},
        {{5, 4, 9, 8}, {6, 4, 3, 2}, {6}});
  e.Add(ConvolutionAddOp(), conv, {{5, 4, 9, 8}, {6, 2, 3, 2}, {6}, {5, 6, 5, 6}});
  e.Add(ConvolutionAddOp(), ConvolutionAttrs{.num_filter = 6, .kernel = {3}, .no_bias = true},
        {{5, 4, 9}, {6, 4, 3}, {5, 6, 7}});
  ConvolutionAttrs same{.num_filter = 6, .kernel = {3, 2}, .auto_pad = AutoPad::kSameLower};
  e.Add(ConvolutionOp(), same, {{5, 4, 9, 8}, {6, 4, 3, 2}, {6}});
  e.Add(ConvolutionGradDataOp(), ConvolutionGradDataAttrs{same}, {{5, 6, 9, 8}, {6, 4, 3, 2}});
  ConvolutionGradDataAttrs beyond{ConvolutionAttrs{.kernel = {3, 2}, .stride = {2, 3}}};
  beyond.beyond = {1, 2};
  beyond.channels = 4;
  e.Add(ConvolutionGradDataOp(), beyond, {{5, 6, 4, 3}, {6, 4, 3, 2}});
  ConvolutionGradDataAttrs grad_data{conv, {9, 8}};  // activation and bias are not looked at
  grad_data.no_bias = true;
  e.Add(ConvolutionGradDataOp(), grad_data, {{5, 6, 5, 6}, {6, 2, 3, 2}});
  e.Add(ConvolutionGradWeightOp(), grad, {{5, 6, 5, 6}, {5, 4, 9, 8}});

  const PoolingAttrs max{.kernel = {3, 2}, .stride = {2, 1}, .pad = {1, 0}, .ceil_mode = true};
  const PoolingAttrs avg{.type = PoolType::kAvg,
                         .kernel = {3, 2},
                         .stride = {2, 2},
                         .auto_pad = AutoPad::kSameUpper,
                         .count_include_pad = false};
  const PoolingAttrs global{.type = PoolType::kAvg, .global = true};
  e.Add(PoolingOp(), max, {{5, 4, 8, 8}});
  e.Add(PoolingOp(), avg, {{5, 4, 8, 8}});
  e.Add(PoolingOp(), global, {{5, 4, 8}});
  const PoolingAttrs uneven{.kernel = {2, 3}, .pad = {0, 1, 1, 2}, .dilate = {2, 2}};
  e.Add(PoolingOp(), uneven, {{5, 4, 8, 8}});
  e.Add(PoolingGradOp(), PoolingGradAttrs{uneven, {8, 8}}, {{5, 4, 7, 7}, {1}});
  e.Add(PoolingGradOp(), PoolingGradAttrs{max, {8, 8}}, {{5, 4, 5, 7}, {1}});
  e.Add(PoolingGradOp(), PoolingGradAttrs{avg, {8, 8}}, {{5, 4, 4, 4}});
  e.Add(PoolingGradOp(), PoolingGradAttrs{global, {8}}, {{5, 4, 1}});

  const BatchNormAttrs bn{.eps = 1e-5, .momentum = 0.5, .fix_gamma = false, .axis = -1, .output_mean_var = true};
  BatchNormAttrs relu = bn, fixed = bn, sync = bn, global_stats = bn, known = bn;
  relu.relu = fixed.fix_gamma = sync.sync = global_stats.use_global_stats = known.known = true;
  for (const BatchNormAttrs& attrs : {bn, relu, fixed, sync, global_stats, known}) {
    e.Add(BatchNormOp(), attrs, {{5, 3, 4}, {4}, {4}, {4}, {4}});
  }
  e.Add(BatchNormGradOp(), bn, {{5, 3, 4}, {5, 3, 4}, {4}, {4}, {4}});
  e.Add(BatchNormGradOp(), relu, {{5, 3, 4}, {5, 3, 4}, {4}, {4}, {4}, {1}});
  e.Add(BatchNormStatisticsOp(), bn, {{5, 3, 4}});
  e.Add(MergeStatisticsOp(), {}, {{3, 4}}, {-1});
  e.Add(BatchStatisticsOp(), BatchStatisticsAttrs{12}, {{4}, {4}}, {-1, -1});
  e.Add(MoveStatisticsOp(), bn, {{3, 4}, {4}, {4}}, {-1, -1, -1});
  e.Add(BatchNormNormalizeOp(), bn, {{5, 3, 4}, {4}, {4}, {3, 4}, {4}, {4}});
  e.Add(BatchNormNormalizeOp(), fixed, {{5, 3, 4}, {4}, {4}, {3, 4}, {4}, {4}});
  e.Add(BatchNormNormalizeOp(), known, {{5, 3, 4}, {4}, {4}, {3, 4}, {4}, {4}});
  e.Add(BatchNormGradSumsOp(), bn, {{5, 3, 4}, {5, 3, 4}, {3, 4}});
  e.Add(BatchNormGradInputOp(), bn, {{5, 3, 4}, {5, 3, 4}, {4}, {3, 4}, {2, 4}});
}

void AddNormalizations(Examples& e) {
  const NormalizeAttrs layer{.axis = 1, .eps = 1e-3}, group{.groups = 2, .output_statistics = true};
  const NormalizeAttrs length{.groups = -1, .center = false, .sum = true, .scale = false, .shift = false};
  e.Add(NormalizeOp(), layer, {{5, 3, 4}, {3, 4}, {3, 4}});
  e.Add(NormalizeOp(), group, {{5, 4, 3}, {4}, {4}});
  e.Add(NormalizeOp(), length, {{5, 4, 3}});
  e.Add(NormalizeGradOp(), layer, {{5, 3, 4}, {5, 3, 4}, {5, 1, 1}, {5, 1, 1}, {3, 4}});
  e.Add(NormalizeGradOp(), group, {{5, 4, 3}, {5, 4, 3}, {5, 2}, {5, 2}, {4}});
  e.Add(NormalizeGradOp(), length, {{5, 4, 3}, {5, 4, 3}, {5, 4}, {5, 4}});
  e.Add(StandardizeOp(), StandardizeAttrs{.axes = {1, -1}, .eps = 0.1}, {{5, 3, 4}});
  e.Add(StandardizeOp(), StandardizeAttrs{.axes = {1}, .center = false, .sum = true}, {{5, 3, 4}});
  const LRNAttrs lrn{.size = 3, .alpha = 0.1, .beta = 0.5, .bias = 2};
  e.Add(LRNOp(), lrn, {{5, 4, 3}});
  e.Add(LRNGradOp(), lrn, {{5, 4, 3}, {5, 4, 3}});
}

void AddHeads(Examples& e) {
  const CrossEntropyAttrs entropy{
      .axis = 1, .use_ignore = true, .ignore_label = 3, .use_weight = true, .label_smoothing = 0.25};
  e.Add(CrossEntropyOp(), entropy, {{5, 4, 3}, {5, 3}, {4}});
  e.Add(CrossEntropyOp(), CrossEntropyAttrs{.log_input = true}, {{5, 4}, {5}});
  e.Add(CrossEntropyGradOp(), entropy, {{5, 3}, {5, 4, 3}, {5, 3}, {4}, {5, 3}, {5, 3}});
  e.Add(CrossEntropyGradOp(), CrossEntropyAttrs{.log_input = true}, {{5}, {5, 4}, {5}});
  const SoftmaxOutputAttrs valid{.grad_scale = 2,
                                 .normalization = Normalization::kValid,
                                 .use_ignore = true,
                                 .ignore_label = 3,
                                 .smooth_alpha = 0.1,
                                 .out_grad = true};
  e.Add(SoftmaxOutputOp(), valid, {{5, 4}, {5}});
  e.Add(SoftmaxOutputOp(), SoftmaxOutputAttrs{}, {{5, 4}, {5, 4}});
  e.Add(SoftmaxOutputOp(), SoftmaxOutputAttrs{.class_weights = {1, 2, 0.5, 4}}, {{5, 4}, {5}});
  e.Add(SoftmaxOutputOp(), SoftmaxOutputAttrs{.multi_output = true}, {{5, 4, 3}, {5, 3}});
  e.Add(SoftmaxOutputOp(), SoftmaxOutputAttrs{.normalization = Normalization::kValid, .preserve_shape = true},
        {{5, 3, 4}, {5, 3}});
  e.Add(SoftmaxOutputGradOp(), valid, {{5, 4}, {5}, {1}, {5, 4}}, {0, 0, -1, 0});
  e.Add(SoftmaxOutputGradOp(), SoftmaxOutputAttrs{.out_grad = true}, {{5, 4}, {5}, {5, 4}});
  e.Add(LinearRegressionOutputOp(), LinearRegressionOutputAttrs{3}, {{5, 3}, {5, 3}});
  e.Add(LinearRegressionOutputOp(), LinearRegressionOutputAttrs{3}, {{5, 1}, {5}});
  e.Add(LinearRegressionOutputGradOp(), LinearRegressionOutputAttrs{3}, {{5, 1}, {5}});
  for (const OpDef* op : {&LogisticRegressionOutputOp(), &MAERegressionOutputOp(), &MAERegressionOutputGradOp()}) {
    e.Add(*op, LinearRegressionOutputAttrs{3}, {{5, 3}, {5, 3}});
  }
  const CTCLossAttrs ctc{.blank = -1, .use_data_lengths = true, .use_label_lengths = true, .zero_infinity = true};
  e.Add(CTCLossOp(), ctc, {{6, 5, 4}, {5, 3}, {5}, {5}}, {1, 0, 0, 0});
  e.Add(CTCLossGradOp(), ctc, {{5}, {6, 5, 4}, {5, 3}, {5}, {5}}, {0, 1, 0, 0, 0});
  for (const OpDef* op : {&SVMOutputOp(), &SVMOutputGradOp()}) {
    e.Add(*op, SVMOutputAttrs{.margin = 0.5, .regularization = 2, .use_linear = true}, {{5, 4}, {5}});
  }
  e.Add(MakeLossOp(), MakeLossAttrs{.grad_scale = 2, .normalization = Normalization::kValid, .valid_thresh = 0.5},
        {{5, 3}});
  e.Add(MakeLossOp(), MakeLossAttrs{}, {{5, 3}});
  e.Add(MakeLossGradOp(),
        MakeLossGradAttrs{.grad_scale = 2, .normalization = Normalization::kValid, .dtype = DType::kFloat64}, {{1}},
        {-1});
}

void AddMeasures(Examples& e) {
  for (const int64_t axis : {1, -1}) {
    e.Add(ArgMaxOp(), ArgAttrs{axis}, {{5, 4, 3}});
    e.Add(ArgMinOp(), ArgAttrs{.axis = axis, .keepdims = true, .select_last_index = true}, {{5, 4, 3}});
    e.Add(PickOp(), PickAttrs{axis}, {{5, 4, 3}, {5, axis == 1 ? 3 : 4}});
    e.Add(RankOfOp(), PlaceAttrs{axis}, {{5, 4, 3}, {5, axis == 1 ? 3 : 4}});
  }
  e.Add(ArgMaxOp(), ArgAttrs{0}, {{4, 5}}, {1});
  e.Add(SumExactlyOp(), {}, {{5, 3}});
  e.Add(FirstOutsideOp(), FirstOutsideAttrs{}, {{5, 3}});
  e.Add(FirstOutsideOp(), FirstOutsideAttrs{.low = 0, .high = 9, .whole = true, .use_ignore = true, .ignore = -2},
        {{5, 3}});
}

void AddIndexing(Examples& e) {
  const IndexMode skip = IndexMode::kSkip;
  e.Add(TakeOp(), TakeAttrs{.axis = -1}, {{5, 3, 4}, {2}});
  e.Add(TakeOp(), TakeAttrs{.axis = 2, .batch_dims = 1, .mode = skip, .padding = 3}, {{5, 3, 4}, {5, 2}});
  e.Add(TakeOp(), TakeAttrs{.sparse_grad = true}, {{3, 4}, {5, 2}}, {-1, 0});
  e.Add(GatherNDOp(), TakeAttrs{.batch_dims = 1}, {{5, 3, 4}, {5, 6, 2}});
  e.Add(GatherNDOp(), TakeAttrs{.axis = 1}, {{5, 3, 4}, {6, 1}});
  e.Add(GatherElementsOp(), GatherElementsAttrs{.axis = 1, .mode = skip}, {{5, 3, 4}, {5, 6, 2}});
  e.Add(PickOp(), PickAttrs{.axis = 2, .keepdims = true, .mode = IndexMode::kWrap}, {{5, 3, 4}, {5, 3, 1}});
  for (const ScatterReduction reduction : {ScatterReduction::kNone, ScatterReduction::kMul, ScatterReduction::kMax}) {
    ScatterAttrs attrs{.axis = 1, .batch_dims = 1, .mode = skip, .reduction = reduction};
    e.Add(ScatterNDOp(), attrs, {{5, 3, 4}, {5, 2, 1}, {5, 2, 4}});
    attrs.batch_dims = 0;
    e.Add(ScatterElementsOp(), attrs, {{5, 3, 4}, {5, 6, 2}, {5, 6, 2}});
  }
  const ScatterReduction add = ScatterReduction::kAdd;
  e.Add(ScatterNDOp(), ScatterAttrs{.reduction = add, .padding = 0, .shape = {6, 4}, .by_rows = true},
        {{5, 1}, {5, 4}});
  e.Add(ScatterElementsOp(), ScatterAttrs{.axis = 1, .reduction = add, .shape = {0, 6}, .batches = {1, 0}},
        {{5, 3}, {5, 3}});
  e.Add(OneHotOp(),
        OneHotAttrs{.depth = 3, .axis = 1, .on_value = 2, .off_value = -1, .from_end = true, .dtype = DType::kInt8},
        {{5, 4}});
  e.Add(OneHotOp(), OneHotAttrs{.depth = 3}, {{5, 4}});
  e.Add(RowNumbersOp(), RowNumbersAttrs{.extent = 3, .mode = IndexMode::kClip, .padding = 1}, {{5, 4}});

  e.Add(TopKOp(), TopKAttrs{.k = 2, .axis = 1, .largest = false, .sorted = false, .dtype = DType::kInt32}, {{5, 3, 4}});
  e.Add(TopKOp(), TopKAttrs{}, {{5, 3}});
  for (const OpDef* op : {&CumSumOp(), &CumProdOp()}) {
    e.Add(*op, ScanAttrs{.axis = 1, .exclusive = true, .reverse = true}, {{5, 3, 4}});
  }
  e.Add(CumProdGradOp(), ScanAttrs{.axis = -1}, {{5, 3}, {5, 3}});
  e.Add(TriluOp(), TriluAttrs{.k = -1, .upper = false}, {{5, 3, 4}});
  const DrawAttrs shape{.shape = {4, 3}, .dtype = DType::kFloat64},
      like{.dtype = DType::kFloat64, .like = true, .own_dtype = true};
  e.Add(RandomUniformOp(), RandomUniformAttrs{shape, -1, 2}, {});
  e.Add(RandomNormalOp(), RandomNormalAttrs{shape, 1, 3}, {});
  e.Add(RandomIntOp(), RandomIntAttrs{shape, -7, 7}, {});
  e.Add(RandomUniformOp(), RandomUniformAttrs{like}, {{5, 3}});
  e.Add(RandomNormalOp(), RandomNormalAttrs{like}, {{5, 3}});
  e.Add(RandomIntOp(), RandomIntAttrs{like}, {{5, 3}});
  e.Add(BernoulliOp(), BernoulliAttrs{.dtype = DType::kBool, .own_dtype = true}, {{5, 3}});
  e.Add(MultinomialOp(), MultinomialAttrs{.sample_size = 4, .logits = true, .dtype = DType::kInt64}, {{5, 3}});
  e.Add(QuantizeLinearOp(), QuantizeAttrs{.axis = -1, .no_zero_point = true, .dtype = DType::kInt8}, {{5, 3}, {3}});
  e.Add(QuantizeLinearOp(), QuantizeAttrs{}, {{5, 3}, {}, {}});
  e.Add(DequantizeLinearOp(), DequantizeAttrs{.axis = 2, .no_zero_point = true}, {{5, 3, 4}, {4}});
  QuantizedConvolutionAttrs convolution{{.num_filter = 6,
                                         .kernel = {3, 2},
                                         .stride = {2, 1},
                                         .pad = {1, 0},
                                         .dilate = {1, 2},
                                         .groups = 2,
                                         .activation = ActivationType::kRelu}};
  convolution.dtype = DType::kInt8;
  e.Add(QuantizedConvolutionOp(), convolution, {{5, 4, 9, 8}, {6, 2, 3, 2}, {6}, {}, {6}, {}, {1}});
  const QuantizedConvolutionAttrs same{
      {.num_filter = 6, .kernel = {3, 2}, .auto_pad = AutoPad::kSameLower, .no_bias = true}};
  e.Add(QuantizedConvolutionOp(), same, {{5, 4, 9, 8}, {6, 4, 3, 2}, {}, {1}});
  QuantizedFullyConnectedAttrs connection{
      {.num_hidden = 7, .no_bias = true, .flatten = false, .activation = ActivationType::kRelu}};
  connection.dtype = DType::kUInt8;
  e.Add(QuantizedFullyConnectedOp(), connection, {{5, 3, 2}, {7, 2}, {7}, {}, {}, {}});
  e.Add(QuantizedFullyConnectedOp(), QuantizedFullyConnectedAttrs{{.num_hidden = 7}},
        {{5, 3, 2}, {7, 6}, {1}, {}, {7}});

  const SequenceAttrs steps{.axis = 1, .batch_axis = 0};
  e.Add(SequenceMaskOp(), SequenceMaskAttrs{steps, 0.5}, {{5, 3, 4}, {5}});
  e.Add(SequenceReverseOp(), steps, {{5, 3, 4}, {5}});
  e.Add(SequenceLastOp(), steps, {{5, 3, 4}, {5}});
  e.Add(SequenceLastOp(), SequenceAttrs{}, {{3, 5, 4}, {5}}, {1, 0});
  e.Add(SequenceLastGradOp(), SequenceLastGradAttrs{steps, {0, 3, 4}, {1, 0, 0}}, {{5, 4}, {5}});
  e.Add(EmbeddingOp(), EmbeddingAttrs{.input_dim = 7, .output_dim = 3, .padding_idx = -1, .mode = IndexMode::kClip},
        {{5, 4}, {7, 3}});
  e.Add(EmbeddingOp(), EmbeddingAttrs{.input_dim = 7, .output_dim = 3, .sparse_grad = true}, {{5, 4}, {7, 3}});
}

void AddShapeOps(Examples& e) {
  e.Add(ReshapeOp(), ReshapeAttrs{{0, -1, 2}}, {{5, 4, 3}});
  e.Add(ReshapeOp(), ReshapeAttrs{.shape = {0, 4, -1}, .batches = {1, 0, 0}}, {{5, 12}});
  e.Add(BroadcastToOp(), ToShapeAttrs{.shape = {0, 3, 2}, .batches = {1, 0, 0}}, {{5, 1, 2}});
  e.Add(BroadcastToOp(), ToShapeAttrs{.shape = {4, 3, 2}}, {{3, 1}}, {-1});
  e.Add(SumToOp(), ToShapeAttrs{.shape = {0, 1, 2}, .batches = {1, 0, 0}}, {{5, 3, 2}});
  e.Add(SumToOp(), ToShapeAttrs{.shape = {3, 1}}, {{5, 3, 2}});
  e.Add(TransposeOp(), TransposeAttrs{{2, 0, 1}}, {{5, 4, 3}});
  e.Add(TransposeOp(), TransposeAttrs{}, {{5, 4, 3}});
  e.Add(ConcatOp(), ConcatAttrs{.axis = -1}, {{5, 2, 3}, {5, 2, 1}});
  e.Add(ConcatOp(), ConcatAttrs{.axis = 0}, {{5, 2}, {5, 2}});
  const SliceAttrs slice{.begin = {1, -1}, .end = {kSliceEnd, 0}, .step = {2, -2}, .axes = {2, 1}};
  e.Add(SliceOp(), slice, {{5, 7, 6}});
  e.Add(SliceOp(), SliceAttrs{.begin = {0}, .end = {0}, .axes = {1}, .begin_batches = {1}, .end_batches = {2}},
        {{5, 10}});
  e.Add(PadOp(), PadAttrs{.begin = {1, 0}, .end = {0, 2}, .step = {2, 3}, .axes = {2, 1}, .value = 0.5}, {{5, 3, 3}});
  e.Add(PadOp(), PadAttrs{.begin = {0}, .end = {0}, .begin_batches = {1}, .end_batches = {2}}, {{5, 2}});
  e.Add(SliceChannelOp(), SliceChannelAttrs{.num_outputs = 3, .axis = 2}, {{5, 2, 6}});
  e.Add(SliceChannelOp(), SliceChannelAttrs{.num_outputs = 2, .axis = -2, .squeeze_axis = true}, {{5, 2, 6}});
  e.Add(ReshapeOp(), ReshapeAttrs{.shape = {5, 12}, .allow_zero = true}, {{5, 4, 3}});
  for (const OpDef* op :
       {&SumOp(), &MeanOp(), &MaxOp(), &MinOp(), &ProdOp(), &L1NormOp(), &L2NormOp(), &SumSquareOp(), &LogSumExpOp()}) {
    e.Add(*op, ReduceAttrs{.noop_with_empty_axes = true}, {{5, 2, 3}});
    e.Add(*op, ReduceAttrs{.axes = {1, -1}}, {{5, 2, 3}});
    e.Add(*op, ReduceAttrs{.axes = {0}, .keepdims = true, .exclude = true}, {{5, 2, 3}});
    e.Add(*op, ReduceAttrs{}, {{5, 2, 3}});
  }
  for (bool a : {false, true}) {
    for (bool b : {false, true})
      e.Add(DotOp(), DotAttrs{a, b}, {a ? Shape{3, 5} : Shape{5, 3}, b ? Shape{4, 3} : Shape{3, 4}}, {a ? 1 : 0, -1});
  }
  e.Add(DotOp(), DotAttrs{}, {{3}, {3}}, {-1, -1});
}

void AddSequences(Examples& e) {
  // attention.h
  const AttentionAttrs folded{.heads = 4, .kv_heads = 2, .scale = 0.5, .softcap = 2, .causal = true};
  const AttentionAttrs apart{.masked = true, .left_window = 2, .right_window = 1, .offset = 1};
  e.Add(AttentionOp(), folded, {{5, 3, 12}, {5, 4, 6}, {5, 4, 4}});
  e.Add(AttentionOp(), apart, {{5, 4, 3, 2}, {5, 2, 6, 2}, {5, 2, 6, 7}, {5, 1, 3, 6}});
  e.Add(AttentionGradOp(), AttentionGradAttrs{folded, false},
        {{5, 3, 8}, {5, 3, 12}, {5, 4, 6}, {5, 4, 4}, {5, 3, 8}, {5, 4, 3}, {5, 4, 3}});
  e.Add(AttentionGradOp(), AttentionGradAttrs{apart, true},
        {{5, 4, 3, 7}, {5, 4, 3, 2}, {5, 2, 6, 2}, {5, 2, 6, 7}, {3, 6}, {5, 4, 3, 7}, {5, 4, 3}, {5, 4, 3}});
  // recurrent.h
  const RecurrentAttrs lstm{
      .hidden = 2, .reverse = true, .peepholes = true, .coupled = true, .clip = 3, .initial = true, .lengths = true};
  e.Add(RecurrentOp(), lstm, {{3, 5, 8}, {8, 2}, {6}, {5, 2}, {5, 2}, {5}}, {1, -1, -1, 0, 0, 0});
  e.Add(RecurrentGradOp(), lstm, {{3, 5, 2}, {5, 2}, {5, 2}, {8, 2}, {6}, {5}, {3, 5, 2}, {3, 5, 8}, {3, 5, 2}},
        {1, 0, 0, -1, -1, 0, 1, 1, 1});
  const RecurrentAttrs gru{.cell = RecurrentCell::kGru, .hidden = 2, .layout = SequenceLayout::kNtc};
  e.Add(RecurrentOp(), gru, {{5, 3, 6}, {6, 2}, {2}});
  e.Add(RecurrentGradOp(), gru, {{5, 3, 2}, {5, 2}, {6, 2}, {5, 3, 2}, {5, 3, 8}});
  const RecurrentAttrs before{
      .cell = RecurrentCell::kGru, .hidden = 2, .order = GateOrder::kOnnx, .reset_after = false};
  e.Add(RecurrentOp(), before, {{3, 5, 6}, {6, 2}}, {1, -1});
  e.Add(RecurrentGradOp(), before, {{3, 5, 2}, {5, 2}, {6, 2}, {3, 5, 2}, {3, 5, 8}}, {1, 0, -1, 1, 1});
  for (const RecurrentCell cell : {RecurrentCell::kRelu, RecurrentCell::kTanh}) {
    const RecurrentAttrs plain{.cell = cell, .hidden = 2};
    e.Add(RecurrentOp(), plain, {{3, 5, 2}, {2, 2}}, {1, -1});
    e.Add(RecurrentGradOp(), plain, {{3, 5, 2}, {5, 2}, {2, 2}, {3, 5, 2}, {3, 5, 2}}, {1, 0, -1, 1, 1});
  }
  // matmul.h
  e.Add(MatMulOp(), MatMulAttrs{}, {{5, 2, 3}, {5, 3, 4}});
  e.Add(MatMulOp(), MatMulAttrs{.transpose_a = true}, {{5, 1, 3, 2}, {6, 3, 4}});
  e.Add(MatMulOp(), MatMulAttrs{.transpose_b = true}, {{5, 2, 3}, {4, 3}});
  e.Add(MatMulOp(), MatMulAttrs{.transpose_a = true, .transpose_b = true}, {{3, 2}, {5, 4, 3}}, {-1, 0});
  e.Add(MatMulOp(), MatMulAttrs{}, {{3}, {5, 3, 4}}, {-1, 0});
  e.Add(MatMulOp(), MatMulAttrs{}, {{5, 2, 3}, {3}});
}

}  // namespace

const std::vector<OpExample>& OpExamples() {
  static const std::vector<OpExample> list = [] {
    Examples examples;
    AddElementwise(examples);
    AddLayers(examples);
    AddNormalizations(examples);
    AddHeads(examples);
    AddMeasures(examples);
    AddIndexing(examples);
    AddShapeOps(examples);
    AddSequences(examples);
    AddArranged(examples);
    return examples.list;
  }();
  return list;
}

}  // namespace bindery
