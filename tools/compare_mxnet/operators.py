"""Graphs of one operator each, with inputs: what models.py has MXNet run."""
import mxnet as mx
import numpy as np

S = mx.sym
# Inputs that have no gradient, and cases that have none.
WITHOUT_GRADIENT = {"index", "like", "label", "lengths", "moving_mean", "moving_var", "condition"}


def cases(rng):
    """(name, symbol, inputs by name)."""
    made = []
    a, b, c = S.Variable("a"), S.Variable("b"), S.Variable("c")
    index, label, lengths, like = (S.Variable(n) for n in ["index", "label", "lengths", "like"])

    def normal(*shape):
        return rng.normal(0, 1, shape).astype(np.float32)

    def positive(*shape):
        return rng.uniform(0.3, 2, shape).astype(np.float32)

    def whole(high, *shape):
        return rng.integers(0, high, shape).astype(np.float32)

    def add(name, symbol, **inputs):
        made.append((name, symbol, inputs))

    def no_gradient(name, symbol, **inputs):
        WITHOUT_GRADIENT.add(name)
        add(name, symbol, **inputs)

    # Functions of one value, where each is defined.
    for name in ["abs", "sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "exp", "expm1", "sigmoid",
                 "relu", "softsign", "square", "cbrt", "negative", "erf", "degrees", "radians", "identity"]:
        add(name, getattr(S, name)(a), a=normal(2, 3))
    for name in ["sqrt", "rsqrt", "log", "log2", "log10", "log1p", "reciprocal", "rcbrt"]:
        add(name, getattr(S, name)(a), a=positive(2, 3))
    for name in ["arcsin", "arccos", "arctanh"]:
        add(name, getattr(S, name)(a), a=rng.uniform(-0.9, 0.9, (2, 3)).astype(np.float32))
    add("arccosh", S.arccosh(a), a=positive(2, 3) + 1)
    halves = np.array([[-1.5, -0.5, 0.5, 1.5, 2.5], [-1.6, -0.4, 0.0, 1.4, 2.6]], np.float32)
    for name in ["floor", "ceil", "round", "rint", "fix", "trunc", "sign", "logical_not"]:
        no_gradient(name, getattr(S, name)(a), a=halves)
    # Of two.
    for name in ["elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div"]:
        add(name, getattr(S, name)(a, b), a=normal(2, 3), b=positive(2, 3))
    for name in ["broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", "broadcast_maximum",
                 "broadcast_minimum", "broadcast_power", "broadcast_hypot"]:
        add(name, getattr(S, name)(a, b), a=positive(2, 1, 3), b=positive(1, 4, 3))
    no_gradient("broadcast_mod", S.broadcast_mod(a, b), a=normal(2, 3) * 3, b=positive(2, 3))
    for name in ["equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "logical_and",
                 "logical_or", "logical_xor"]:
        no_gradient("broadcast_" + name, getattr(S, "broadcast_" + name)(a, b), a=whole(3, 4, 5), b=whole(3, 1, 5))
    scalars = {"plus": a + 2.5, "minus": a - 2.5, "rminus": 2.5 - a, "mul": a * 2.5, "div": a / 2.5, "rdiv": 2.5 / a,
               "power": a**2.5, "rpower": S.pow(2.5, a), "maximum": S.maximum(a, 1), "minimum": S.minimum(a, 1),
               "hypot": S.hypot(a, 2)}
    for name, symbol in scalars.items():
        add(name + "_scalar", symbol, a=positive(2, 3))
    for name, symbol in {"mod": a % 2, "rmod": 2 % a, "equal": a == 1, "not_equal": a != 1, "greater": a > 1,
                         "greater_equal": a >= 1, "lesser": a < 1, "lesser_equal": a <= 1}.items():
        no_gradient(name + "_scalar", symbol, a=whole(3, 2, 4) + 0.5 * (name == "rmod"))
    add("add_n", S.add_n(a, b, c), a=normal(2, 3), b=normal(2, 3), c=normal(2, 3))
    add("where", S.where(S.Variable("condition"), a, b), condition=whole(2, 2, 3), a=normal(2, 3), b=normal(2, 3))
    add("where_rows", S.where(S.Variable("condition"), a, b), condition=whole(2, 3), a=normal(3, 3), b=normal(3, 3))
    add("clip", S.clip(a, -0.5, 0.5), a=normal(3, 4))
    add("smooth_l1", S.smooth_l1(a, scalar=2), a=normal(3, 4))
    add("hard_sigmoid", S.hard_sigmoid(a), a=normal(3, 4) * 2)
    add("cast", S.Cast(a, dtype="float64"), a=normal(2, 3))
    add("div_sqrt_dim", S.contrib.div_sqrt_dim(a), a=normal(2, 5))
    # Activation and the like.
    for kind in ["relu", "sigmoid", "softrelu", "softsign", "tanh"]:
        add("activation_" + kind, S.Activation(a, act_type=kind), a=normal(2, 3))
    # MXNet's own gradient of selu is that of no function: scale (alpha + y) below 0, in the place of scale alpha + y.
    for kind in ["leaky", "elu", "selu", "gelu"]:
        (no_gradient if kind == "selu" else add)("leaky_" + kind, S.LeakyReLU(a, act_type=kind), a=normal(2, 3, 2))
    add("prelu", S.LeakyReLU(a, b, act_type="prelu"), a=normal(2, 3, 2, 2), b=positive(3))
    add("prelu_flat", S.LeakyReLU(a, b, act_type="prelu"), a=normal(2, 3), b=positive(3))
    add("prelu_shared", S.LeakyReLU(a, b, act_type="prelu"), a=normal(2, 3, 2), b=positive(1))
    # Softmax.
    add("softmax", S.softmax(a), a=normal(2, 3, 4))
    add("softmax_axis", S.softmax(a, axis=1, temperature=2.0), a=normal(2, 3, 4))
    add("softmin", S.softmin(a), a=normal(2, 3))
    add("log_softmax", S.log_softmax(a, axis=1), a=normal(2, 3, 4))
    add("softmax_activation", S.SoftmaxActivation(a), a=normal(2, 3))
    add("softmax_activation_channel", S.SoftmaxActivation(a, mode="channel"), a=normal(2, 3, 2, 2))
    # Windows.
    add("conv", S.Convolution(a, b, c, kernel=(3, 2), num_filter=4, stride=(2, 1), pad=(1, 0), dilate=(1, 2)),
        a=normal(2, 3, 6, 7), b=normal(4, 3, 3, 2), c=normal(4))
    add("conv_groups", S.Convolution(a, b, kernel=(3, 3), num_filter=4, num_group=2, no_bias=True),
        a=normal(2, 4, 5, 5), b=normal(4, 2, 3, 3))
    add("conv_1d", S.Convolution(a, b, c, kernel=(3,), num_filter=2), a=normal(2, 3, 6), b=normal(2, 3, 3), c=normal(2))
    add("conv_3d", S.Convolution(a, b, kernel=(2, 2, 2), num_filter=2, no_bias=True), a=normal(1, 2, 3, 4, 3),
        b=normal(2, 2, 2, 2, 2))
    add("deconv", S.Deconvolution(a, b, kernel=(3, 3), num_filter=2, stride=(2, 2), pad=(1, 1), adj=(1, 1)),
        a=normal(2, 3, 4, 4), b=normal(3, 2, 3, 3))
    add("deconv_bias", S.Deconvolution(a, b, c, kernel=(2, 2), num_filter=4, num_group=2, no_bias=False),
        a=normal(2, 2, 3, 3), b=normal(2, 2, 2, 2), c=normal(4))
    add("deconv_target", S.Deconvolution(a, b, kernel=(4, 4), num_filter=2, stride=(2, 2), target_shape=(7, 8)),
        a=normal(2, 3, 4, 4), b=normal(3, 2, 4, 4))
    add("pool_max", S.Pooling(a, kernel=(3, 3), stride=(2, 2), pad=(1, 1)), a=normal(2, 3, 6, 7))
    add("pool_max_full", S.Pooling(a, kernel=(3, 3), stride=(2, 2), pooling_convention="full"), a=normal(2, 3, 6, 6))
    add("pool_avg", S.Pooling(a, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg"), a=normal(2, 3, 6, 7))
    add("pool_avg_full", S.Pooling(a, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg",
                                   pooling_convention="full"), a=normal(2, 3, 6, 6))
    add("pool_avg_inside", S.Pooling(a, kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False),
        a=normal(2, 3, 4, 4))
    add("pool_sum", S.Pooling(a, kernel=(2, 2), pool_type="sum"), a=normal(2, 3, 4, 4))
    add("pool_global_max", S.Pooling(a, global_pool=True, kernel=(2, 2)), a=normal(2, 3, 4, 4))
    add("pool_global_sum", S.Pooling(a, global_pool=True, pool_type="sum"), a=normal(2, 3, 4, 4))
    add("pool_1d", S.Pooling(a, kernel=(2,), stride=(2,)), a=normal(2, 3, 6))
    add("pool_v1", S.Pooling_v1(a, kernel=(2, 2), stride=(2, 2), pool_type="avg"), a=normal(2, 3, 4, 4))
    add("upsampling", S.UpSampling(a, scale=2, sample_type="nearest"), a=normal(2, 3, 2, 3))
    for scale in [2, 3]:
        add(f"upsampling_bilinear_{scale}", S.UpSampling(a, b, scale=scale, sample_type="bilinear", num_filter=3),
            a=normal(2, 3, 3, 3), b=normal(3, 1, 2 * scale - scale % 2, 2 * scale - scale % 2))
    # Layers.
    add("fc", S.FullyConnected(a, b, c, num_hidden=4), a=normal(2, 3, 2), b=normal(4, 6), c=normal(4))
    add("fc_last", S.FullyConnected(a, b, num_hidden=4, no_bias=True, flatten=False), a=normal(2, 3, 2), b=normal(4, 2))
    for name, options in {"bn": {}, "bn_gamma": {"fix_gamma": False}, "bn_axis": {"axis": 2, "fix_gamma": False},
                          "bn_global": {"use_global_stats": True, "fix_gamma": False}}.items():
        n = 4 if name == "bn_axis" else 3
        add(name, S.BatchNorm(a, b, c, name="bn", moving_mean=S.Variable("moving_mean"),
                              moving_var=S.Variable("moving_var"), **options),
            a=normal(3, 3, 4), b=positive(n), c=normal(n), moving_mean=normal(n), moving_var=positive(n))
    add("layer_norm", S.LayerNorm(a, b, c), a=normal(2, 3, 4), b=normal(4), c=normal(4))
    add("bilinear_sampler", S.BilinearSampler(a, b), a=normal(2, 3, 5, 4), b=normal(2, 2, 3, 6))
    add("grid_generator", S.GridGenerator(a, transform_type="affine", target_shape=(3, 4)), a=normal(2, 6))
    add("spatial_transformer",
        S.SpatialTransformer(a, b, transform_type="affine", sampler_type="bilinear", target_shape=(3, 4)),
        a=normal(2, 3, 5, 4), b=normal(2, 6))
    add("instance_norm", S.InstanceNorm(a, b, c), a=normal(2, 3, 4, 4), b=normal(3), c=normal(3))
    for mode in ["instance", "channel", "spatial"]:
        add("l2_" + mode, S.L2Normalization(a, mode=mode), a=normal(2, 3, 4))
    add("lrn", S.LRN(a, nsize=3, alpha=0.1), a=normal(2, 5, 3, 3))
    # Losses.
    for name, options in {"plain": {}, "scaled": {"grad_scale": 0.5, "smooth_alpha": 0.2},
                          "batch": {"normalization": "batch"},
                          "valid": {"use_ignore": True, "ignore_label": 1, "normalization": "valid"}}.items():
        add("softmax_output_" + name, S.SoftmaxOutput(a, label, **options), a=normal(5, 3), label=whole(3, 5))
    for norm in ["null", "batch", "valid"]:
        add("softmax_output_multi_" + norm,
            S.SoftmaxOutput(a, label, multi_output=True, use_ignore=True, ignore_label=0, normalization=norm),
            a=normal(2, 3, 4), label=whole(3, 2, 4))
    add("softmax_output_preserve", S.SoftmaxOutput(a, label, preserve_shape=True), a=normal(2, 4, 3),
        label=whole(3, 2, 4))
    # MXNet multiplies by its output here, not by the gradient that it is given.
    no_gradient("softmax_output_out_grad", S.SoftmaxOutput(a, label, out_grad=True), a=normal(5, 3), label=whole(3, 5))
    for name in ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"]:
        add(name, getattr(S, name)(a, label, grad_scale=0.5), a=normal(4, 3), label=normal(4, 3))
    add("svm", S.SVMOutput(a, label, margin=0.7, regularization_coefficient=0.5), a=normal(4, 3), label=whole(3, 4))
    add("svm_linear", S.SVMOutput(a, label, use_linear=True), a=normal(4, 3), label=whole(3, 4))
    add("MakeLoss", S.MakeLoss(S.square(a), grad_scale=0.5), a=normal(4, 3))
    add("MakeLoss_valid", S.MakeLoss(S.square(a), normalization="valid", valid_thresh=0.5), a=normal(4, 3))
    add("make_loss", S.make_loss(S.square(a)), a=normal(4, 3))
    add("softmax_cross_entropy", S.softmax_cross_entropy(a, label), a=normal(4, 3), label=whole(3, 4))
    add("ctc", S.CTCLoss(a, label), a=normal(6, 2, 4), label=np.array([[1, 2, 0], [3, 1, 2]], np.float32))
    add("ctc_last", S.CTCLoss(a, label, blank_label="last"), a=normal(6, 2, 4),
        label=np.array([[1, 2, -1], [0, 1, 2]], np.float32))
    add("BlockGrad", S.BlockGrad(a) + a, a=normal(4, 3))
    # Shapes.
    for name, shape in {"plain": (3, -1), "keep": (0, -1), "join": (-3, 0), "rest": (0, -2), "split": (-4, 2, -1, -2),
                        "split_last": (0, -4, -1, 3, 0), "all": (-1,)}.items():
        add("reshape_" + name, S.Reshape(a, shape=shape), a=normal(2, 6, 4) if name != "split" else normal(4, 3, 2))
    add("reshape_reverse", S.Reshape(a, shape=(-1, 0), reverse=True), a=normal(2, 6, 4))
    add("reshape_target", S.Reshape(a, target_shape=(2, 0)), a=normal(2, 6, 4))
    add("reshape_like", S.reshape_like(a, like), a=normal(2, 6), like=normal(3, 4))
    add("flatten", S.Flatten(a), a=normal(2, 3, 4))
    add("transpose", S.transpose(a), a=normal(2, 3, 4))
    add("transpose_axes", S.transpose(a, axes=(0, 2, 1)), a=normal(2, 3, 4))
    add("expand_dims", S.expand_dims(a, axis=1), a=normal(2, 3))
    add("squeeze", S.squeeze(a, axis=1), a=normal(2, 1, 3))
    add("swapaxes", S.SwapAxis(a, dim1=0, dim2=2), a=normal(2, 3, 4))
    add("flip", S.flip(a, axis=1), a=normal(2, 3))
    add("concat", S.Concat(a, b, dim=1), a=normal(2, 3), b=normal(2, 4))
    add("stack", S.stack(a, b, axis=1), a=normal(2, 3), b=normal(2, 3))
    add("slice_channel", S.SliceChannel(a, num_outputs=3), a=normal(2, 6))
    add("slice_channel_squeeze", S.SliceChannel(a, num_outputs=2, axis=2, squeeze_axis=True), a=normal(2, 3, 2))
    add("split_v2", S.split_v2(a, (1, 4), axis=1), a=normal(2, 6))
    add("split_v2_sections", S.split_v2(a, 2, axis=1), a=normal(2, 6))
    add("slice", S.slice(a, begin=(0, 1), end=(None, 4), step=(1, 2)), a=normal(3, 6))
    add("slice_back", S.slice(a, begin=(None, 4), end=(None, None), step=(-1, -2)), a=normal(3, 6))
    add("slice_axis", S.slice_axis(a, axis=1, begin=1, end=None), a=normal(2, 4))
    add("slice_axis_negative", S.slice_axis(a, axis=-1, begin=-3, end=-1), a=normal(2, 4))
    add("slice_like", S.slice_like(a, like, axes=(1,)), a=normal(2, 4), like=normal(1, 3))
    add("slice_like_all", S.slice_like(a, like), a=normal(3, 4), like=normal(2, 3))
    add("crop", S.Crop(a, offset=(1, 0), h_w=(2, 3)), a=normal(2, 3, 4, 5))
    add("crop_like", S.Crop(a, like, offset=(1, 1), num_args=2), a=normal(2, 3, 4, 5), like=normal(2, 1, 3, 2))
    add("crop_center", S.Crop(a, like, center_crop=True, num_args=2), a=normal(2, 3, 5, 6), like=normal(2, 1, 3, 2))
    add("tile", S.tile(a, reps=(2, 3)), a=normal(2, 3))
    add("repeat", S.repeat(a, repeats=2, axis=1), a=normal(2, 3))
    add("repeat_flat", S.repeat(a, repeats=2), a=normal(2, 3))
    for mode in ["constant", "edge", "reflect"]:
        add("pad_" + mode, S.Pad(a, mode=mode, pad_width=(0, 0, 0, 0, 1, 2, 2, 1), constant_value=3),
            a=normal(2, 3, 4, 4))
    add("depth_to_space", S.depth_to_space(a, block_size=2), a=normal(2, 8, 2, 3))
    add("space_to_depth", S.space_to_depth(a, block_size=2), a=normal(2, 2, 4, 6))
    add("broadcast_to", S.broadcast_to(a, shape=(0, 4)), a=normal(3, 1))
    add("broadcast_like", S.broadcast_like(a, like), a=normal(3, 1), like=normal(3, 4))
    add("broadcast_axis", S.broadcast_axis(a, axis=(1, 3), size=(2, 3)), a=normal(2, 1, 2, 1))
    add("zeros_like", S.zeros_like(a) + a, a=normal(2, 3))
    add("ones", S.broadcast_mul(a, S.ones((1, 3)) + S.full((1, 3), 2) + S.arange(3).reshape((1, 3))), a=normal(2, 3))
    # Sums and products.
    for name in ["sum", "mean", "max", "min", "prod"]:
        add(name + "_all", getattr(S, name)(a), a=normal(2, 3))
        add(name + "_axis", getattr(S, name)(a, axis=(1, 2), keepdims=True), a=normal(2, 3, 4))
        add(name + "_exclude", getattr(S, name)(a, axis=1, exclude=True), a=normal(2, 3, 4))
    add("norm", S.norm(a), a=normal(2, 3))
    add("norm_1", S.norm(a, ord=1, axis=1), a=normal(2, 3))
    add("dot", S.dot(a, b), a=normal(2, 3), b=normal(3, 4))
    add("dot_transposed", S.dot(a, b, transpose_a=True, transpose_b=True), a=normal(3, 2), b=normal(4, 3))
    add("dot_vectors", S.dot(a, b), a=normal(3), b=normal(3))
    add("batch_dot", S.batch_dot(a, b, transpose_b=True), a=normal(2, 3, 4), b=normal(2, 5, 4))
    add("gemm2", S.linalg_gemm2(a, b, alpha=2.0, transpose_a=True), a=normal(2, 3, 4), b=normal(2, 3, 5))
    add("gemm", S.linalg_gemm(a, b, c, alpha=2.0, beta=0.5), a=normal(2, 3, 4), b=normal(2, 4, 5), c=normal(2, 3, 5))
    add("cumsum", S.cumsum(a, axis=1), a=normal(2, 3))
    # Indices.
    add("embedding", S.Embedding(index, b, input_dim=5, output_dim=3), index=whole(7, 2, 4), b=normal(5, 3))
    for mode in ["clip", "wrap"]:
        add("take_" + mode, S.take(a, index, axis=1, mode=mode), a=normal(2, 4), index=whole(7, 3) - 2)
    add("pick", S.pick(a, index), a=normal(3, 4), index=whole(4, 3))
    add("pick_keepdims", S.pick(a, index, axis=1, keepdims=True), a=normal(3, 4, 2), index=whole(4, 3, 2))
    no_gradient("batch_take", S.batch_take(a, index), a=normal(3, 4), index=whole(4, 3).astype(np.int32))
    no_gradient("one_hot", S.one_hot(index, depth=4, on_value=2, off_value=-1), index=whole(4, 3))
    no_gradient("argmax", S.argmax(a, axis=1), a=normal(3, 4))
    no_gradient("argmax_keepdims", S.argmax(a, axis=0, keepdims=True), a=normal(3, 4))
    no_gradient("argmin_all", S.argmin(a), a=normal(3, 4))
    no_gradient("argmax_channel", S.argmax_channel(a), a=normal(3, 4))
    no_gradient("topk", S.topk(a, k=2), a=normal(3, 4))
    no_gradient("topk_both", S.topk(a, k=2, ret_typ="both", is_ascend=True, axis=0), a=normal(3, 4))
    add("topk_value", S.topk(a, k=2, ret_typ="value"), a=normal(3, 4))
    add("sort", S.sort(a, axis=1, is_ascend=False), a=normal(3, 4))
    no_gradient("argsort", S.argsort(a), a=normal(3, 4))
    for axis in [0, 1]:
        shape = (5, 3, 2) if axis == 0 else (3, 5, 2)
        options = {"use_sequence_length": True, "axis": axis}
        add(f"sequence_mask_{axis}", S.SequenceMask(a, lengths, value=-1, **options), a=normal(*shape),
            lengths=whole(5, 3) + 1)
        add(f"sequence_last_{axis}", S.SequenceLast(a, lengths, **options), a=normal(*shape), lengths=whole(5, 3) + 1)
    add("sequence_reverse", S.SequenceReverse(a, lengths, use_sequence_length=True), a=normal(5, 3, 2),
        lengths=whole(5, 3) + 1)
    add("sequence_last_all", S.SequenceLast(a), a=normal(5, 3, 2))
    add("sequence_reverse_all", S.SequenceReverse(a), a=normal(5, 3, 2))
    # Recurrent layers.
    for mode, gates in [("rnn_relu", 1), ("rnn_tanh", 1), ("lstm", 4), ("gru", 3)]:
        for both in [False, True]:
            directions, hidden, layers, width = (2 if both else 1), 3, 2, 2
            size = sum(directions * gates * hidden * ((width if i == 0 else directions * hidden) + hidden + 2)
                       for i in range(layers))
            states = {"state": normal(layers * directions, 2, hidden)}
            if mode == "lstm":
                states["state_cell"] = normal(layers * directions, 2, hidden)
            add(f"rnn_{mode}_{directions}",
                S.RNN(a, S.Variable("rnn_parameters"), mode=mode, state_size=hidden, num_layers=layers,
                      bidirectional=both, state_outputs=True, name="rnn",
                      **{n: S.Variable(n) for n in states}), a=normal(4, 2, width), rnn_parameters=normal(size) * 0.5,
                **states)
    return made
