"""Runs operators with Bindery and with PyTorch on the same random arrays, and compares outputs and gradients.

Started by operators.sh. Every case is run in float32 and in float64: bound for prediction, for training, and for
training with gradients that are added to what is there. The truth is what PyTorch computes in float64; an error is the
largest difference as a part of the largest element. The exit status is 0 if all errors are within the bounds, or not
far above PyTorch's own in the same type.
"""

import argparse
import sys
import time

import draw
import torch
from sides import Bindery, PyTorch

# These register the operators.
import attention  # noqa: F401
import indexing  # noqa: F401
import layers  # noqa: F401
import losses  # noqa: F401
import maths  # noqa: F401
import norms  # noqa: F401
import order  # noqa: F401
import resizing  # noqa: F401
import shapes  # noqa: F401

DTYPES = {"float32": torch.float32, "float64": torch.float64}
BOUNDS = {"float32": 1e-5, "float64": 1e-12}
OWN = 4  # times PyTorch's own error is good enough
MOST_OWN = 1e-3  # unless that is above this
SIZES = ("small", "medium", "large")


def make(options, name, index, dtype, size=None):
    """The case of a number, with all names, and where its gradients of heads come from."""
    r = draw.Draw(options.seed, name, index, DTYPES[dtype], size)
    case = draw.CASES[name](r)
    inputs = [i if isinstance(i, draw.Input) else draw.Input(i) for i in case.inputs]
    for place, i in enumerate(inputs):
        grad = i.grad and i.role != "state" and i.value.is_floating_point()
        inputs[place] = i._replace(name=i.name or f"x{place}", grad=grad)
    return case._replace(inputs=inputs), r


def error(found, expected, least):
    """The largest difference as a part of the largest element; infinite where shapes or kinds of elements differ."""
    infinity = float("inf")
    if found is None or found.shape != expected.shape or found.is_floating_point() != expected.is_floating_point():
        return infinity
    if not expected.is_floating_point():
        return 0.0 if torch.equal(found.to(expected.dtype), expected) else infinity
    found, expected = found.double(), expected.double()
    finite = expected.isfinite()
    if not torch.equal(found[~finite].nan_to_num(nan=0.5), expected[~finite].nan_to_num(nan=0.5)):
        return infinity
    if not finite.any():
        return 0.0
    difference = (found[finite] - expected[finite]).abs().max().item()
    return difference / max(expected[finite].abs().max().item(), least) if difference == difference else infinity


def worst(found, expected, least):
    """Of all arrays: an error and where it is."""
    every = [
        (error(found[group].get(name), value, least), f"{group} {name}")
        for group, arrays in expected.items()
        for name, value in arrays.items()
    ]
    return max(every, default=(0.0, ""), key=lambda pair: pair[0])


def run(bindery, case, r, dtype):
    """Bindery's error, PyTorch's, and what is wrong, if something is."""
    try:
        truth = PyTorch(case, torch.float64)
        gradients = [r.values(y.shape) for y in truth.outputs] if truth.heads else []
        truth.backward(gradients)
        own = PyTorch(case, DTYPES[dtype], truth.heads)
        if own.heads:
            own.backward(gradients)
    except (RuntimeError, ValueError, IndexError, TypeError) as e:
        return 0.0, 0.0, f"PyTorch: {e}"
    found = bindery.run(case, truth.heads, gradients)
    if isinstance(found, str):
        return 0.0, 0.0, found
    (mine, place), (its, _) = (worst(groups, truth.groups, case.least) for groups in (found, own.groups))
    good = mine <= max(BOUNDS[dtype] * case.bound, OWN * its if its < MOST_OWN else 0.0)
    return mine, its, None if good else f"{place}: error {mine:.1e}, PyTorch's {its:.1e}"


def compare(options, bindery, name, dtype):
    """Prints failing cases; returns their number and the worst errors, Bindery's and PyTorch's."""
    failed, worst_mine, worst_its = 0, 0.0, 0.0
    for index in options.case or range(options.cases):
        case, r = make(options, name, index, dtype)
        mine, its, problem = run(bindery, case, r, dtype)
        worst_mine, worst_its = max(worst_mine, mine), max(worst_its, its)
        failed += problem is not None
        if problem is not None and failed <= options.show:
            shapes_of = ", ".join(str(tuple(i.value.shape)) for i in case.inputs)
            print(
                f"  {problem}\n    {case.op} {case.attrs} of {shapes_of}\n    to repeat: operators.sh --only '{name}' "
                f"--seed {options.seed} --case {index} --dtype {dtype}",
                flush=True,
            )
    return failed, worst_mine, worst_its


