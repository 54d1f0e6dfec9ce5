"""Reductions, softmax, and the order of elements along an axis."""

import torch
from draw import Case, operator
from torch.nn import functional as F


def product(x, axes, keep):
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


REDUCTIONS = {
    "Sum": torch.sum,
    "Mean": torch.mean,
    "Max": torch.amax,
    "Min": torch.amin,
    "Prod": product,
    "L1Norm": lambda x, axes, keep: torch.linalg.vector_norm(x, 1, axes, keep),
    "L2Norm": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
    "SumSquare": lambda x, axes, keep: x.square().sum(axes, keep),
    "LogSumExp": torch.logsumexp,
    "LogSum": lambda x, axes, keep: x.sum(axes, keep).log(),
}


def reduction(r, name, function):
    shape = r.shape(0, 4)
    rank = len(shape)
    axes, keep = r.axes(rank, 0) if rank and r.size is None else [1] if rank else [], r.flag()
    attrs = {"axes": axes, "keepdims": keep, "exclude": bool(axes) and r.flag(0.2), "noop_with_empty_axes": r.flag(0.2)}
    reduced = sorted({a % rank for a in axes})
    if attrs["exclude"]:
        reduced = [a for a in range(rank) if a not in reduced]
    elif not axes and not attrs["noop_with_empty_axes"]:
        reduced = list(range(rank))
    x = r.distinct(shape) if name in ("Max", "Min") else r.values(shape, 0.1 if name == "LogSum" else -2)

    def run(x):
        if reduced:
            return function(x, reduced, keep)
        # PyTorch takes no axes for all; an axis of extent 1 does the same as none.
        return function(x[None], [0], False)

    # Sums of numbers up to 2 of both signs may be anything, down to 0.
    return Case(name, attrs, [x], run, least=1.0 if name in ("Sum", "Mean") else 1e-3)


for name, function in REDUCTIONS.items():
    operator(name, name, function)(reduction)


@operator("Prod, of zeros")
def product_of_zeros(r):
    shape = r.shape(1, 3)
    axis = r.axis(len(shape))
    return Case("Prod", {"axes": [axis]}, [r.values(shape, special=(0.0,))], lambda x: x.prod(axis))


# --- Softmax


@operator("Softmax")
def softmax(r):
    shape = r.shape(1, 4)
    axis, t = r.axis(len(shape)), r.choice(1.0, r.number(0.5, 3))
    return Case("Softmax", {"axis": axis, "temperature": t}, [r.values(shape, -9, 9)], lambda x: (x / t).softmax(axis))


@operator("LogSoftmax")
def log_softmax(r):
    shape = r.shape(1, 4)
    axis = r.axis(len(shape))
    return Case("LogSoftmax", {"axis": axis}, [r.values(shape, -9, 9)], lambda x: x.log_softmax(axis))


@operator("Hardmax")
def hardmax(r):
    shape = r.shape(1, 4)
    axis = r.axis(len(shape))

    def function(x):
        return F.one_hot(x.argmax(axis), shape[axis]).to(x.dtype).movedim(-1, axis)

    return Case("Hardmax", {"axis": axis}, [r.distinct(shape)], function)


# --- Order


@operator("ArgMax", "ArgMax", torch.argmax)
@operator("ArgMin", "ArgMin", torch.argmin)
def argument(r, name, function):
    shape = r.shape(1, 4)
    axis, keep = r.axis(len(shape)), r.flag()
    return Case(name, {"axis": axis, "keepdims": keep}, [r.distinct(shape)], lambda x: function(x, axis, keep))


@operator("TopK")
def topk(r):
    shape = r.shape(1, 4)
    axis = r.axis(len(shape))
    k = r.int(1, shape[axis], 5, 5, 5)
    attrs = {"k": k, "axis": axis, "largest": r.size is not None or r.flag()}
    return Case("TopK", attrs, [r.distinct(shape)], lambda x: x.topk(k, axis, attrs["largest"]))


@operator("Sort", "Sort", 0)
@operator("ArgSort", "ArgSort", 1)
def sort(r, name, output):
    """With equal elements, which keep their order."""
    shape = r.shape(1, 4)
    axis, descending = r.axis(len(shape)), r.flag()
    x = r.values(shape, -9, 9)
    x = x.round() if r.flag() else x
    return Case(
        name,
        {"axis": axis, "descending": descending},
        [x],
        lambda x: x.sort(dim=axis, descending=descending, stable=True)[output],
    )


@operator("CumSum", "CumSum", torch.cumsum, 0)
@operator("CumProd", "CumProd", torch.cumprod, 1)
def scan(r, name, function, neutral):
    shape = r.shape(1, 4)
    attrs = {"axis": r.axis(len(shape)), "exclusive": r.flag(0.3), "reverse": r.flag(0.3)}
    axis = attrs["axis"]
    # Products of many keep within bounds, and some elements are 0.
    x = r.values(shape) if neutral == 0 else r.values(shape, 0.7, 1.3, (0.0,) if r.flag(0.3) else ())

    def run(x):
        x = x.flip(axis) if attrs["reverse"] else x
        if attrs["exclusive"]:
            x = torch.cat([torch.full_like(x.narrow(axis, 0, 1), neutral), x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        y = function(x, axis)
        return y.flip(axis) if attrs["reverse"] else y

    return Case(name, attrs, [x], run)
