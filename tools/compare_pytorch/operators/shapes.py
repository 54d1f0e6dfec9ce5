"""Operators that put elements elsewhere, and tensors that are made of numbers."""

import math

import torch
from draw import Case, operator
from torch.nn import functional as F


@operator("Identity")
def identity(r):
    return Case("Identity", {}, [r.values(r.shape())], lambda x: x.clone())


@operator("Flatten")
def flatten(r):
    return Case("Flatten", {}, [r.values(r.shape(1, 4))], lambda x: x.flatten(1) if x.dim() > 1 else x[:, None])


@operator("Reshape")
def reshape(r):
    shape = r.shape(1, 4)
    count, target = math.prod(shape), []
    for _ in range(r.int(0, 3, 1, 1, 1)):
        target.append(r.choice(*[n for n in range(1, count + 1) if count % n == 0]))
        count //= target[-1]
    target.append(count)
    wanted = list(target)
    if r.flag():
        wanted[r.int(0, len(wanted) - 1)] = -1
    if r.flag(0.3) and target[0] == shape[0] and wanted[0] != -1:
        wanted[0] = 0
    return Case("Reshape", {"shape": wanted}, [r.values(shape)], lambda x: x.reshape(target).clone())


@operator("Transpose")
def transpose(r):
    shape = r.shape(1, 5)
    axes = [int(a) for a in r.random.permutation(len(shape))] if r.size is None else [1, 0]
    if r.flag(0.2):
        return Case("Transpose", {}, [r.values(shape)], lambda x: x.permute(*range(len(shape))[::-1]).contiguous())
    return Case("Transpose", {"axes": axes}, [r.values(shape)], lambda x: x.permute(axes).contiguous())


@operator("SwapAxes")
def swap_axes(r):
    shape = r.shape(1, 4)
    a, b = r.axis(len(shape)), r.axis(len(shape)) if r.size is None else 0
    return Case("SwapAxes", {"a": a, "b": b}, [r.values(shape)], lambda x: x.swapaxes(a, b).contiguous())


@operator("ExpandDims")
def expand_dims(r):
    shape = r.shape(0, 4)
    rank = len(shape) + r.int(1, 3, 1, 1, 1)
    axes = [int(a) for a in r.random.permutation(rank)[: rank - len(shape)]]

    def function(x):
        for axis in sorted(axes):
            x = x.unsqueeze(axis)
        return x.clone()

    return Case("ExpandDims", {"axes": [a - rank if r.flag(0.3) else a for a in axes]}, [r.values(shape)], function)


@operator("Squeeze")
def squeeze(r):
    shape = r.shape(0, 4)
    for _ in range(r.int(0, 2, 1, 1, 1)):
        shape.insert(r.int(0, len(shape)), 1)
    ones = [i for i, extent in enumerate(shape) if extent == 1]
    if not ones or r.flag(0.3):
        return Case("Squeeze", {}, [r.values(shape)], lambda x: x.squeeze().clone())
    some = [i for i in ones if r.flag(0.6)] or ones[:1]
    return Case("Squeeze", {"axes": some}, [r.values(shape)], lambda x: x.squeeze(some).clone())


@operator("Expand", "Expand", False)
@operator("BroadcastTo", "BroadcastTo", True)
def expand(r, name, whole):
    shape = r.shape(1, 4)
    asked = shape if whole or r.flag() else [1 if r.flag(0.3) else extent for extent in shape]
    x = r.values(r.stretched(shape) if r.size is None else [shape[0], 1])
    return Case(name, {"shape": asked}, [x], lambda x: x.expand(torch.broadcast_shapes(x.shape, asked)).contiguous())


@operator("SumTo")
def sum_to(r):
    shape = r.shape(1, 4)
    target = r.stretched(shape) if r.size is None else shape[1:]
    return Case("SumTo", {"shape": target}, [r.values(shape)], lambda x: x.sum_to_size(target).clone())


@operator("Tile")
def tile(r):
    shape = r.shape(0, 3)
    repeats = [r.int(1, 3, 2, 2, 2) for _ in range(r.int(0, 4, 2, 2, 2))]
    return Case("Tile", {"repeats": repeats}, [r.values(shape)], lambda x: torch.tile(x, repeats).clone())


