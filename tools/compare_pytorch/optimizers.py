"""What PyTorch's optimizers make of four weights in 100 steps, for tests/train/published_optimizers_test.cc.

    pip install torch; python3 tools/compare_pytorch/optimizers.py
"""
import torch

torch.set_default_dtype(torch.float64)
optim = torch.optim

# How the same rule is written here, and there. `rmsprop` has another default there.
RULES = [
    ("sgd(lr=0.1, wd=0.01)", lambda p: optim.SGD(p, 0.1, weight_decay=0.01)),
    ("sgd(lr=0.1, momentum=0.9, wd=0.01)", lambda p: optim.SGD(p, 0.1, 0.9, weight_decay=0.01)),
    ("nag(lr=0.1, momentum=0.9, wd=0.01)", lambda p: optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True)),
    ("adam(lr=0.1, wd=0.01)", lambda p: optim.Adam(p, 0.1, weight_decay=0.01)),
    ("adamw(lr=0.1, wd=0.01)", lambda p: optim.AdamW(p, 0.1, weight_decay=0.01)),
    ("nadam(lr=0.1, wd=0.01)", lambda p: optim.NAdam(p, 0.1, weight_decay=0.01)),
    ("adamax(lr=0.1, wd=0.01)", lambda p: optim.Adamax(p, 0.1, weight_decay=0.01)),
    ("rmsprop(lr=0.1, rho=0.99, wd=0.01)", lambda p: optim.RMSprop(p, 0.1, weight_decay=0.01)),
    ("rmsprop(lr=0.1, momentum=0.5, wd=0.01)", lambda p: optim.RMSprop(p, 0.1, 0.9, weight_decay=0.01, momentum=0.5)),
    ("centered_rmsprop(lr=0.1, wd=0.01)", lambda p: optim.RMSprop(p, 0.1, 0.9, weight_decay=0.01, centered=True)),
    ("adagrad(lr=0.1, lr_decay=0.01, wd=0.01)", lambda p: optim.Adagrad(p, 0.1, 0.01, 0.01)),
    ("adadelta(lr=1, wd=0.01)", lambda p: optim.Adadelta(p, 1, weight_decay=0.01)),
]

for text, make in RULES:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0]))
    optimizer = make([weight])
    for step in range(1, 101):
        index = torch.arange(4, dtype=torch.float64)
        weight.grad = torch.sin(index + 1.7 * step) + 0.1 * weight.detach()
        optimizer.step()
    print('    {"%s", {%s}},' % (text, ", ".join("%.17g" % value for value in weight.tolist())))
