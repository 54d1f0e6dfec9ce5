"""Times of PyTorch's training steps on the networks that Bindery's benchmark has, for gpu_check.sh: a line of JSON for
each way to run them (eager, eager with channels last, compiled with the overhead of launches reduced), or one that says
why it does not run. In float32, by the same optimizer; TF32 is off, as Bindery has none.
"""

import argparse
import json
import statistics
import sys
import time

import networks
import torch
from torch import nn

SHAPES = {"mlp": (1, 28, 28), "lenet": (1, 28, 28), "resnet20": (3, 32, 32), "resnet50": (3, 224, 224)}
CLASSES = {"resnet50": 1000}
CHARACTERS, LENGTH = 256, 64  # of a text, in a window


def draw(name, batch, device):
    if name in SHAPES:
        data = torch.rand(batch, *SHAPES[name], device=device)
        return data, torch.randint(CLASSES.get(name, 10), (batch,), device=device)
    return tuple(torch.randint(CHARACTERS, (batch, LENGTH), device=device) for _ in range(2))


def measure(name, batch, device, steps, way):
    torch.manual_seed(1)
    network, (data, labels) = networks.make(name).to(device).train(), draw(name, batch, device)
    if way == "channels-last":
        network, data = network.to(memory_format=torch.channels_last), data.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def loss_of(data, labels):
        return nn.functional.cross_entropy(network(data).flatten(0, -2), labels.flatten())

    if way == "compiled":
        loss_of = torch.compile(loss_of, mode="reduce-overhead")
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def step():
        optimizer.zero_grad()
        loss_of(data, labels).backward()
        optimizer.step()

    for _ in range(5):
        step()
    wait()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        wait()
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    device = options.device
    if device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    images = options.model in SHAPES and options.model != "mlp"
    for way in ["eager"] + ["channels-last"] * images + ["compiled"]:
        answer = {"peer": f"PyTorch {torch.__version__}, {way}", "model": options.model, "batch": options.batch_size}
        try:
            answer["step_median_ms"] = measure(options.model, options.batch_size, device, options.steps, way)
        except Exception as e:  # a way that is not there is no reason to leave out the others
            answer["error"] = str(e).splitlines()[0][:200] if str(e) else type(e).__name__
        print(json.dumps(answer), flush=True)


main()
