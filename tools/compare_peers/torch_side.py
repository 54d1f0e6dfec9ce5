"""PyTorch's side of compare.sh: the protocol of protocol.py. Settings:

    way        eager, traced (frozen and fused by torch.jit), compiled, frozen (compiled with parameters as constants)
    layout     first, or last: channels-last
    wrapper    python, or cpp: what calls the kernels of a compiled network
    kernels    chosen by a table, or tuned: measured when compiled
    optimizer  loop, foreach, fused or compiled
"""

import os
import sys

import numpy
import torch
from torch import nn

import protocol

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "compare_pytorch"))
import networks  # noqa: E402


class BatchNorm(nn.BatchNorm2d):
    """PyTorch's alone: that of networks.py also counts, for a comparison of running variances."""

    def biased_var(self):
        return self.running_var


networks.BatchNorm = BatchNorm


def load(network, values):
    """All parameters and, where predictions need them, running statistics; none may be left over."""
    mine = networks.parameters(network)
    mine.update({name: value for name, value in networks.running_statistics(network).items() if name in values})
    if mine.keys() != values.keys():
        raise ValueError(f"values that differ: {sorted(mine.keys() ^ values.keys())}")
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(torch.from_numpy(values[name]))


class Side:
    def __init__(self, options):
        torch.set_num_threads(options.threads)
        torch.set_flush_denormal(True)  # momentum of units that are never on ends there
        name, settings = protocol.model_and_settings(options.model)
        way = options.set.get("way", "eager")
        layout = torch.channels_last if options.set.get("layout") == "last" else torch.contiguous_format
        batch = numpy.load(os.path.join(options.folder, "batch.npz"))
        self.data, self.label = torch.from_numpy(batch["data"]), torch.from_numpy(batch["label"]).long()
        if self.data.dim() == 2:  # class numbers
            self.data = self.data.long()
        elif self.data.dim() == 4:
            self.data = self.data.contiguous(memory_format=layout)
        self.network = networks.make(name, **settings)
        load(self.network, numpy.load(os.path.join(options.folder, "initial.npz")))
        self.network = self.network.to(memory_format=layout)
        if way in ("compiled", "frozen"):
            from torch._inductor import config
            config.cpp_wrapper = options.set.get("wrapper") == "cpp"
            config.max_autotune = options.set.get("kernels") == "tuned"
            config.freezing = way == "frozen"
        self._prepare(options, way)

    def _cross_entropy(self, scores):
        return nn.functional.cross_entropy(scores.flatten(0, -2), self.label.flatten())

    def run(self, steps):
        return protocol.timed(self.step, steps)


class Training(Side):
    def _prepare(self, options, way):
        self.network.train()
        self.loss_of = self._loss_of if way == "eager" else torch.compile(self._loss_of)
        how = options.set.get("optimizer", "loop")
        flags = {"foreach": how == "foreach", "fused": how == "fused"}
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(parameters, options.rate, options.momentum, **flags)
        self.update = torch.compile(optimizer.step) if how == "compiled" else optimizer.step
        self.clear = optimizer.zero_grad

    def _loss_of(self, data):
        return self._cross_entropy(self.network(data))

    def step(self):
        loss = self.loss_of(self.data)
        loss.backward()
        self.update()
        self.clear()
        return loss

    def losses(self, steps):
        return [self.step().item() for _ in range(steps)]


class Prediction(Side):
    def _prepare(self, options, way):
        self.network.eval()
        for parameter in self.network.parameters():
            parameter.requires_grad_(False)
        if way == "traced":
            with torch.no_grad():
                traced = torch.jit.freeze(torch.jit.trace(self.network, self.data))
                self.network = torch.jit.optimize_for_inference(traced)
        elif way != "eager":
            self.network = torch.compile(self.network)
        # A frozen network needs no_grad: inference_mode has no constants to fold.
        self.mode = torch.no_grad if way == "frozen" else torch.inference_mode

    def step(self):
        with self.mode():
            return self.network(self.data)

    def losses(self, steps):
        return [self._cross_entropy(self.step().float()).item() for _ in range(steps)]


protocol.serve(f"PyTorch {torch.__version__.split('+')[0]}",
               lambda options: (Training if options.phase == "train" else Prediction)(options))
