"""The networks of train/zoo.h in PyTorch, with the same names."""

import torch
from torch import nn
from torch.nn.functional import gelu, max_pool2d, relu, scaled_dot_product_attention


class BatchNorm(nn.BatchNorm2d):
    """With the running variance by Bindery's rule, too: PyTorch adds up n / (n - 1) times a batch's variance, Bindery
    the variance itself. Both begin at 1."""

    def forward(self, x):
        self.count = x.numel() / x.shape[1]
        return super().forward(x)

    def biased_var(self):
        initial = (1 - self.momentum) ** self.num_batches_tracked.item()
        return initial + (self.running_var - initial) * (self.count - 1) / self.count


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 128), nn.Linear(128, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.fc3(relu(self.fc2(relu(self.fc1(x.flatten(1))))))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = max_pool2d(self.conv1(x).tanh(), 2)
        x = max_pool2d(self.conv2(x).tanh(), 2)
        return self.fc2(self.fc1(x.flatten(1)).tanh())


def conv(inputs, filters, kernel, stride):
    return nn.Conv2d(inputs, filters, kernel, stride, padding=kernel // 2, bias=False)


class Unit(nn.Module):
    """A residual unit of layers (filters, kernel, stride), each normalised."""

    def __init__(self, inputs, layers, project):
        super().__init__()
        self.layers, self.project = len(layers), project
        channels, total_stride = inputs, 1
        for i, (filters, kernel, stride) in enumerate(layers, 1):
            self.add_module(f"conv{i}", conv(channels, filters, kernel, stride))
            self.add_module(f"bn{i}", BatchNorm(filters))
            channels, total_stride = filters, total_stride * stride
        if project:
            self.conv1sc = conv(inputs, channels, 1, total_stride)
            self.sc = BatchNorm(channels)

    def forward(self, x):
        y = x
        for i in range(1, self.layers + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.layers:
                y = relu(y)
        return relu(y + (self.sc(self.conv1sc(x)) if self.project else x))


class ResNet(nn.Module):
    """`stages`: (units, filters). Bottlenecks come with the large stem of ImageNet."""

    def __init__(self, stages, bottleneck, classes):
        super().__init__()
        self.large = bottleneck
        channels = 64 if bottleneck else 16
        self.conv0 = conv(3, channels, 7, 2) if bottleneck else conv(3, channels, 3, 1)
        self.bn0 = BatchNorm(channels)
        self.units = []
        for stage, (units, filters) in enumerate(stages, 1):
            for unit in range(1, units + 1):
                stride = 2 if stage > 1 and unit == 1 else 1
                if bottleneck:
                    layers = [(filters // 4, 1, 1), (filters // 4, 3, stride), (filters, 1, 1)]
                else:
                    layers = [(filters, 3, stride), (filters, 3, 1)]
                self.units.append(f"stage{stage}_unit{unit}")
                self.add_module(self.units[-1], Unit(channels, layers, channels != filters))
                channels = filters
        self.fc1 = nn.Linear(channels, classes)

    def forward(self, x):
        x = relu(self.bn0(self.conv0(x)))
        if self.large:
            x = max_pool2d(x, 3, 2, padding=1)
        for unit in self.units:
            x = getattr(self, unit)(x)
        return self.fc1(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        for part in ("query", "key", "value", "output"):
            self.add_module(part, nn.Linear(width, width))

    def forward(self, x):
        query, key, value = (part(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
                             for part in (self.query, self.key, self.value))
        y = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, classes=256, layers=4, width=128, heads=4, context=64):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(classes, width), nn.Embedding(context, width)
        self.blocks = [f"block{i}" for i in range(layers)]
        for block in self.blocks:
            self.add_module(block, Block(width, heads))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes, bias=False)

    def forward(self, x):
        x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = getattr(self, block)(x)
        return self.head(self.norm(x))


class LSTM(nn.Module):
    def __init__(self, classes=256, layers=2, width=256):
        super().__init__()
        self.tokens, self.head = nn.Embedding(classes, width), nn.Linear(width, classes)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        # Bindery's has one bias.
        for layer in range(layers):
            bias = getattr(self.lstm, f"bias_hh_l{layer}")
            nn.init.zeros_(bias)
            bias.requires_grad_(False)

    def forward(self, x):
        return self.head(self.lstm(self.tokens(x))[0])


def make(name, **settings):
    """By the zoo's name, and with its settings."""
    if name == "gpt":
        return GPT(**settings)
    if name == "lstm":
        settings.pop("context", None)  # of any length
        return LSTM(**settings)
    if name == "mlp":
        return MLP(**settings)
    if name == "lenet":
        return LeNet(**settings)
    if name == "resnet20":
        return ResNet([(3, 16), (3, 32), (3, 64)], False, **{"classes": 10, **settings})
    if name == "resnet50":
        return ResNet([(3, 256), (4, 512), (6, 1024), (3, 2048)], True, **{"classes": 1000, **settings})
    raise ValueError(f"no network {name}")


def parameters(network):
    """By Bindery's names: conv1.weight is conv1_weight, bn1.weight bn1_gamma, lstm.weight_ih_l0 lstm_l0_input_weight."""
    found = {}
    for path, module in network.named_modules():
        kinds = {"weight": "gamma", "bias": "beta"} if isinstance(module, (BatchNorm, nn.LayerNorm)) else {}
        for kind, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            if isinstance(module, nn.LSTM):
                what, side, layer = kind.split("_")
                kinds[kind] = f"{layer}_input_{what}" if side == "ih" else f"{layer}_{what}"
            found[path.replace(".", "_") + "_" + kinds.get(kind, kind)] = parameter
    return found


def running_statistics(network):
    found = {}
    for path, module in network.named_modules():
        if isinstance(module, BatchNorm):
            name = path.replace(".", "_")
            found[name + "_running_mean"] = module.running_mean
            found[name + "_running_var"] = module.biased_var()
    return found
