"""The networks of train/zoo.h in PyTorch, with the same names."""

from torch import nn
from torch.nn.functional import max_pool2d, relu


class BatchNorm(nn.BatchNorm2d):
    """With the running variance by Bindery's rule, too: PyTorch adds up n / (n - 1) times a batch's variance, Bindery
    the variance itself. Both begin at 1."""

    def forward(self, x):
        self.count = x.numel() / x.shape[1]
        return super().forward(x)

    def biased_var(self):
        initial = (1 - self.momentum) ** self.num_batches_tracked.item()
        return initial + (self.running_var - initial) * (self.count - 1) / self.count


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


def make(name):
    if name == "lenet":
        return LeNet()
    if name == "resnet20":
        return ResNet([(3, 16), (3, 32), (3, 64)], False, 10)
    if name == "resnet50":
        return ResNet([(3, 256), (4, 512), (6, 1024), (3, 2048)], True, 1000)
    raise ValueError(f"no network {name}")


def parameters(network):
    """By Bindery's names: conv1.weight is conv1_weight, bn1.weight bn1_gamma."""
    found = {}
    for path, module in network.named_modules():
        kinds = {"weight": "gamma", "bias": "beta"} if isinstance(module, BatchNorm) else {}
        for kind, parameter in module.named_parameters(recurse=False):
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
