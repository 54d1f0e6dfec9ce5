"""What a comparison is made of: cases of an operator, drawn at random or of one of three sizes."""

import zlib
from typing import Any, Callable, NamedTuple

import numpy
import torch


class Input(NamedTuple):
    value: torch.Tensor
    grad: bool = True  # asked for only if the elements are floating point numbers
    role: str = "data"  # or "parameter", or "state"
    layout: str = ""  # "N--": where the batch is; default: nowhere
    name: str = ""  # of a variable that the operator makes itself, "op_weight"


class Case(NamedTuple):
    """An operator with attributes, on inputs, and what PyTorch has for it."""

    op: str
    attrs: dict
    inputs: list  # of Input, or of tensors
    function: Callable  # of the inputs' values -> a tensor or several
    heads: Any = None  # outputs that gradients are taken of; default: those of floating point numbers
    predict: Callable | None = None  # in the place of `function` when nothing is trained
    loss: Callable | None = None  # a number whose gradients are expected: the head is a loss
    state: Callable | None = None  # the states after a step
    bound: float = 1.0  # factor of the usual bounds
    least: float = 1e-3  # what errors are parts of where all elements are smaller: as large as terms that cancel


class Draw:
    """Where cases get their extents, choices and elements from: `size` None for random ones, 0, 1, 2 for measuring."""

    def __init__(self, seed, name, index, dtype, size=None):
        self.random = numpy.random.default_rng([seed, zlib.crc32(name.encode()), index])
        self.dtype, self.size = dtype, size
        self.double = dtype == torch.float64

    # --- of numbers

    def int(self, low, high, *sizes):
        if self.size is not None:
            return sizes[self.size] if sizes else low
        return int(self.random.integers(low, high + 1))

    def flag(self, probability=0.5):
        return self.size is None and bool(self.random.random() < probability)

    def choice(self, *options):
        return options[0 if self.size is not None else int(self.random.integers(len(options)))]

    def number(self, low, high):
        return low if self.size is not None else float(self.random.uniform(low, high))

    def axis(self, rank):
        """Counted from either end; the last one when measuring."""
        return self.int(-rank, rank - 1, -1, -1, -1)

    def axes(self, rank, least=1):
        """Some of them, in any order."""
        chosen = [int(a) for a in self.random.permutation(rank)[: self.int(min(least, rank), rank)]]
        return [a - rank if self.flag(0.3) else a for a in chosen]

    # --- of shapes

    def shape(self, low=0, high=4):
        if self.size is not None:
            return [1] * (low - 2) + [[32, 32], [256, 256], [2048, 1024]][self.size]
        rank = self.int(low, high)
        if self.flag(0.05) and rank > 0:  # enough for several threads
            return [
                1 if self.flag(0.1) else int(round((30000 * self.number(0.5, 2)) ** (1 / rank))) for _ in range(rank)
            ]
        return [1 if self.flag(0.15) else self.int(1, [0, 70, 17, 9, 6, 4][rank]) for _ in range(rank)]

    def stretched(self, shape):
        """What stretches to the shape."""
        if self.size is not None:
            return shape
        some = [1 if self.flag(0.25) else extent for extent in shape]
        return some[self.int(0, len(some)) :] if self.flag(0.3) else some

    # --- of elements

    def values(self, shape, low=-2.0, high=2.0, special=()):
        """Uniform; `special` ones stand at every sixth place or so."""
        values = self.random.uniform(low, high, shape)
        if special:
            values = numpy.where(self.random.random(shape) < 1 / 6, self.random.choice(special, shape), values)
        return torch.tensor(values, dtype=self.dtype)

    def distinct(self, shape):
        """No two alike, far enough apart, in random order."""
        count = int(numpy.prod(shape))
        return torch.tensor(((self.random.permutation(count) + 0.5) / count * 4 - 2).reshape(shape), dtype=self.dtype)

    def whole(self, shape, low, high, dtype=torch.int64):
        return torch.tensor(self.random.integers(low, high + 1, shape), dtype=dtype)

    def truth(self, shape):
        return torch.tensor(self.random.random(shape) < 0.5)

    def weight(self, shape):
        fan = max(1, int(numpy.prod(shape[1:])))
        return Input(torch.tensor(self.random.normal(0, fan**-0.5, shape), dtype=self.dtype), role="parameter")

    def parameter(self, shape, low=-1.0, high=1.0):
        return Input(self.values(shape, low, high), role="parameter")


CASES: dict[str, Callable] = {}


def operator(name, *arguments):
    """Registers draw(r, *arguments) -> Case as `name`: an operator, or a kind of it behind a comma."""

    def register(draw):
        assert name not in CASES, name
        CASES[name] = lambda r: draw(r, *arguments)
        return draw

    return register


def batched(value, axis=0, grad=True):
    """Data whose samples are along an axis."""
    layout = "".join("N" if i == axis else "-" for i in range(value.dim()))
    return Input(value, grad=grad, layout=layout)


def fixed(value):
    """Data without a gradient."""
    return Input(value, grad=False)
