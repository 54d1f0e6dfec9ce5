"""Operators of single elements."""

import math

import torch
from draw import Case, Input, operator
from torch.nn import functional as F

# Least and greatest operand, and those at which something special happens.
UNARY = {
    "Negative": (torch.neg, -2, 2),
    "Abs": (torch.abs, -2, 2, 0.0),
    "Sign": (torch.sign, -2, 2, 0.0),
    "Square": (torch.square, -2, 2),
    "Sqrt": (torch.sqrt, 0.01, 4),
    "Reciprocal": (torch.reciprocal, 0.1, 4),
    "Exp": (torch.exp, -5, 5),
    "Expm1": (torch.expm1, -2, 2, 1e-6),
    "Log": (torch.log, 0.01, 4, 1.0),
    "Log1p": (torch.log1p, -0.9, 4, 1e-6),
    "Log2": (torch.log2, 0.01, 4, 2.0),
    "Log10": (torch.log10, 0.01, 4, 10.0),
    "Rsqrt": (torch.rsqrt, 0.01, 4),
    "Floor": (torch.floor, -5, 5, 0.0, -2.0, 3.0),
    "Ceil": (torch.ceil, -5, 5, 0.0, -2.0, 3.0),
    "Round": (torch.round, -5, 5, 0.5, 1.5, -2.5),
    "Trunc": (torch.trunc, -5, 5, 0.0, -2.0, 3.0),
    "Erf": (torch.erf, -4, 4),
    "Sin": (torch.sin, -9, 9),
    "Cos": (torch.cos, -9, 9),
    "Tan": (torch.tan, -1.4, 1.4),
    "Asin": (torch.asin, -0.95, 0.95),
    "Acos": (torch.acos, -0.95, 0.95),
    "Atan": (torch.atan, -9, 9),
    "Sinh": (torch.sinh, -3, 3),
    "Cosh": (torch.cosh, -3, 3),
    "Asinh": (torch.asinh, -9, 9, 1e-6),
    "Acosh": (torch.acosh, 1.05, 9),
    "Atanh": (torch.atanh, -0.95, 0.95),
    "Not": (torch.logical_not, -2, 2, 0.0),
    "IsNaN": (torch.isnan, -2, 2, math.nan, math.inf),
    "IsInf": (torch.isinf, -2, 2, math.nan, math.inf, -math.inf),
    "Activation, relu": (torch.relu, -2, 2, 0.0),
    "Activation, sigmoid": (torch.sigmoid, -20, 20),
    "Activation, tanh": (torch.tanh, -5, 5),
    "Activation, softrelu": (F.softplus, -20, 30),
    "Activation, softsign": (F.softsign, -5, 5),
}


def unary(r, name, function, low, high, *special):
    op, _, kind = name.partition(", ")
    x = r.values(r.shape(), low, high, special)
    if op == "Activation" and kind == "softrelu":  # F.softplus is linear from 20 on
        return Case(op, {"type": kind}, [x], lambda x: F.softplus(x, threshold=50))
    return Case(op, {"type": kind} if kind else {}, [x], function)


for name, row in UNARY.items():
    operator(name, name, *row)(unary)

BINARY = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Maximum": torch.maximum,
    "Minimum": torch.minimum,
    "Less": torch.lt,
    "LessEqual": torch.le,
    "Greater": torch.gt,
    "GreaterEqual": torch.ge,
    "Equal": torch.eq,
    "NotEqual": torch.ne,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
}
EQUAL_COUNTS = ("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual", "And", "Or", "Xor")


def operands(r, count=2, special=(), low=-2.0, high=2.0):
    shape = r.shape()
    shapes = [shape] + [r.stretched(shape) for _ in range(count - 1)]
    order = r.random.permutation(count)
    return [r.values(shapes[i], low, high, special) for i in order]


def binary(r, name, function):
    return Case(name, {}, operands(r, special=(0.0, 1.0) if name in EQUAL_COUNTS else ()), function)


for name, function in BINARY.items():
    operator(name, name, function)(binary)


@operator("Div")
def div(r):
    a, b = operands(r)
    return Case("Div", {}, [a, torch.where(b < 0, b - 0.3, b + 0.3)], torch.div)