def compare_all(options, bindery, names):
    good = True
    for name in names:
        words = []
        for dtype in options.dtype.split(","):
            failed, mine, its = compare(options, bindery, name, dtype)
            words.append(f"{dtype} {mine:.1e} (PyTorch {its:.1e})" + f", {failed} FAIL" * (failed > 0))
            good &= failed == 0
        print(f"{name:28} {len(options.case or range(options.cases))} cases  {'  '.join(words)}", flush=True)
    print("Bindery and PyTorch agree." if good else "Bindery and PyTorch DIFFER.")
    return good


def seconds_of(work, budget):
    """The median of runs that take about the time given."""
    work()
    times, start = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < budget:
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]


def measure(options, bindery, name, size):
    """Of predicting, and of a step of training: (what, Bindery's time as a part of PyTorch's, itself in seconds)."""
    case, r = make(options, name, 0, "float32", size)
    pytorch = PyTorch(case, torch.float32)
    gradients = [r.values(y.shape) for y in pytorch.outputs] if pytorch.heads else []

    def step():
        pytorch.forward()
        pytorch.backward(gradients)

    theirs = {"forward": seconds_of(pytorch.predict, options.seconds)}
    if pytorch.heads:
        theirs["step"] = seconds_of(step, options.seconds)
    time.sleep(0.05)  # until PyTorch's threads, which wait for more work on the cores, have gone to sleep
    found = bindery.run(case, pytorch.heads, gradients, options.seconds)
    if isinstance(found, str):
        raise SystemExit(f"{name}: {found}")
    return [(what, found[what] / theirs[what], found[what]) for what in theirs]


def measure_all(options, bindery, names):
    print(f"{torch.get_num_threads()} threads; Bindery's time as a part of PyTorch's, and itself")
    slower = []
    for name in names:
        for size, word in enumerate(SIZES):
            found = measure(options, bindery, name, size)
            times = "".join(f"  {what} {ratio:5.2f} ({seconds * 1e6:8.1f} us)" for what, ratio, seconds in found)
            print(f"{name:28} {word:6} {times}", flush=True)
            slower += [(ratio, f"{name}: {word}, {what}") for what, ratio, _ in found if ratio > options.above]
    print(f"above {options.above}: {len(slower)} of {2 * len(names) * len(SIZES)} at most")
    for ratio, what in sorted(slower, reverse=True):
        print(f"  {ratio:6.2f}  {what}")


def main():
    parser = argparse.ArgumentParser(prog="operators.sh", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", help="an operator, or one kind of it; may be given several times")
    parser.add_argument("--cases", type=int, default=200, help="of each operator and type; default: %(default)s")
    parser.add_argument("--case", type=int, action="append", help="the number of a case, in the place of all")
    parser.add_argument("--dtype", default="float32,float64", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn; default: %(default)s")
    parser.add_argument("--show", type=int, default=3, help="so many failing cases of each; default: %(default)s")
    parser.add_argument("--threads", type=int, default=0, help="of each side; default: the cores")
    parser.add_argument("--time", action="store_true", help=f"measure instead, at sizes {', '.join(SIZES)}")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each measurement; default: %(default)s")
    parser.add_argument("--above", type=float, default=1.1, help="with --time: name these ratios; default: %(default)s")
    parser.add_argument("--list", action="store_true", help="print what can be compared")
    options = parser.parse_args()
    only = options.only or []
    names = [name for name in draw.CASES if not only or any(name == o or name.startswith(o + ",") for o in only)]
    if options.list or not names:
        print("\n".join(draw.CASES))
        return 0 if options.list else 2
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, seed {options.seed}")
    bindery = Bindery(options.program, options.threads)
    if options.time:
        measure_all(options, bindery, names)
        return 0
    return 0 if compare_all(options, bindery, names) else 1


if __name__ == "__main__":
    sys.exit(main())
