"""What the peers of gpu_check.sh share: what they train on, and how a step is timed. A peer prints a line of JSON for
each way to run a network's training steps, or one that says why it does not run.
"""

import argparse
import json
import statistics
import time

import numpy

RATE, MOMENTUM = 0.01, 0.9
SHAPES = {"mlp": (1, 28, 28), "lenet": (1, 28, 28), "resnet20": (3, 32, 32), "resnet50": (3, 224, 224)}
CLASSES = {"resnet50": 1000}
CHARACTERS, LENGTH = 256, 64  # of a text, in a window


def is_of_images(model):
    return model in SHAPES and model != "mlp"


def draw(model, batch, random):
    """Arrays: data and labels."""
    if model in SHAPES:
        data = random.random((batch, *SHAPES[model]), numpy.float32)
        return data, random.integers(CLASSES.get(model, 10), size=batch, dtype=numpy.int32)
    return tuple(random.integers(CHARACTERS, size=(batch, LENGTH), dtype=numpy.int32) for _ in range(2))


def options(about):
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--way", help="this one alone")
    return parser.parse_args()


def report(name, ways, options, make_step):
    """make_step(model, batch size, way) gives a function that does a step and waits for it."""
    for way in ways:
        answer = {"peer": f"{name}, {way}", "model": options.model, "batch": options.batch_size}
        try:
            answer["step_median_ms"] = median_ms(make_step(options.model, options.batch_size, way), options.steps)
        except Exception as e:  # a way that is not there is no reason to leave out the others
            answer["error"] = str(e).splitlines()[0][:200] if str(e) else type(e).__name__
        print(json.dumps(answer), flush=True)


def median_ms(step, steps):
    for _ in range(5):
        step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)
