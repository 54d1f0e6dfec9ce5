"""JAX's side of compare.sh: the networks of jax_networks.py, each step one program of XLA, by the protocol of
protocol.py. Settings:

    layout     NCHW or NHWC, of convolutions
    unroll     steps of a recurrence in one turn of its loop
    attention  plain, or jax: jax.nn.dot_product_attention
    values     of predictions: arguments, or constant: the compiler may compute with them
"""

import os

import jax
import jax.numpy as jnp
import numpy

import protocol
from jax_networks import Network, cross_entropy, is_state, training_step


class Side:
    def __init__(self, options):
        values = numpy.load(os.path.join(options.folder, "initial.npz"))
        batch = numpy.load(os.path.join(options.folder, "batch.npz"))
        self.data, self.label = jnp.asarray(batch["data"]), jnp.asarray(batch["label"].astype(numpy.int32))
        if self.data.ndim == 2:  # class numbers
            self.data = self.data.astype(jnp.int32)
        self.weights = {name: jnp.asarray(values[name]) for name in values.files if not is_state(name)}
        self.states = {name: jnp.asarray(values[name]) for name in values.files if is_state(name)}
        name, settings = protocol.model_and_settings(options.model)
        self.network = Network(name, settings, options.phase == "train", options.set.get("layout", "NCHW"),
                               int(options.set.get("unroll", 1)), options.set.get("attention", "plain"))
        self._prepare(options)

    def run(self, steps):
        return protocol.timed(lambda: jax.block_until_ready(self.step()), steps)


class Training(Side):
    def _prepare(self, options):
        self.changes = {name: jnp.zeros_like(weight) for name, weight in self.weights.items()}
        self.compiled = training_step(self.network, options.rate, options.momentum)

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
