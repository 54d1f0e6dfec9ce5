"""Resizing, and sampling at the places of a grid."""

import math

from draw import Case, batched, operator
from torch.nn import functional as F

RESIZING = {
    "nearest": ("nearest", {"mode": "nearest", "coordinates": "asymmetric", "nearest": "floor"}),
    "nearest, exact": (
        "nearest-exact",
        {"mode": "nearest", "coordinates": "half_pixel", "nearest": "round_prefer_ceil"},
    ),
    "linear": ("linear", {"mode": "linear", "coordinates": "half_pixel"}),
    "linear, corners": ("linear", {"mode": "linear", "coordinates": "align_corners"}),
    "cubic": ("bicubic", {"mode": "cubic", "coordinates": "half_pixel"}),
    "cubic, corners": ("bicubic", {"mode": "cubic", "coordinates": "align_corners"}),
    "linear, antialias": (
        "linear",
        {"mode": "linear", "coordinates": "half_pixel", "antialias": True, "exclude_outside": True},
    ),
    "cubic, antialias": (
        "bicubic",
        {
            "mode": "cubic",
            "coordinates": "half_pixel",
            "antialias": True,
            "exclude_outside": True,
            "cubic_coefficient": -0.5,
        },
    ),
}


def resize(r, theirs, attrs):
    """With scales, corners are those of a scaled extent in ONNX, but of the output's whole one in PyTorch."""
    attrs, antialias = dict(attrs), attrs.get("antialias", False)
    space = 2 if theirs == "bicubic" or antialias else r.int(1, 3, 2, 2, 2)
    mode = ("linear", "bilinear", "trilinear")[space - 1] if theirs == "linear" else theirs
    # PyTorch makes all rows the first one where it filters to a single column.
    least = 2 if antialias else 1
    extents = [r.int(least, 9, 28, 28, 28) for _ in range(space)]
    shape = [r.int(1, 3, 1, 4, 8), r.int(1, 4, 3, 16, 64)] + extents
    attrs["axes"] = list(range(2, space + 2))
    more = {"antialias": True} if antialias else {}
    if theirs in ("linear", "bicubic"):
        more["align_corners"] = "corners" in attrs["coordinates"]
    if more.get("align_corners") or r.flag():
        more["size"] = attrs["sizes"] = [r.int(least, 14, 56, 56, 56) for _ in range(space)]
    else:
        scales = [r.choice(2.0, 0.5, 1.5, 3.0, 0.75) for _ in range(space)]
        attrs["scales"] = [s if math.floor(n * s) >= least else 1.0 for n, s in zip(extents, scales)]
        more["scale_factor"] = attrs["scales"]
    return Case("Resize", attrs, [r.values(shape)], lambda x: F.interpolate(x, mode=mode, **more))


for name, row in RESIZING.items():
    operator(f"Resize, {name}", *row)(resize)


def grid_sample(r, mode, theirs, padding):
    space = 2 if mode == "cubic" else r.int(2, 3, 2, 2, 2)
    samples = r.int(1, 3, 1, 4, 8)
    # Cubic, all that reflects a single element has slopes that are 0 but for what rounding leaves of large terms.
    least = 2 if mode == "cubic" else 1
    data = [samples, r.int(1, 4, 3, 16, 64)] + [r.int(least, 9, 28, 28, 56) for _ in range(space)]
    grid = [samples] + [r.int(1, 9, 28, 28, 56) for _ in range(space)] + [space]
    corners = r.flag()
    attrs = {"mode": mode, "padding": padding, "align_corners": corners}
    return Case(
        "GridSample",
        attrs,
        [batched(r.values(data)), batched(r.values(grid, -1.5, 1.5))],
        lambda x, g: F.grid_sample(x, g, mode=theirs, padding_mode=padding, align_corners=corners),
    )


for mode, theirs in {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}.items():
    for padding in ("zeros", "border", "reflection"):
        operator(f"GridSample, {mode}, {padding}", mode, theirs, padding)(grid_sample)


@operator("AffineGrid")
def affine_grid(r):
    space, samples, corners = r.int(2, 3, 2, 2, 2), r.int(1, 3, 1, 4, 8), r.flag()
    sizes = [r.int(1, 9, 28, 28, 56) for _ in range(space)]
    return Case(
        "AffineGrid",
        {"sizes": sizes, "align_corners": corners},
        [batched(r.values([samples, space, space + 1]))],
        lambda theta: F.affine_grid(theta, [samples, 1] + sizes, align_corners=corners),
    )