@operator("Mod", "Mod", torch.remainder)
@operator("Fmod", "Fmod", torch.fmod)
def remainder(r, name, function):
    """Divisors that are exact, so that no type of element takes a quotient for whole that another does not."""
    a, b = operands(r, low=-9, high=9)
    b = torch.where(b < 0, b.round() - 0.5, b.round() + 0.5)
    return Case(name, {}, [a, b], function)


@operator("Power")
def power(r):
    a, b = operands(r, low=-3, high=3)
    if r.flag():  # whole powers of any number
        return Case("Power", {}, [a, Input(b.round(), grad=False)], torch.pow, bound=10)
    return Case("Power", {}, [a.abs() + 0.1, b], torch.pow)


@operator("Power, of zeros")
def power_of_zero(r):
    a, b = operands(r, special=(0.0,))
    return Case("Power", {}, [a.abs(), (b.abs() + 1) * (r.values(b.shape) > -1)], torch.pow)


@operator("PRelu")
def prelu(r):
    shape = r.shape(2, 4)
    slope = Input(r.values([shape[1]] + [1] * (len(shape) - 2)), role="parameter")
    return Case("PRelu", {}, [r.values(shape), slope], lambda x, a: F.prelu(x, a.flatten()))


@operator("Where")
def where(r):
    shape = r.shape()
    condition = r.truth(r.stretched(shape))
    return Case("Where", {}, [condition, r.values(shape), r.values(r.stretched(shape))], torch.where)


@operator("Clip")
def clip(r):
    low = r.number(-1.5, 0.5)
    high = low + r.number(0.1, 1.5)
    attrs = {"low": low, "high": high}
    return Case("Clip", attrs, [r.values(r.shape())], lambda x: x.clamp(low, high))


@operator("AddN", "AddN", lambda *x: sum(x))
@operator("MeanOf", "MeanOf", lambda *x: sum(x) / len(x))
@operator("Fold, Maximum", "FoldMaximum", lambda *x: torch.stack(torch.broadcast_tensors(*x)).amax(0))
@operator("Fold, Minimum", "FoldMinimum", lambda *x: torch.stack(torch.broadcast_tensors(*x)).amin(0))
@operator("Fold, Mul", "FoldMul", lambda *x: torch.stack(torch.broadcast_tensors(*x)).prod(0))
def several(r, name, function):
    count = r.int(1, 5, 3, 3, 3)
    if name == "AddN":
        shape = r.shape()
        return Case(name, {}, [r.values(shape) for _ in range(count)], function)
    inputs = operands(r, count)
    if name != "FoldMul":  # among equals, PyTorch shares the gradient, and here one of them has it all
        numbers = r.distinct([sum(x.numel() for x in inputs)])
        parts = numbers.split([x.numel() for x in inputs])
        inputs = [part.reshape(x.shape) for part, x in zip(parts, inputs)]
    return Case(name, {}, inputs, function, least=1.0)  # gradients of what is stretched are sums


# --- Curves: alpha and beta as their makers have them, drawn

CURVES = {
    "leaky_relu": (lambda x, a, b: F.leaky_relu(x, a), (-0.5, 0.9)),
    "selu": (lambda x, a, b: b * F.elu(x, a), (0.2, 2), (0.5, 2)),
    # The gradient of F.celu takes 1 / a in float32.
    "celu": (lambda x, a, b: torch.where(x > 0, x, a * torch.expm1(x.clamp(max=0) / a)), (0.2, 2)),
    "gelu": (lambda x, a, b: F.gelu(x),),
    "gelu_tanh": (lambda x, a, b: F.gelu(x, approximate="tanh"),),
    "swish": (lambda x, a, b: x * torch.sigmoid(a * x), (1, 2)),
    "hard_sigmoid": (lambda x, a, b: (a * x + b).clamp(0, 1), (0.1, 0.5), (0.3, 0.7)),
    "hard_swish": (lambda x, a, b: F.hardswish(x),),
    "hard_tanh": (lambda x, a, b: F.hardtanh(x, a, b), (-2, -0.5), (0.5, 2)),
    "thresholded_relu": (lambda x, a, b: F.threshold(x, a, 0), (0.1, 1)),
    "shrink": (lambda x, a, b: torch.where(x > a, x - b, torch.where(x < -a, x + b, 0 * x)), (0.1, 1), (-0.5, 0.5)),
    "mish": (lambda x, a, b: F.mish(x),),
    "smooth_l1": (lambda x, a, b: F.smooth_l1_loss(x, 0 * x, reduction="none", beta=a**-2), (0.5, 2)),
}


