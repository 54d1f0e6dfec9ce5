"""Times of PyTorch's training steps for gpu_check.sh: eager, compiled with the overhead of launches reduced, and
eager with channels last. In float32; TF32 is off.
"""

import sys

import networks
import numpy
import peer
import torch
from torch import nn


def make_step(name, batch, way, device):
    torch.manual_seed(1)
    network = networks.make(name).to(device).train()
    data, label = (torch.from_numpy(value).to(device) for value in peer.draw(name, batch, numpy.random.default_rng(1)))
    label = label.long()
    if way == "channels-last":
        network, data = network.to(memory_format=torch.channels_last), data.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=peer.RATE, momentum=peer.MOMENTUM)

    def loss_of(data, label):
        return nn.functional.cross_entropy(network(data).flatten(0, -2), label.flatten())

    if way == "compiled":
        loss_of = torch.compile(loss_of, mode="reduce-overhead")
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def step():
        optimizer.zero_grad()
        loss_of(data, label).backward()
        optimizer.step()
        wait()

    return step


def main():
    options = peer.options(__doc__)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    # The compiler may need all of the time; eager first, so that there is something to compare with.
    ways = ["eager", "compiled"] + ["channels-last"] * peer.is_of_images(options.model)
    peer.report(f"PyTorch {torch.__version__}", [options.way] if options.way else ways, options,
                lambda name, batch, way: make_step(name, batch, way, options.device))


main()
