"""JAX's side of compare.sh: the networks of train/zoo.h as functions, each step one program of XLA that takes over its
arguments' memory, by the protocol of protocol.py. Settings:

    layout     NCHW or NHWC, of convolutions
    unroll     steps of a recurrence in one turn of its loop
    attention  plain, or jax: jax.nn.dot_product_attention
    values     of predictions: arguments, or constant: the compiler may compute with them
"""

import os

import jax
import jax.numpy as jnp
import numpy
from jax import lax

import protocol


class Network:
    """`values` are Bindery's, by its names; `setting` what is searched."""

    def __init__(self, options, training):
        self.name, self.model = protocol.model_and_settings(options.model)
        self.training = training
        self.layout = options.set.get("layout", "NCHW")
        self.unroll = int(options.set.get("unroll", 1))
        self.attention = options.set.get("attention", "plain")
        self.channel = self.layout.index("C")

    def __call__(self, values, data):
        """Scores, whose last axis is the classes', and running statistics."""
        self.running = {}
        if self.layout == "NHWC" and data.ndim == 4:
            data = data.transpose(0, 2, 3, 1)
        forward = {"mlp": self.mlp, "lenet": self.lenet, "resnet20": self.resnet20, "resnet50": self.resnet50,
                   "gpt": self.gpt, "lstm": self.lstm}[self.name]
        return forward(values, data), self.running

    def linear(self, v, name, x):
        y = x @ v[name + "_weight"].T
        return y + v[name + "_bias"] if name + "_bias" in v else y

    def conv(self, v, name, x, stride=1, pad=0):
        y = lax.conv_general_dilated(x, v[name + "_weight"], (stride, stride), ((pad, pad), (pad, pad)),
                                     dimension_numbers=(self.layout, "OIHW", self.layout))
        return y + self.per_channel(v[name + "_bias"]) if name + "_bias" in v else y

    def per_channel(self, values):
        return values.reshape([-1 if axis == self.channel else 1 for axis in range(4)])

    def norm(self, v, name, x, momentum=0.9):
        if self.training:
            axes = tuple(axis for axis in range(4) if axis != self.channel)
            mean, var = x.mean(axes), x.var(axes)
            for what, value in (("mean", mean), ("var", var)):
                key = f"{name}_running_{what}"
                self.running[key] = momentum * v[key] + (1 - momentum) * lax.stop_gradient(value)
        else:
            mean, var = v[name + "_running_mean"], v[name + "_running_var"]
        scale = v[name + "_gamma"] * lax.rsqrt(var + 1e-5)
        return (x - self.per_channel(mean)) * self.per_channel(scale) + self.per_channel(v[name + "_beta"])

    def max_pool(self, x, kernel, stride, pad=0):
        spread = lambda value, other: tuple(other if axis in (0, self.channel) else value for axis in range(4))
        return lax.reduce_window(x, -jnp.inf, lax.max, spread(kernel, 1), spread(stride, 1),
                                 spread((pad, pad), (0, 0)))

    def flatten(self, x):
        if x.ndim == 4 and self.layout == "NHWC":
            x = x.transpose(0, 3, 1, 2)  # as the weights have it
        return x.reshape(x.shape[0], -1)

    def mlp(self, v, x):
        x = jax.nn.relu(self.linear(v, "fc1", self.flatten(x)))
        return self.linear(v, "fc3", jax.nn.relu(self.linear(v, "fc2", x)))

    def lenet(self, v, x):
        x = self.max_pool(jnp.tanh(self.conv(v, "conv1", x)), 2, 2)
        x = self.max_pool(jnp.tanh(self.conv(v, "conv2", x)), 2, 2)
        return self.linear(v, "fc2", jnp.tanh(self.linear(v, "fc1", self.flatten(x))))

    def unit(self, v, name, x, layers, project):
        """Of layers (kernel, stride)."""
        y, total = x, 1
        for i, (kernel, stride) in enumerate(layers, 1):
            y = self.norm(v, f"{name}_bn{i}", self.conv(v, f"{name}_conv{i}", y, stride, kernel // 2))
            y, total = jax.nn.relu(y) if i < len(layers) else y, total * stride
        if project:
            x = self.norm(v, name + "_sc", self.conv(v, name + "_conv1sc", x, total))
        return jax.nn.relu(y + x)

    def stages(self, v, x, stages, bottleneck):
        for stage, units in enumerate(stages, 1):
            for unit in range(1, units + 1):
                stride = 2 if stage > 1 and unit == 1 else 1
                layers = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
                name = f"stage{stage}_unit{unit}"
                x = self.unit(v, name, x, layers, name + "_conv1sc_weight" in v)
        return self.linear(v, "fc1", x.mean(tuple(axis for axis in (1, 2, 3) if axis != self.channel)))

    def resnet20(self, v, x):
        return self.stages(v, jax.nn.relu(self.norm(v, "bn0", self.conv(v, "conv0", x, 1, 1))), [3, 3, 3], False)

    def resnet50(self, v, x):
        x = jax.nn.relu(self.norm(v, "bn0", self.conv(v, "conv0", x, 2, 3)))
        return self.stages(v, self.max_pool(x, 3, 2, 1), [3, 4, 6, 3], True)

    def layer_norm(self, v, name, x):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(var + 1e-5) * v[name + "_gamma"] + v[name + "_beta"]

    def attend(self, v, name, x):
        heads = self.model.get("heads", 4)
        query, key, value = (self.linear(v, f"{name}_{part}", x).reshape(*x.shape[:2], heads, -1)
                             for part in ("query", "key", "value"))
        if self.attention == "jax":
            y = jax.nn.dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = jnp.einsum("nqhd,nkhd->nhqk", query, key) / numpy.sqrt(query.shape[-1])
            seen = numpy.tril(numpy.ones(scores.shape[2:], bool))
            y = jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), value)
        return self.linear(v, name + "_output", y.reshape(x.shape))

    def gpt(self, v, ids):
        x = v["tokens_weight"][ids] + v["positions_weight"][:ids.shape[1]]
        for i in range(self.model.get("layers", 4)):
            block = f"block{i}_"
            x = x + self.attend(v, block + "attention", self.layer_norm(v, block + "norm1", x))
            y = self.linear(v, block + "fc1", self.layer_norm(v, block + "norm2", x))
            x = x + self.linear(v, block + "fc2", jax.nn.gelu(y, approximate=False))
        return self.linear(v, "head", self.layer_norm(v, "norm", x))

    def lstm(self, v, ids):
        x = v["tokens_weight"][ids.T]  # (T, N, width)
        for layer in range(self.model.get("layers", 2)):
            name = f"lstm_l{layer}_"
            inputs = x @ v[name + "input_weight"].T + v[name + "input_bias"]
            weight = v[name + "weight"].T

            def cell(state, given, weight=weight):
                hidden, memory = state
                i, f, g, o = jnp.split(given + hidden @ weight, 4, axis=-1)
                memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
                hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
                return (hidden, memory), hidden

            zeros = jnp.zeros((ids.shape[0], weight.shape[0]), x.dtype)
            _, x = lax.scan(cell, (zeros, zeros), inputs, unroll=self.unroll)
        return self.linear(v, "head", x.transpose(1, 0, 2))


