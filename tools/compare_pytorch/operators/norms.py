"""Normalisations."""

import math

import torch
from draw import Case, Input, batched, operator
from torch.nn import functional as F


def data_of(r, least=2):
    if r.size is not None:
        return [[1, 16, 28, 28], [8, 64, 28, 28], [32, 64, 56, 56]][r.size]
    return [r.int(1, 5), r.int(1, 9)] + [r.int(1, 7) for _ in range(r.int(least - 2, 3))]


@operator("BatchNorm")
def batch_norm(r):
    shape = data_of(r)
    axis = r.choice(1, 1, 1, -1, 0)
    if shape[0] == 1 and math.prod(shape) == shape[axis]:
        shape[0 if axis % len(shape) else 1] += 2
    count = shape[axis]
    attrs = {
        "eps": r.number(1e-5, 1e-2),
        "momentum": r.number(0.5, 0.95),
        "fix_gamma": r.flag(),
        "axis": axis,
        "use_global_stats": r.flag(0.2),
    }
    stretch = [count if i == axis % len(shape) else 1 for i in range(len(shape))]
    others = [i for i in range(len(shape)) if stretch[i] == 1 and i != axis % len(shape)]

    def normalized(x, gamma, beta, mean, var):
        gamma = torch.ones_like(gamma) if attrs["fix_gamma"] else gamma
        y = (x - mean.reshape(stretch)) * (var.reshape(stretch) + attrs["eps"]).rsqrt()
        return y * gamma.reshape(stretch) + beta.reshape(stretch)

    def statistics(x):
        return x.mean(others), x.var(others, correction=0)

    def function(x, gamma, beta, mean, var):
        if axis == 1:
            weight = torch.ones_like(gamma) if attrs["fix_gamma"] else gamma
            train = not attrs["use_global_stats"]
            return F.batch_norm(
                x, None if train else mean, None if train else var, weight, beta, train, 0, attrs["eps"]
            )
        return normalized(x, gamma, beta, *((mean, var) if attrs["use_global_stats"] else statistics(x)))

    def state(x, gamma, beta, mean, var):
        if attrs["use_global_stats"]:
            return {"x3": mean, "x4": var}
        m = attrs["momentum"]
        now = statistics(x)
        return {"x3": m * mean + (1 - m) * now[0], "x4": m * var + (1 - m) * now[1]}

    inputs = [
        batched(r.values(shape)),
        r.parameter([count]),
        r.parameter([count]),
        Input(r.values([count]), role="state"),
        Input(r.values([count], 0.5, 2), role="state"),
    ]

    def predict(x, gamma, beta, mean, var):
        return normalized(x, gamma, beta, mean, var)

    return Case("BatchNorm", attrs, inputs, function, predict=predict, state=state, bound=5)


@operator("Normalize, LayerNorm", True)
@operator("Normalize, RMSNorm", False)
def layer_norm(r, center):
    shape = r.shape(1, 4)
    axis = r.axis(len(shape))
    own = shape[axis % len(shape) :]
    attrs = {
        "axis": axis,
        "eps": r.number(1e-5, 1e-2),
        "center": center,
        "scale": not r.flag(0.3),
        "shift": center and not r.flag(0.3),
    }
    parameters = [r.parameter(own) for name in ("scale", "shift") if attrs[name]]

    def function(x, *own_parameters):
        given = list(own_parameters)
        gamma = given.pop(0) if attrs["scale"] else None
        beta = given.pop(0) if attrs["shift"] else None
        if center:
            return F.layer_norm(x, own, gamma, beta, attrs["eps"])
        return F.rms_norm(x, own, gamma, attrs["eps"])

    return Case("Normalize", attrs, [r.values(shape)] + parameters, function, bound=10)


@operator("Normalize, GroupNorm", False)
@operator("Normalize, InstanceNorm", True)
def group_norm(r, each):
    shape = data_of(r, 3)
    groups = 1 if each else r.int(1, 3, 8, 8, 8)
    if r.size is None:
        shape[1] = groups * r.int(1, 4)
    shape[2] += shape[2] == 1
    attrs = {
        "groups": -1 if each else groups,
        "eps": r.number(1e-5, 1e-2),
        "scale": not r.flag(0.3),
        "shift": not r.flag(0.3),
    }
    parameters = [r.parameter([shape[1]]) for name in ("scale", "shift") if attrs[name]]

    def function(x, *own_parameters):
        given = list(own_parameters)
        gamma = given.pop(0) if attrs["scale"] else None
        beta = given.pop(0) if attrs["shift"] else None
        if each:
            return F.instance_norm(x, weight=gamma, bias=beta, eps=attrs["eps"])
        return F.group_norm(x, groups, gamma, beta, attrs["eps"])

    return Case("Normalize", attrs, [batched(r.values(shape))] + parameters, function, bound=10)


@operator("L2Normalization")
def l2_normalization(r):
    shape, mode = data_of(r, 3), r.int(0, 2, 1, 1, 1)
    axes = [tuple(range(1, len(shape))), (1,), tuple(range(2, len(shape)))][mode]
    shape[axes[0]] += r.size is None  # the gradient of one element alone is 0, a difference of anything large
    attrs = {"mode": mode, "eps": 1e-10}
    return Case(
        "L2Normalization",
        attrs,
        [batched(r.values(shape))],
        lambda x: x / (x.square().sum(axes, keepdim=True) + 1e-10).sqrt(),
        bound=10,
    )


@operator("MeanVarianceNormalization")
def mean_variance(r):
    shape = data_of(r, 4)
    axes = sorted({a % len(shape) for a in r.axes(len(shape))}) if r.size is None else [0, 2, 3]
    shape[axes[0]] += 2

    def function(x):
        mean, var = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
        return (x - mean) / (var + 1e-4).sqrt()

    return Case("MeanVarianceNormalization", {"axes": axes, "eps": 1e-2}, [r.values(shape)], function, bound=10)


@operator("LRN")
def lrn(r):
    attrs = {
        "size": r.choice(5, 1, 3, 7),
        "alpha": r.number(1e-4, 1),
        "beta": r.number(0.75, 1.5),
        "bias": r.number(1, 2),
    }
    return Case(
        "LRN",
        attrs,
        [batched(r.values(data_of(r, 3)))],
        lambda x: F.local_response_norm(x, attrs["size"], attrs["alpha"], attrs["beta"], attrs["bias"]),
    )
