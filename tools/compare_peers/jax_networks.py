"""The networks of train/zoo.h in JAX, as functions of Bindery's parameters by their names, and a step of training as
one program of XLA that takes over its arguments' memory.
"""

import jax
import jax.numpy as jnp
import numpy
from jax import lax


class Network:
    """`settings` are the network's of its name; the layout is that of convolutions, `unroll` how many steps of a
    recurrence are one turn of its loop, and attention is plain, or jax: jax.nn.dot_product_attention."""

    def __init__(self, name, settings, training, layout="NCHW", unroll=1, attention="plain"):
        self.name, self.model, self.training = name, settings, training
        self.layout, self.unroll, self.attention = layout, unroll, attention
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


def training_step(network, rate, momentum):
    """(weights, states, changes, data, label) -> the first three after a step of gradient descent, and its loss."""

    def loss_of(weights, states, data, label):
        scores, states = network({**weights, **states}, data)
        return cross_entropy(scores, label), states

    def step(weights, states, changes, data, label):
        (loss, states), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, states, data, label)
        changes = jax.tree.map(lambda c, g: momentum * c + g, changes, gradients)
        return jax.tree.map(lambda w, c: w - rate * c, weights, changes), states, changes, loss

    return jax.jit(step, donate_argnums=(0, 1, 2))