@operator("Repeat")
def repeat(r):
    shape = r.shape(1, 4)
    attrs = {"repeats": r.int(1, 4, 2, 2, 2), "axis": r.axis(len(shape)), "flatten": r.flag(0.2)}
    axis = None if attrs["flatten"] else attrs["axis"]
    return Case("Repeat", attrs, [r.values(shape)], lambda x: x.repeat_interleave(attrs["repeats"], axis))


@operator("Split")
def split(r):
    shape = r.shape(1, 4)
    axis = r.axis(len(shape))
    if r.flag():
        sizes = [r.int(1, 5) for _ in range(r.int(1, 4))]
        shape[axis] = sum(sizes)
        return Case(
            "Split",
            {"axis": axis, "sizes": sizes},
            [r.values(shape)],
            lambda x: [y.clone() for y in x.split(sizes, axis)],
        )
    count = r.int(1, 4, 4, 4, 4)
    each = r.int(1, 4, 8, 64, 256)
    shape[axis] = (count - 1) * each + r.int(1, each, each, each, each)
    return (
        Case(
            "Split",
            {"axis": axis, "num_outputs": count},
            [r.values(shape)],
            lambda x: [y.clone() for y in x.split(each, axis)],
        )
        if math.ceil(shape[axis] / each) == count and math.ceil(shape[axis] / count) == each
        else Case("Split", {"axis": axis}, [r.values(shape)], lambda x: x.clone())
    )


@operator("SliceChannel")
def slice_channel(r):
    shape = r.shape(1, 4)
    axis, count, drop = r.axis(len(shape)), r.int(1, 4, 4, 4, 4), r.flag(0.3)
    shape[axis] = count * (1 if drop else r.int(1, 4, 8, 64, 256))

    def function(x):
        return [y.squeeze(axis).clone() if drop else y.clone() for y in x.chunk(count, axis)]

    return Case("SliceChannel", {"axis": axis, "num_outputs": count, "squeeze_axis": drop}, [r.values(shape)], function)


@operator("Concat")
def concat(r):
    shape = r.shape(1, 4)
    axis = r.axis(len(shape))
    inputs = []
    for _ in range(r.int(1, 5, 3, 3, 3)):
        shape[axis] = r.int(1, 6, shape[axis], shape[axis], shape[axis])
        inputs.append(r.values(shape))
    return Case("Concat", {"axis": axis}, inputs, lambda *x: torch.cat(x, axis))


@operator("Stack")
def stack(r):
    shape = r.shape(0, 3)
    axis = r.int(-len(shape) - 1, len(shape), 0, 0, 0)
    return Case(
        "Stack", {"axis": axis}, [r.values(shape) for _ in range(r.int(1, 4, 3, 3, 3))], lambda *x: torch.stack(x, axis)
    )


@operator("Flip")
def flip(r):
    shape = r.shape(1, 4)
    axes = r.axes(len(shape))
    return Case("Flip", {"axes": axes}, [r.values(shape)], lambda x: x.flip(axes))


@operator("Slice")
def slice_(r):
    shape = r.shape(1, 4)
    attrs = {"begin": [], "end": [], "step": [], "axes": []}
    kept = {}
    for axis in sorted(a % len(shape) for a in r.axes(len(shape))) if r.size is None else [0, 1]:
        extent, step = shape[axis], r.int(1, 3, 2, 2, 2) * (-1 if r.flag(0.3) else 1)
        begin, end = sorted(r.int(0, extent, x, y, y) for x, y in ((0, 0), (extent, extent)))
        end += end == begin
        begin, end = min(begin, extent - 1), min(end, extent)
        if step < 0:
            begin, end = end - 1, begin - 1
        kept[axis] = torch.arange(begin, end, step)
        begin -= extent if r.flag(0.3) else 0
        if end < 0:
            end = -(2**62)
        elif r.flag(0.3) and step > 0 and end == extent:
            end = 2**62
        attrs["axes"].append(axis - len(shape) if r.flag(0.3) else axis)
        for key, value in (("begin", begin), ("end", end), ("step", step)):
            attrs[key].append(value)

    def function(x):
        for axis, indices in kept.items():
            x = x.index_select(axis, indices)
        return x

    return Case("Slice", attrs, [r.values(shape)], function)