def curve(r, kind, function, *bounds):
    a, b = ([r.number(*bound) for bound in bounds] + [1.0, 1.0])[:2]
    if kind == "hard_swish":
        a, b = 1 / 6, 0.5
    attrs = {"type": kind, "alpha": a, "beta": b}
    return Case("Curve", attrs, [r.values(r.shape(), -5, 5)], lambda x: function(x, a, b))


for name, row in CURVES.items():
    operator(f"Curve, {name}", name, *row)(curve)


# --- Bits of integers, of 32 or 64


@operator("BitNot", "BitNot", torch.bitwise_not)
@operator("BitAnd", "BitAnd", torch.bitwise_and)
@operator("BitOr", "BitOr", torch.bitwise_or)
@operator("BitXor", "BitXor", torch.bitwise_xor)
@operator("ShiftLeft", "ShiftLeft", torch.bitwise_left_shift)
@operator("ShiftRight", "ShiftRight", torch.bitwise_right_shift)
def bits(r, name, function):
    dtype = torch.int64 if r.double else torch.int32
    shape = r.shape()
    low, high = (0, 30) if name.startswith("Shift") else (-(2**31), 2**31 - 1)
    inputs = [r.whole(shape, -(2**31), 2**31 - 1, dtype), r.whole(r.stretched(shape), low, high, dtype)]
    return Case(name, {}, inputs[: 1 if name == "BitNot" else 2], function)


@operator("Integers, Div", "Div", lambda a, b: torch.div(a, b, rounding_mode="trunc"))
@operator("Integers, Mod", "Mod", torch.remainder)
@operator("Integers, Fmod", "Fmod", torch.fmod)
@operator("Integers, Mul", "Mul", torch.mul)
@operator("Integers, Maximum", "Maximum", torch.maximum)
def integers(r, name, function):
    dtype = torch.int64 if r.double else torch.int32
    shape = r.shape()
    b = r.whole(r.stretched(shape), 1, 1000, dtype) * (1 - 2 * r.truth([]).to(dtype))
    return Case(name, {}, [r.whole(shape, -(10**6), 10**6, dtype), b], function)


@operator("QuantizeLinear")
def quantize(r):
    """Quotients that no rounding of the division can move past a half."""
    shape, several = r.shape(2, 4), r.flag()
    scale = 2.0 ** r.whole([shape[1]] if several else [], -3, 2)
    kind = r.choice("int8", "uint8")
    zero = r.whole(scale.shape, -5 if kind == "int8" else 0, 9, getattr(torch, kind))
    info = torch.iinfo(zero.dtype)

    def function(x, s, z):
        stretch = [-1] + [1] * (len(shape) - 2) if several else []
        q = torch.round(x / s.reshape(stretch)) + z.reshape(stretch).to(x.dtype)
        return q.clamp(info.min, info.max).to(z.dtype)

    inputs = [r.values(shape, -99, 99), Input(scale.to(r.dtype), grad=False), zero]
    return Case("QuantizeLinear", {"axis": 1, "dtype": kind}, inputs, function)


@operator("DequantizeLinear")
def dequantize(r):
    shape, several = r.shape(2, 4), r.flag()
    kind = r.choice(torch.int8, torch.uint8, torch.int32)
    scale = r.values([shape[1]] if several else [], 0.1, 2)
    zero = r.whole(scale.shape, 0, 9, kind)

    def function(q, s, z):
        stretch = [-1] + [1] * (len(shape) - 2) if several else []
        return (q.to(s.dtype) - z.reshape(stretch).to(s.dtype)) * s.reshape(stretch)

    inputs = [r.whole(shape, 0, 99, kind), Input(scale, grad=False), zero]
    return Case("DequantizeLinear", {"axis": 1}, inputs, function)
