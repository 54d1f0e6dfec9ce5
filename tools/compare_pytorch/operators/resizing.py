"""Resizing."""

import math

from draw import Case, operator
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
    attrs = dict(attrs)
    space = 2 if theirs == "bicubic" or attrs.get("antialias") else r.int(1, 3, 2, 2, 2)
    mode = ("linear", "bilinear", "trilinear")[space - 1] if theirs == "linear" else theirs
    shape = [r.int(1, 3), r.int(1, 4)] + [r.int(1, 9) for _ in range(space)]
    if r.size is not None:
        shape = [[1, 3, 28, 28], [4, 16, 28, 28], [8, 64, 28, 28]][r.size]
    attrs["axes"] = list(range(2, space + 2))
    corners = {"align_corners": "corners" in attrs["coordinates"]} if theirs in ("linear", "bicubic") else {}
    more = {"antialias": True} if attrs.get("antialias") else {}
    if r.flag() or r.size is not None:
        attrs["scales"] = [r.choice(2.0, 0.5, 1.5, 3.0, 0.75) for _ in range(space)]
        attrs["scales"] = [s if math.floor(n * s) > 0 else 1.0 for n, s in zip(shape[2:], attrs["scales"])]
        return Case(
            "Resize",
            attrs,
            [r.values(shape)],
            lambda x: F.interpolate(x, scale_factor=attrs["scales"], mode=mode, **corners, **more),
        )
    attrs["sizes"] = [r.int(1, 14) for _ in range(space)]
    return Case(
        "Resize",
        attrs,
        [r.values(shape)],
        lambda x: F.interpolate(x, size=attrs["sizes"], mode=mode, **corners, **more),
    )


for name, row in RESIZING.items():
    operator(f"Resize, {name}", *row)(resize)
