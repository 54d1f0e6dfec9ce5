"""Small networks of the kinds that people have: name -> (module, input)."""

import torch
from torch import nn
from torch.nn import functional as F


def normed(inputs, outputs, kernel, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(normed(inputs, outputs, 3, stride), nn.ReLU(), normed(outputs, outputs, 3))
        same = inputs == outputs and stride == 1
        self.short = nn.Identity() if same else normed(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


class ResNet18(nn.Module):
    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        self.stem = nn.Sequential(normed(3, widths[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        pairs = zip((widths[0],) + widths, widths)
        self.body = nn.Sequential(*[
            nn.Sequential(Residual(i, o, 1 if i == o else 2), Residual(o, o, 1)) for i, o in pairs])
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x):
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.body(self.stem(x)), 1), 1))


class Inverted(nn.Module):
    def __init__(self, inputs, outputs, stride, factor):
        super().__init__()
        hidden = inputs * factor
        self.body = nn.Sequential(
            normed(inputs, hidden, 1), nn.ReLU6(), normed(hidden, hidden, 3, stride, hidden), nn.ReLU6(),
            normed(hidden, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(normed(3, 8, 3, 2), nn.ReLU6(), Inverted(8, 8, 1, 1), Inverted(8, 16, 2, 6),
                                  Inverted(16, 16, 1, 6), nn.Hardswish())
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.body(x).mean([2, 3]))


class Recurrent(nn.Module):
    def __init__(self, kind, bidirectional):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.layers = kind(8, 12, num_layers=2, bidirectional=bidirectional, batch_first=True)
        self.head = nn.Linear(24 if bidirectional else 12, 5)

    def forward(self, x):
        return self.head(self.layers(self.embed(x))[0])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = [part.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.project(self.norm1(x)).split(c, 2)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(y.transpose(1, 2).contiguous().view(n, t, c))
        return x + self.body(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=32, heads=4, context=16, letters=30):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(Block(width, heads), Block(width, heads))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, x):
        places = self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(self.letters(x) + places)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def block(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.SiLU())

        self.down, self.middle = block(1, 8), nn.Sequential(block(8, 16), block(16, 16))
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, 2), block(16, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        a = self.down(x)
        y = self.last(torch.cat([self.up(self.middle(F.max_pool2d(a, 2))), a], 1))
        return self.head(y.permute(0, 2, 3, 1).flatten(1, 2))  # (N, places, classes)


def networks():
    return {
        'resnet18': (ResNet18(), torch.randn(4, 3, 64, 64)),
        'mobilenet': (MobileNet(), torch.randn(4, 3, 32, 32)),
        'lstm': (Recurrent(nn.LSTM, True), torch.randint(0, 20, (4, 7))),
        'gru': (Recurrent(nn.GRU, False), torch.randint(0, 20, (4, 7))),
        'gpt': (GPT(), torch.randint(0, 30, (4, 16))),
        'encoder': (Encoder(), torch.randn(4, 9, 32)),
        'unet': (UNet(), torch.randn(4, 1, 16, 16)),
    }