def cross_entropy(scores, label):
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), label[..., None], -1).mean()


def is_state(name):
    return name.endswith(("_running_mean", "_running_var"))


class Side:
    def __init__(self, options):
        values = numpy.load(os.path.join(options.folder, "initial.npz"))
        batch = numpy.load(os.path.join(options.folder, "batch.npz"))
        self.data, self.label = jnp.asarray(batch["data"]), jnp.asarray(batch["label"].astype(numpy.int32))
        if self.data.ndim == 2:  # class numbers
            self.data = self.data.astype(jnp.int32)
        self.weights = {name: jnp.asarray(values[name]) for name in values.files if not is_state(name)}
        self.states = {name: jnp.asarray(values[name]) for name in values.files if is_state(name)}
        self.network = Network(options, options.phase == "train")
        self._prepare(options)

    def run(self, steps):
        return protocol.timed(lambda: jax.block_until_ready(self.step()), steps)


class Training(Side):
    def _prepare(self, options):
        self.changes = {name: jnp.zeros_like(weight) for name, weight in self.weights.items()}

        def loss_of(weights, states, data, label):
            scores, states = self.network({**weights, **states}, data)
            return cross_entropy(scores, label), states

        def step(weights, states, changes, data, label):
            (loss, states), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, states, data, label)
            changes = jax.tree.map(lambda c, g: options.momentum * c + g, changes, gradients)
            return jax.tree.map(lambda w, c: w - options.rate * c, weights, changes), states, changes, loss

        self.compiled = jax.jit(step, donate_argnums=(0, 1, 2))

    def step(self):
        self.weights, self.states, self.changes, loss = self.compiled(
            self.weights, self.states, self.changes, self.data, self.label)
        return self.weights, self.states, self.changes, loss

    def losses(self, steps):
        return [float(self.step()[3]) for _ in range(steps)]


class Prediction(Side):
    def _prepare(self, options):
        values = {**self.weights, **self.states}
        if options.set.get("values") == "constant":
            compiled = jax.jit(lambda data: self.network(values, data)[0])
            self.step = lambda: compiled(self.data)
        else:
            compiled = jax.jit(lambda values, data: self.network(values, data)[0])
            self.step = lambda: compiled(values, self.data)

    def losses(self, steps):
        return [float(cross_entropy(self.step(), self.label)) for _ in range(steps)]


protocol.serve(f"JAX {jax.__version__}",
               lambda options: (Training if options.phase == "train" else Prediction)(options))
