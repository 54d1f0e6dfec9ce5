"""Elements picked by index and put back by index; sequences of unequal length."""

import math

import torch
from draw import Case, batched, fixed, operator
from torch.nn import functional as F


def indices_of(r, shape, extent, mode, unique=False):
    """Of any of the forms that the mode takes, and the same within 0 .. extent - 1."""
    if unique:
        given = torch.tensor(r.random.permutation(extent)[: math.prod(shape)]).reshape(shape)
    elif mode == "raise":
        given = r.whole(shape, 0, extent - 1)
    else:
        given = r.whole(shape, -extent - 2, 2 * extent + 2)
    if mode == "raise" and r.flag():
        given = torch.where(r.truth(given.shape), given, given - extent)
    within = given.clamp(0, extent - 1) if mode == "clip" else given % extent
    return given.to(r.choice(torch.int64, torch.int32)), within


def taken(x, i, axis):
    return x.index_select(axis, i.flatten()).reshape(list(x.shape[:axis]) + list(i.shape) + list(x.shape[axis + 1 :]))


@operator("Take")
def take(r):
    shape = r.shape(1, 4)
    shared = r.int(0, len(shape) - 1, 0, 0, 0) if r.flag(0.3) else 0
    axis, mode = r.int(shared, len(shape) - 1, 0, 0, 0), r.choice("raise", "clip", "wrap")
    given, within = indices_of(r, shape[:shared] + ([1000] if r.size is not None else r.shape(0, 2)), shape[axis], mode)
    attrs = {"axis": axis - len(shape) if r.flag(0.3) else axis, "batch_dims": shared, "mode": mode}
    if mode == "raise" and r.flag(0.4) and given.numel():
        attrs["padding"] = int(within.flatten()[0])

    def one(x, i, kept, shared):
        if shared == 0:
            y = taken(x, i, axis - (len(shape) - x.dim()))
            at = axis - (len(shape) - x.dim())
            return y * kept.reshape([1] * at + list(kept.shape) + [1] * (y.dim() - at - kept.dim())).to(y.dtype)
        return torch.stack([one(*parts, shared - 1) for parts in zip(x, i, kept)])

    kept = within != attrs["padding"] if "padding" in attrs else torch.ones(given.shape, dtype=torch.bool)
    return Case("Take", attrs, [r.values(shape), given], lambda x, _: one(x, within, kept, shared))


def tuples_of(r, unique):
    """A shape, how many axes are shared and how many indexed, tuples as given, and within each shared index a place."""
    shape = r.shape(1, 4)
    shared = r.int(0, len(shape) - 1, 0, 0, 0) if r.flag(0.3) else 0
    k = r.int(1, len(shape) - shared, 1, 1, 1)
    extents, others = shape[shared : shared + k], r.shape(0, 2) if r.size is None else [1000]
    room = math.prod(extents)
    if unique:
        others = [min(math.prod(others), room)]
    count = math.prod(shape[:shared])
    rows = []
    for _ in range(count):
        rows.append(torch.tensor(r.random.permutation(room)[: others[0]]) if unique else r.whole(others, 0, room - 1))
    flat = torch.stack(rows).reshape(shape[:shared] + others)
    parts, rest = [], flat
    for extent in reversed(extents):
        parts.insert(0, rest % extent)
        rest = rest // extent
    if r.flag(0.3):
        parts = [torch.where(r.truth(p.shape), p, p - extent) for p, extent in zip(parts, extents)]
    return shape, shared, k, torch.stack(parts, -1), flat


def rows_of(x, shared, k):
    """(shared, indexed, rest)"""
    batches, extent = math.prod(x.shape[:shared]), math.prod(x.shape[shared : shared + k])
    return x.reshape(batches, extent, -1)


@operator("GatherND")
def gather_nd(r):
    shape, shared, k, tuples, flat = tuples_of(r, False)

    def function(x, _):
        rows = rows_of(x, shared, k)
        y = rows.gather(1, flat.reshape(rows.shape[0], -1, 1).expand(-1, -1, rows.shape[2]))
        return y.reshape(list(flat.shape) + list(shape[shared + k :]))

    return Case("GatherND", {"axis": shared, "batch_dims": shared}, [r.values(shape), tuples], function)


