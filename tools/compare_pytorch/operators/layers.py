"""Layers of weights over images, products of matrices, and pooling."""

import math

import torch
from draw import Case, batched, operator
from torch.nn import functional as F

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softrelu": F.softplus,
    "softsign": F.softsign,
}


def padded(x, begin, end, value=0.0):
    """With elements around each of the last axes."""
    return F.pad(x, [n for pair in zip(reversed(begin), reversed(end)) for n in pair], value=value)


def windows(r, axes, kernels=(1, 4), dilated=True):
    """kernel, stride, dilate, and the pads before and behind."""
    kernel = [r.int(*kernels, 3, 3, 3) for _ in range(axes)]
    stride = [r.int(1, 3, 1, 1, 1) for _ in range(axes)]
    dilate = [r.int(1, 2, 1, 1, 1) if dilated else 1 for _ in range(axes)]
    begin = [r.int(0, 2, 1, 1, 1) for _ in range(axes)]
    end = begin if r.flag(0.7) or r.size is not None else [r.int(0, 2) for _ in range(axes)]
    return kernel, stride, dilate, begin, end


def bias_of(r, count, attrs):
    attrs["no_bias"] = r.flag(0.3)
    return [] if attrs["no_bias"] else [r.parameter([count])]


@operator("Convolution, 1 axis", 1)
@operator("Convolution", 2)
@operator("Convolution, 3 axes", 3)
def convolution(r, axes):
    kernel, stride, dilate, begin, end = windows(r, axes)
    size = [[28, 56, 56], [28, 56, 56], [8, 16, 28]][axes - 1]
    groups = r.choice(1, 1, 1, 2, 3)
    channels = r.choice(r.int(1, 5, 16, 64, 64), 8, 16) * groups
    filters = r.choice(r.int(1, 5, 16, 64, 64), 8, 16) * groups
    if r.flag(0.15):  # one filter, or a few, for each channel
        groups, channels = channels, channels
        filters = channels * r.int(1, 2)
    space = [max(1, d * (k - 1) + 1 - b - e) + r.int(0, 9) for d, k, b, e in zip(dilate, kernel, begin, end)]
    if r.size is not None:
        space = [size[r.size]] * axes
    attrs = {"num_filter": filters, "kernel": kernel, "stride": stride, "dilate": dilate, "groups": groups}
    auto = r.choice("none", "none", "none", "valid", "same_upper", "same_lower")
    if auto == "none":
        attrs["pad"] = begin + end if begin != end or r.flag() else begin
    else:
        attrs["auto_pad"], begin, end = auto, [0] * axes, [0] * axes
        space = [s + d * (k - 1) for s, d, k in zip(space, dilate, kernel)]
        if auto != "valid":
            total = [
                max(0, (math.ceil(s / t) - 1) * t + d * (k - 1) + 1 - s)
                for s, t, d, k in zip(space, stride, dilate, kernel)
            ]
            begin = [(n + (auto == "same_lower")) // 2 for n in total]
            end = [n - b for n, b in zip(total, begin)]
    attrs["activation"] = r.choice(*ACTIVATIONS)
    x = r.values([r.int(1, 4, 1, 8, 16)] + [channels] + space)
    weight = r.weight([filters, channels // groups] + kernel)
    run = [F.conv1d, F.conv2d, F.conv3d][axes - 1]

    def function(x, w, b=None):
        pad = begin
        if begin != end:
            x, pad = padded(x, begin, end), 0
        return ACTIVATIONS[attrs["activation"]](run(x, w, b, stride, pad, dilate, groups))

    return Case("Convolution", attrs, [batched(x), weight] + bias_of(r, filters, attrs), function)


@operator("Deconvolution, 1 axis", 1)
@operator("Deconvolution", 2)
@operator("Deconvolution, 3 axes", 3)
def deconvolution(r, axes):
    kernel, stride, dilate, pad, _ = windows(r, axes)
    size = [[14, 28, 28], [14, 28, 28], [4, 8, 14]][axes - 1]
    groups = r.choice(1, 1, 2, 3)
    channels, filters = r.int(1, 5, 16, 64, 64) * groups, r.int(1, 5, 16, 64, 64) * groups
    more = [r.int(0, s - 1, 0, 0, 0) for s in stride]
    space = [r.int(1, 7) for _ in range(axes)]
    for i in range(axes):
        while (space[i] - 1) * stride[i] + dilate[i] * (kernel[i] - 1) + 1 - 2 * pad[i] + more[i] < 1:
            space[i] += 1
    if r.size is not None:
        space = [size[r.size]] * axes
    attrs = {
        "num_filter": filters,
        "kernel": kernel,
        "stride": stride,
        "dilate": dilate,
        "groups": groups,
        "pad": pad,
        "output_padding": more,
    }
    run = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][axes - 1]
    x = r.values([r.int(1, 4, 1, 8, 16), channels] + space)
    inputs = [batched(x), r.weight([channels, filters // groups] + kernel)] + bias_of(r, filters, attrs)
    return Case("Deconvolution", attrs, inputs, lambda x, w, b=None: run(x, w, b, stride, pad, more, groups, dilate))


@operator("FullyConnected")
def fully_connected(r):
    shape = [r.int(1, 9, 16, 64, 256)] + [r.int(1, 6) for _ in range(r.int(0, 2))] + [r.int(1, 40, 64, 512, 1024)]
    attrs = {"num_hidden": r.int(1, 40, 64, 512, 1024), "flatten": r.flag(), "activation": r.choice(*ACTIVATIONS)}
    inputs = [batched(r.values(shape))]
    inputs.append(r.weight([attrs["num_hidden"], math.prod(shape[1:]) if attrs["flatten"] else shape[-1]]))
    inputs += bias_of(r, attrs["num_hidden"], attrs)

    def function(x, w, b=None):
        return ACTIVATIONS[attrs["activation"]](F.linear(x.flatten(1) if attrs["flatten"] else x, w, b))

    return Case("FullyConnected", attrs, inputs, function)


# --- Products


@operator("MatMul")
def matmul(r):
    m, k, n = (r.int(1, 20, 32, 256, 768) for _ in range(3))
    batch = [r.int(1, 4) for _ in range(r.int(0, 3, 0, 0, 0))]
    attrs = {"transpose_a": r.flag(0.3), "transpose_b": r.flag(0.3)}
    a = r.stretched(batch) + ([k, m] if attrs["transpose_a"] else [m, k])
    b = (batch if r.flag() else r.stretched(batch)) + ([n, k] if attrs["transpose_b"] else [k, n])
    if r.flag(0.1):
        a, attrs["transpose_a"] = [k], False
    if r.flag(0.1):
        b, attrs["transpose_b"] = [k], False

    def function(a, b):
        return (a.mT if attrs["transpose_a"] else a) @ (b.mT if attrs["transpose_b"] else b)

    return Case("MatMul", attrs, [r.values(a), r.values(b)], function)


@operator("Dot")
def dot(r):
    m, k, n = (r.int(1, 20, 32, 256, 768) for _ in range(3))
    if r.flag(0.15):
        return Case("Dot", {}, [r.values([k]), r.values([k])], lambda a, b: torch.dot(a, b).reshape(1))
    attrs = {"transpose_a": r.flag(), "transpose_b": r.flag()}
    a = r.values([k, m] if attrs["transpose_a"] else [m, k])
    b = r.values([n, k] if attrs["transpose_b"] else [k, n])
    return Case(
        "Dot", attrs, [a, b], lambda a, b: (a.T if attrs["transpose_a"] else a) @ (b.T if attrs["transpose_b"] else b)
    )


@operator("Gemm")
def gemm(r):
    m, k, n = (r.int(1, 20, 32, 256, 768) for _ in range(3))
    attrs = {"alpha": r.number(0.5, 2), "beta": r.number(0.5, 2), "transpose_a": r.flag(), "transpose_b": r.flag()}
    a = r.values([k, m] if attrs["transpose_a"] else [m, k])
    b = r.values([n, k] if attrs["transpose_b"] else [k, n])
    c = [] if r.flag(0.2) else [r.values(r.stretched([m, n]))]

    def function(a, b, c=None):
        y = attrs["alpha"] * (a.T if attrs["transpose_a"] else a) @ (b.T if attrs["transpose_b"] else b)
        return y if c is None else y + attrs["beta"] * c

    return Case("Gemm", attrs, [a, b] + c, function)


EQUATIONS = (
    "ij,jk->ik",
    "bij,bjk->bik",
    "i,i->",
    "i,j->ij",
    "ij->ji",
    "ij->",
    "ijk->j",
    "bhtd,bhsd->bhts",
    "bij,kj->bik",
    "ij,jk,kl->il",
    "abc,cd->dab",
    "bi,bj,ijk->bk",
    "ij,ij->i",
    "ijkl,lk->ij",
    "ab,cb",
    "bij,bjk",
)


@operator("Einsum")
def einsum(r):
    equation = r.choice(*EQUATIONS)
    extents = {letter: r.int(1, 8, 16, 128, 512) for letter in "abcdhijklst"}
    operands = equation.split("->")[0].split(",")
    inputs = [r.values([extents[letter] for letter in operand]) for operand in operands]
    attrs = {"equation": equation, "ranks": [len(operand) for operand in operands]}
    return Case("Einsum", attrs, inputs, lambda *x: torch.einsum(equation, *x))


# --- Pooling


def pooled(r, axes, windowed):
    kernel, stride, dilate, begin, end = windowed
    begin, end = ([min(p, k // 2) for p, k in zip(pads, kernel)] for pads in (begin, end))
    space = [d * (k - 1) + 1 + r.int(0, 9) for d, k in zip(dilate, kernel)]
    if r.size is not None:
        space = [[28, 56, 112], [28, 56, 112], [8, 16, 28]][axes - 1][r.size : r.size + 1] * axes
    shape = [r.int(1, 3, 1, 4, 8), r.choice(r.int(1, 5, 16, 64, 64), 8, 16)] + space
    attrs = {"kernel": kernel, "stride": stride, "dilate": dilate, "ceil_mode": r.flag(0.3)}
    attrs["pad"] = begin if begin == end else begin + end
    return shape, attrs, begin, end


@operator("Pooling, max, 1 axis", 1)
@operator("Pooling, max", 2)
@operator("Pooling, max, 3 axes", 3)
def max_pooling(r, axes):
    shape, attrs, begin, end = pooled(r, axes, windows(r, axes))
    run = [F.max_pool1d, F.max_pool2d, F.max_pool3d][axes - 1]
    x, space = batched(r.distinct(shape)), tuple(range(2, axes + 2))
    if r.flag(0.1):
        return Case("Pooling", {"type": "max", "global": True}, [x], lambda x: x.amax(space, keepdim=True))
    if begin != end:
        attrs["ceil_mode"] = False

    def function(x):
        pad = begin
        if begin != end:
            x, pad = padded(x, begin, end, -math.inf), 0
        return run(x, attrs["kernel"], attrs["stride"], pad, attrs["dilate"], attrs["ceil_mode"])

    return Case("Pooling", {"type": "max", **attrs}, [x], function)


@operator("Pooling, avg, 1 axis", 1)
@operator("Pooling, avg", 2)
@operator("Pooling, avg, 3 axes", 3)
def average_pooling(r, axes):
    kernel, stride, _, begin, _ = windows(r, axes)
    shape, attrs, pad, _ = pooled(r, axes, (kernel, stride, [1] * axes, begin, begin))
    run = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][axes - 1]
    x, space = batched(r.values(shape)), tuple(range(2, axes + 2))
    if r.flag(0.1):
        return Case("Pooling", {"type": "avg", "global": True}, [x], lambda x: x.mean(space, keepdim=True))
    attrs["count_include_pad"] = not r.flag()

    def function(x):
        return run(x, kernel, stride, pad, attrs["ceil_mode"], attrs["count_include_pad"])

    return Case("Pooling", {"type": "avg", **attrs}, [x], function)