@operator("Crop")
def crop(r):
    shape = r.shape(1, 4)
    rank = r.int(1, len(shape), 2, 2, 2)
    size = [r.int(1, n, n // 2, n // 2, n // 2) for n in shape[-rank:]]
    offset = [r.int(0, n - s) for n, s in zip(shape[-rank:], size)]
    attrs = {"shape": size, "offset": offset}
    if r.flag(0.3):
        attrs, offset = {"shape": size, "center": True}, [(n - s) // 2 for n, s in zip(shape[-rank:], size)]
    return Case(
        "Crop", attrs, [r.values(shape)], lambda x: x[(..., *(slice(o, o + s) for o, s in zip(offset, size)))].clone()
    )


@operator("CenterCropPad")
def center_crop_pad(r):
    shape = r.shape(1, 4)
    size = [r.int(1, n + 4, n, n, n) for n in shape]

    def function(x):
        for axis, (n, s) in enumerate(zip(shape, size)):
            if s < n:
                x = x.narrow(axis, (n - s) // 2, s)
            else:
                before = (s - n) // 2
                x = F.pad(x, [0, 0] * (len(shape) - 1 - axis) + [before, s - n - before])
        return x.clone()

    return Case("CenterCropPad", {"shape": size}, [r.values(shape)], function)


@operator("PadWith, constant", "constant", "constant")
@operator("PadWith, reflect", "reflect", "reflect")
@operator("PadWith, edge", "edge", "replicate")
@operator("PadWith, wrap", "wrap", "circular")
def pad_with(r, mode, theirs):
    space = r.int(1, 3, 1, 1, 1)
    shape = [r.int(1, 3), r.int(1, 4)] + [r.int(3, 9) for _ in range(space)]
    if r.size is not None:
        space, shape = 2, [[1, 3, 28, 28], [4, 16, 56, 56], [8, 64, 56, 56]][r.size]
    most = 2 if mode in ("reflect", "wrap") else 4
    begin, end = ([r.int(-1 if mode == "constant" else 0, most, 1, 1, 1) for _ in range(space)] for _ in range(2))
    attrs = {"mode": mode, "begin": begin, "end": end, "axes": list(range(2, space + 2))}
    pads = [n for pair in zip(reversed(begin), reversed(end)) for n in pair]
    if mode != "constant":
        return Case("PadWith", attrs, [r.values(shape)], lambda x: F.pad(x, pads, mode=theirs).clone())
    attrs["value"] = r.number(-1, 1)
    return Case("PadWith", attrs, [r.values(shape)], lambda x: F.pad(x, pads, value=attrs["value"]).clone())


@operator("Pad")
def pad(r):
    shape = r.shape(1, 4)
    begin, end = ([r.int(0, 3, 1, 1, 1) for _ in shape] for _ in range(2))
    step = [r.int(1, 3, 1, 1, 1) for _ in shape]
    value = r.number(-1, 1)

    def function(x):
        y = x.new_full([b + (n - 1) * s + 1 + e for n, b, s, e in zip(shape, begin, step, end)], value)
        y[tuple(slice(b, b + (n - 1) * s + 1, s) for n, b, s in zip(shape, begin, step))] = x
        return y

    return Case("Pad", {"begin": begin, "end": end, "step": step, "value": value}, [r.values(shape)], function)


@operator("DepthToSpace, CRD", "DepthToSpace", "CRD")
@operator("DepthToSpace, DCR", "DepthToSpace", "DCR")
@operator("SpaceToDepth, CRD", "SpaceToDepth", "CRD")
@operator("SpaceToDepth, DCR", "SpaceToDepth", "DCR")
def depth(r, name, mode):
    block, channels = r.int(1, 3, 2, 2, 2), r.int(1, 5, 8, 16, 64)
    n, h, w = r.int(1, 3, 1, 4, 8), r.int(1, 6, 14, 28, 56), r.int(1, 6, 14, 28, 56)
    deep, wide = [n, channels * block * block, h, w], [n, channels, h * block, w * block]

    def moved(x, back):
        """Between (channels, block, block) and (block, block, channels)."""
        if mode == "CRD":
            return x
        split, order = (
            ([channels, block, block], (0, 2, 3, 1, 4, 5)) if back else ([block, block, channels], (0, 3, 1, 2, 4, 5))
        )
        return x.reshape([n] + split + [h, w]).permute(order).reshape(deep)

    if name == "DepthToSpace":
        return Case(
            name,
            {"block": block, "mode": mode},
            [r.values(deep)],
            lambda x: F.pixel_shuffle(moved(x, False), block).clone(),
        )
    return Case(
        name,
        {"block": block, "mode": mode},
        [r.values(wide)],
        lambda x: moved(F.pixel_unshuffle(x, block), True).clone(),
    )


@operator("Trilu")
def trilu(r):
    shape = r.shape(2, 4)
    attrs = {"k": r.int(-4, 4, 0, 0, 0), "upper": r.flag()}
    return Case(
        "Trilu", attrs, [r.values(shape)], lambda x: (torch.triu if attrs["upper"] else torch.tril)(x, attrs["k"])
    )


@operator("Cast")
def cast(r):
    target = r.choice("float64", "float32", "int32", "int64", "uint8", "bool")
    low = 0 if target == "uint8" else -9
    x = r.values(r.shape(), low, 9, (0.0,))
    return Case("Cast", {"dtype": target}, [x], lambda x: x.to(getattr(torch, target)))


# --- Made of numbers


@operator("Full")
def full(r):
    shape, value = r.shape(), r.number(-2, 2)
    dtype = "float64" if r.double else "float32"
    return Case(
        "Full", {"shape": shape, "value": value, "dtype": dtype}, [], lambda: torch.full(shape, value, dtype=r.dtype)
    )


@operator("FullLike")
def full_like(r):
    value = r.number(-2, 2)
    return Case("FullLike", {"value": value}, [r.values(r.shape())], lambda x: torch.full_like(x, value), heads=())


@operator("Eye")
def eye(r):
    rows, columns, diagonal = r.int(1, 9, 32, 256, 1024), r.int(1, 9, 32, 256, 1024), r.int(-3, 3, 0, 0, 0)
    attrs = {"rows": rows, "columns": columns, "diagonal": diagonal, "dtype": "float64" if r.double else "float32"}
    return Case("Eye", attrs, [], lambda: torch.ones([rows, columns], dtype=r.dtype).triu(diagonal).tril(diagonal))


@operator("EyeLike")
def eye_like(r):
    diagonal = r.int(-3, 3, 0, 0, 0)
    x = r.values([r.int(1, 9, 32, 256, 1024), r.int(1, 9, 32, 256, 1024)])
    return Case(
        "EyeLike", {"diagonal": diagonal}, [x], lambda x: torch.ones_like(x).triu(diagonal).tril(diagonal), heads=()
    )


@operator("Range")
def range_(r):
    begin, step, count = r.int(-9, 9), r.choice(1, 2, -1, 0.5, -0.25), r.int(0, 20, 1024, 65536, 1 << 21)
    end = begin + count * step
    attrs = {"begin": begin, "end": end, "step": step, "dtype": "float64" if r.double else "float32"}
    return Case("Range", attrs, [], lambda: torch.arange(begin, end, step, dtype=r.dtype))


@operator("ShapeArray")
def shape_array(r):
    begin, end = r.int(-4, 4), r.int(-4, 4, 4, 4, 4)
    return Case(
        "ShapeArray",
        {"begin": begin, "end": end},
        [r.values(r.shape())],
        lambda x: torch.tensor(list(x.shape)[begin:end], dtype=torch.int64),
    )


@operator("SizeArray")
def size_array(r):
    return Case("SizeArray", {}, [r.values(r.shape())], lambda x: torch.tensor(x.numel()))