REDUCTIONS = {"none": None, "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def put(x, axis, index, updates, reduction):
    if reduction == "none":
        return x.scatter(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, REDUCTIONS[reduction])


def far(r, x, updates, reduction):
    """Updates that no element of x is equal to, whose gradients would be shared."""
    return r.values(updates, 0.5, 1.5) if reduction == "mul" else r.distinct(updates) * 1.37 + 0.0123


@operator("ScatterND, none", "none")
@operator("ScatterND, add", "add")
@operator("ScatterND, mul", "mul")
@operator("ScatterND, max", "max")
@operator("ScatterND, min", "min")
def scatter_nd(r, reduction):
    shape, shared, k, tuples, flat = tuples_of(r, reduction == "none")
    updates = far(r, None, list(flat.shape) + list(shape[shared + k :]), reduction)
    attrs = {"axis": shared, "batch_dims": shared, "reduction": reduction}
    zeros = reduction in ("none", "add") and r.flag(0.3)
    if zeros:
        attrs["shape"] = shape

    def function(*given):
        x = torch.zeros(shape, dtype=given[-1].dtype) if zeros else given[0]
        rows = rows_of(x, shared, k)
        index = flat.reshape(rows.shape[0], -1, 1).expand(-1, -1, rows.shape[2])
        return put(rows, 1, index, given[-1].reshape(index.shape), reduction).reshape(shape)

    return Case("ScatterND", attrs, ([] if zeros else [r.distinct(shape)]) + [tuples, updates], function)


@operator("GatherElements")
def gather_elements(r):
    shape = r.shape(1, 4)
    axis, mode = r.axis(len(shape)), r.choice("raise", "clip", "wrap")
    part = [r.int(1, n, n, n, n) for n in shape]
    part[axis] = r.int(1, 8, shape[axis], shape[axis], shape[axis])
    given, within = indices_of(r, part, shape[axis], mode)
    return Case(
        "GatherElements", {"axis": axis, "mode": mode}, [r.values(shape), given], lambda x, _: x.gather(axis, within)
    )


@operator("ScatterElements, none", "none")
@operator("ScatterElements, add", "add")
@operator("ScatterElements, mul", "mul")
@operator("ScatterElements, max", "max")
@operator("ScatterElements, min", "min")
def scatter_elements(r, reduction):
    shape = r.shape(1, 4)
    axis = r.axis(len(shape))
    part = [r.int(1, n, n, n, n) for n in shape]
    index = r.whole(part, 0, shape[axis] - 1)
    if reduction == "none":  # no place twice
        places = torch.tensor(r.random.permutation(shape[axis])[: part[axis]])
        index = (
            places.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))]).expand(part).contiguous()
        )
    given = index - shape[axis] if r.flag(0.3) else index
    attrs = {"axis": axis, "reduction": reduction}
    return Case(
        "ScatterElements",
        attrs,
        [r.distinct(shape), given, far(r, None, part, reduction)],
        lambda x, _, u: put(x, axis, index, u, reduction),
    )


@operator("Pick")
def pick(r):
    shape = r.shape(1, 4)
    axis, keep, mode = r.axis(len(shape)), r.flag(), r.choice("raise", "clip", "wrap")
    rest = list(shape)
    rest[axis] = 1
    given, within = indices_of(r, rest, shape[axis], mode)

    def function(x, _):
        y = x.gather(axis, within)
        return y if keep else y.squeeze(axis)

    return Case(
        "Pick",
        {"axis": axis, "keepdims": keep, "mode": mode},
        [r.values(shape), given if keep else given.squeeze(axis)],
        function,
    )


@operator("OneHot")
def one_hot(r):
    shape, depth = r.shape(0, 3) if r.size is None else [[32], [256], [2048]][r.size], r.int(1, 9, 100, 1000, 1000)
    axis, on, off = r.int(-len(shape) - 1, len(shape), -1, -1, -1), r.number(-2, 2), r.number(-2, 2)
    attrs = {
        "depth": depth,
        "axis": axis,
        "on_value": on,
        "off_value": off,
        "dtype": "float64" if r.double else "float32",
    }

    def function(i):
        hot = F.one_hot(i.long().clamp(0, depth - 1), depth).bool() & ((i >= 0) & (i < depth))[..., None]
        place = axis % (len(shape) + 1)
        return torch.where(hot, *torch.tensor([on, off], dtype=r.dtype)).movedim(-1, place)

    return Case("OneHot", attrs, [r.whole(shape, -1, depth, r.choice(torch.int64, torch.int32))], function)


# --- Sequences


def sequences(r):
    shape = r.shape(2, 4)
    axis, samples = (int(a) for a in r.random.permutation(2)) if r.size is None else (0, 1)
    lengths = r.whole([shape[samples]], 1, shape[axis])
    steps = torch.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    length = lengths.reshape([-1 if i == samples else 1 for i in range(len(shape))])
    inputs = [batched(r.values(shape), samples), fixed(lengths.to(r.choice(r.dtype, torch.int64)))._replace(layout="N")]
    return shape, {"axis": axis, "batch_axis": samples}, inputs, steps, length


@operator("SequenceMask")
def sequence_mask(r):
    _, attrs, inputs, steps, length = sequences(r)
    value = r.number(-1, 1)
    return Case("SequenceMask", {**attrs, "value": value}, inputs, lambda x, _: torch.where(steps < length, x, value))


@operator("SequenceReverse")
def sequence_reverse(r):
    shape, attrs, inputs, steps, length = sequences(r)
    index = torch.where(steps < length, length - 1 - steps, steps).expand(shape)
    return Case("SequenceReverse", attrs, inputs, lambda x, _: x.gather(attrs["axis"], index))


@operator("SequenceLast")
def sequence_last(r):
    shape, attrs, inputs, _, length = sequences(r)
    axis = attrs["axis"]
    index = (length - 1).expand([1 if i == axis else n for i, n in enumerate(shape)])
    return Case("SequenceLast", attrs, inputs, lambda x, _: x.gather(axis, index).squeeze(axis))
