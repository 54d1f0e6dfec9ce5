"""Times of JAX's training steps for gpu_check.sh, each step one program of XLA: as it is, with channels last, and with
all launches that XLA can put there in CUDA graphs. In float32 that is not rounded to TF32.
"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy
import peer
from jax_networks import Network, is_state, training_step

GRAPHS = {"XLA_FLAGS": "--xla_gpu_graph_min_graph_size=1 "
                       "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,WHILE,CONDITIONAL"}


class Shapes(dict):
    """Of a network's parameters and running statistics, by their names, with the zoo's settings."""

    def __init__(self, name):
        {"mlp": self.mlp, "lenet": self.lenet, "resnet20": self.resnet20, "resnet50": self.resnet50, "gpt": self.gpt,
         "lstm": self.lstm}[name]()

    def linear(self, name, inputs, outputs, bias=True):
        self[name + "_weight"] = (outputs, inputs)
        if bias:
            self[name + "_bias"] = (outputs,)

    def conv(self, name, inputs, filters, kernel, bias=False):
        self[name + "_weight"] = (filters, inputs, kernel, kernel)
        if bias:
            self[name + "_bias"] = (filters,)

    def norm(self, name, width, running=False):
        for what in ("gamma", "beta") + ("running_mean", "running_var") * running:
            self[f"{name}_{what}"] = (width,)

    def mlp(self):
        for name, inputs, outputs in (("fc1", 784, 128), ("fc2", 128, 64), ("fc3", 64, 10)):
            self.linear(name, inputs, outputs)

    def lenet(self):
        self.conv("conv1", 1, 20, 5, bias=True)
        self.conv("conv2", 20, 50, 5, bias=True)
        self.linear("fc1", 800, 500)
        self.linear("fc2", 500, 10)

    def stages(self, channels, stages, bottleneck, classes):
        """`stages`: (units, filters)."""
        self.conv("conv0", 3, channels, 7 if bottleneck else 3)
        self.norm("bn0", channels, running=True)
        for stage, (units, filters) in enumerate(stages, 1):
            inner = filters // 4
            layers = [(inner, 1), (inner, 3), (filters, 1)] if bottleneck else [(filters, 3), (filters, 3)]
            for unit in range(1, units + 1):
                name, inputs = f"stage{stage}_unit{unit}", channels
                for i, (outputs, kernel) in enumerate(layers, 1):
                    self.conv(f"{name}_conv{i}", inputs, outputs, kernel)
                    self.norm(f"{name}_bn{i}", outputs, running=True)
                    inputs = outputs
                if channels != filters:
                    self.conv(name + "_conv1sc", channels, filters, 1)
                    self.norm(name + "_sc", filters, running=True)
                channels = filters
        self.linear("fc1", channels, classes)

    def resnet20(self):
        self.stages(16, [(3, 16), (3, 32), (3, 64)], False, 10)

    def resnet50(self):
        self.stages(64, [(3, 256), (4, 512), (6, 1024), (3, 2048)], True, 1000)

    def gpt(self, classes=256, layers=4, width=128, context=64):
        self["tokens_weight"], self["positions_weight"] = (classes, width), (context, width)
        for i in range(layers):
            block = f"block{i}_"
            self.norm(block + "norm1", width)
            for part in ("query", "key", "value", "output"):
                self.linear(f"{block}attention_{part}", width, width)
            self.norm(block + "norm2", width)
            self.linear(block + "fc1", width, 4 * width)
            self.linear(block + "fc2", 4 * width, width)
        self.norm("norm", width)
        self.linear("head", width, classes, bias=False)

    def lstm(self, classes=256, layers=2, width=256):
        self["tokens_weight"] = (classes, width)
        for layer in range(layers):
            name = f"lstm_l{layer}_"
            self.linear(name + "input", width, 4 * width)
            self[name + "weight"] = (4 * width, width)
        self.linear("head", width, classes)


def draw(shapes, seed):
    """Parameters as they are at the beginning of a training, and running statistics."""
    random = numpy.random.default_rng(seed)
    weights, states = {}, {}
    for name, shape in shapes.items():
        kind = name.rsplit("_", 1)[1]
        if kind == "weight":
            value = random.uniform(-1, 1, shape) / numpy.sqrt(numpy.prod(shape[1:]))
        else:
            value = numpy.full(shape, 1 if kind in ("gamma", "var") else 0)
        (states if is_state(name) else weights)[name] = jnp.asarray(value, jnp.float32)
    return weights, states


def make_step(name, batch, way):
    network = Network(name, {}, training=True, layout="NHWC" if way == "channels-last" else "NCHW")
    weights, states = draw(Shapes(name), 1)
    changes = {name: jnp.zeros_like(weight) for name, weight in weights.items()}
    data, label = (jnp.asarray(value) for value in peer.draw(name, batch, numpy.random.default_rng(1)))
    compiled = training_step(network, peer.RATE, peer.MOMENTUM)
    now = [weights, states, changes]

    def step():
        *now[:], _ = jax.block_until_ready(compiled(*now, data, label))

    return step


def main():
    options = peer.options(__doc__)
    on_gpu = options.device.startswith("cuda")
    jax.config.update("jax_platforms", "cuda" if on_gpu else "cpu")
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        jax.devices()
    except Exception as e:  # of whatever kind its plug-ins raise
        sys.exit(f"JAX sees no GPU: {(str(e).splitlines() or [type(e).__name__])[0]}")
    ways = ["compiled"] + ["channels-last"] * peer.is_of_images(options.model)
    peer.report(f"JAX {jax.__version__}", [options.way] if options.way else ways, options, make_step)
    if on_gpu and not options.way:  # XLA reads its flags when it begins
        os.execve(sys.executable, [sys.executable, *sys.argv, "--way", "graphs"], {**os.environ, **GRAPHS})


main()
