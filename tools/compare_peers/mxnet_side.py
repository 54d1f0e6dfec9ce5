"""MXNet's side of compare.sh: the networks of train/zoo.h as symbols of a Module, by the protocol of protocol.py.
Settings:

    contexts   devices that share the batch; batch-norm is by each one's share
    kvstore    local or device, of several contexts: where gradients are summed
"""

import os

import mxnet as mx
import numpy

import protocol

S = mx.sym


class Network:
    """Up to the scores. `share`: the samples of each context. `constants` fills with parameters that do not train."""

    def __init__(self, options, share):
        self.name, self.model = protocol.model_and_settings(options.model)
        self.share = share
        self.constants = {}

    def scores(self):
        data = S.Variable("data")
        return {"mlp": self.mlp, "lenet": self.lenet, "resnet20": self.resnet20, "resnet50": self.resnet50,
                "gpt": self.gpt, "lstm": self.lstm}[self.name](data)

    @property
    def classes(self):
        own = {"resnet50": 1000, "gpt": 256, "lstm": 256}.get(self.name, 10)
        return self.model.get("classes", own)

    @property
    def length(self):
        return self.model.get("context", 64)

    def mlp(self, x):
        x = S.Activation(S.FullyConnected(x, num_hidden=128, name="fc1"), act_type="relu")
        x = S.Activation(S.FullyConnected(x, num_hidden=64, name="fc2"), act_type="relu")
        return S.FullyConnected(x, num_hidden=self.classes, name="fc3")

    def lenet(self, x):
        for name, filters in (("conv1", 20), ("conv2", 50)):
            x = S.Activation(S.Convolution(x, num_filter=filters, kernel=(5, 5), name=name), act_type="tanh")
            x = S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
        x = S.Activation(S.FullyConnected(x, num_hidden=500, name="fc1"), act_type="tanh")
        return S.FullyConnected(x, num_hidden=self.classes, name="fc2")

    def conv_norm(self, x, conv, norm, filters, kernel, stride):
        x = S.Convolution(x, num_filter=filters, kernel=(kernel, kernel), stride=(stride, stride),
                          pad=(kernel // 2, kernel // 2), no_bias=True, name=conv)
        return S.BatchNorm(x, fix_gamma=False, eps=1e-5, momentum=0.9, name=norm)

    def unit(self, x, name, layers, project):
        """Of layers (filters, kernel, stride)."""
        y, total = x, 1
        for i, (filters, kernel, stride) in enumerate(layers, 1):
            y = self.conv_norm(y, f"{name}_conv{i}", f"{name}_bn{i}", filters, kernel, stride)
            y, total = S.Activation(y, act_type="relu") if i < len(layers) else y, total * stride
        if project:
            x = self.conv_norm(x, f"{name}_conv1sc", f"{name}_sc", layers[-1][0], 1, total)
        return S.Activation(y + x, act_type="relu")

    def stages(self, x, channels, stages, bottleneck):
        """`stages`: (units, filters)."""
        for stage, (units, filters) in enumerate(stages, 1):
            for unit in range(1, units + 1):
                stride = 2 if stage > 1 and unit == 1 else 1
                if bottleneck:
                    layers = [(filters // 4, 1, 1), (filters // 4, 3, stride), (filters, 1, 1)]
                else:
                    layers = [(filters, 3, stride), (filters, 3, 1)]
                x = self.unit(x, f"stage{stage}_unit{unit}", layers, channels != filters)
                channels = filters
        x = S.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg")
        return S.FullyConnected(x, num_hidden=self.classes, name="fc1")

    def resnet20(self, x):
        x = S.Activation(self.conv_norm(x, "conv0", "bn0", 16, 3, 1), act_type="relu")
        return self.stages(x, 16, [(3, 16), (3, 32), (3, 64)], False)

    def resnet50(self, x):
        x = S.Activation(self.conv_norm(x, "conv0", "bn0", 64, 7, 2), act_type="relu")
        x = S.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
        return self.stages(x, 64, [(3, 256), (4, 512), (6, 1024), (3, 2048)], True)

    def linear(self, x, name, width, **options):
        return S.FullyConnected(x, num_hidden=width, flatten=False, name=name, **options)

    def embed(self, x, width):
        return S.Embedding(x, input_dim=self.classes, output_dim=width, name="tokens")

    def attend(self, x, name, width, heads):
        def part(which):  # (N heads, T, width / heads)
            y = S.reshape(self.linear(x, f"{name}_{which}", width), shape=(0, 0, -4, heads, -1))
            return S.reshape(S.transpose(y, axes=(0, 2, 1, 3)), shape=(-3, -2))

        scores = S.batch_dot(part("query"), part("key"), transpose_b=True) * (heads / width) ** 0.5
        mask = numpy.triu(numpy.full((1, self.length, self.length), -1e30, numpy.float32), 1)
        self.constants["mask"] = mask
        weights = S.softmax(S.broadcast_add(scores, self.mask), axis=-1)
        y = S.reshape(S.batch_dot(weights, part("value")), shape=(-4, -1, heads, -2))
        y = S.reshape(S.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        return self.linear(y, name + "_output", width)

    def gpt(self, x):
        width, heads = self.model.get("width", 128), self.model.get("heads", 4)
        norm = lambda x, name: S.LayerNorm(x, eps=1e-5, name=name)
        self.mask = S.Variable("mask", shape=(1, self.length, self.length))
        positions = S.Variable("positions_weight", shape=(self.length, width))
        x = S.broadcast_add(self.embed(x, width), S.expand_dims(positions, axis=0))
        for i in range(self.model.get("layers", 4)):
            block = f"block{i}_"
            x = x + self.attend(norm(x, block + "norm1"), block + "attention", width, heads)
            y = S.LeakyReLU(self.linear(norm(x, block + "norm2"), block + "fc1", 4 * width), act_type="gelu")
            x = x + self.linear(y, block + "fc2", width)
        return self.linear(norm(x, "norm"), "head", self.classes, no_bias=True)

    def lstm(self, x):
        width, layers = self.model.get("width", 256), self.model.get("layers", 2)
        flat = lambda name, shape: S.reshape(S.Variable(name, shape=shape), shape=(-1,))
        weights, biases = [], []
        for layer in range(layers):
            name = f"lstm_l{layer}_"
            weights += [flat(name + "input_weight", (4 * width, width)), flat(name + "weight", (4 * width, width))]
            biases += [flat(name + "input_bias", (4 * width,)), flat(name + "zeros", (4 * width,))]
            self.constants[name + "zeros"] = numpy.zeros(4 * width, numpy.float32)  # ours has one bias
        state = S.zeros((layers, self.share, width))
        x = S.swapaxes(self.embed(x, width), dim1=0, dim2=1)
        x = S.RNN(x, S.concat(*weights, *biases, dim=0), state, state, state_size=width, num_layers=layers, mode="lstm",
                  name="lstm")
        return self.linear(S.swapaxes(x, dim1=0, dim2=1), "head", self.classes)


def cross_entropy(probabilities, label):
    return float(-numpy.log(probabilities[numpy.arange(len(label)), label]).mean())


class Side:
    def __init__(self, options):
        contexts = int(options.set.get("contexts", 1))
        batch = numpy.load(os.path.join(options.folder, "batch.npz"))
        values = numpy.load(os.path.join(options.folder, "initial.npz"))
        values = {name.replace("_running_", "_moving_"): values[name] for name in values.files}
        self.training = options.phase == "train"
        self.label = batch["label"].astype(int).reshape(-1)
        network = Network(options, options.batch_size // contexts)
        symbol = network.scores()
        values.update(network.constants)
        labels = []
        if self.training:
            if batch["label"].ndim > 1:
                symbol = S.reshape(symbol, shape=(-1, network.classes))
            label = S.reshape(S.Variable("softmax_label"), shape=(-1,))
            symbol, labels = S.SoftmaxOutput(symbol, label, name="softmax"), [("softmax_label", batch["label"].shape)]
        self.module = mx.mod.Module(symbol, label_names=[name for name, _ in labels] or None,
                                    context=[mx.cpu(i) for i in range(contexts)],
                                    fixed_param_names=list(network.constants))
        self.module.bind([("data", batch["data"].shape)], labels or None, for_training=self.training)
        states = set(symbol.list_auxiliary_states())
        wanted = states | set(symbol.list_arguments()) - {"data", "softmax_label"}
        if wanted != values.keys():
            raise ValueError(f"values that differ: {sorted(wanted ^ values.keys())}")
        arrays = {name: mx.nd.array(value) for name, value in values.items()}
        self.module.set_params({name: value for name, value in arrays.items() if name not in states},
                               {name: value for name, value in arrays.items() if name in states})
        self.batch = mx.io.DataBatch([mx.nd.array(batch["data"])],
                                     [mx.nd.array(batch["label"])] if self.training else None)
        if self.training:
            self.module.init_optimizer(
                kvstore=options.set.get("kvstore", "local"), optimizer="sgd",
                optimizer_params={"learning_rate": options.rate, "momentum": options.momentum, "wd": 0,
                                  "rescale_grad": 1.0 / len(self.label)})

    def step(self):
        if self.training:
            self.module.forward_backward(self.batch)
            self.module.update()
        else:
            self.module.forward(self.batch, is_train=False)
        mx.nd.waitall()

    def run(self, steps):
        return protocol.timed(self.step, steps)

    def losses(self, steps):
        found = []
        for _ in range(steps):
            self.step()
            output = self.module.get_outputs()[0]
            output = output.reshape((len(self.label), -1))
            found.append(cross_entropy((output if self.training else mx.nd.softmax(output)).asnumpy(), self.label))
        return found


protocol.serve(f"MXNet {mx.__version__}", Side)
