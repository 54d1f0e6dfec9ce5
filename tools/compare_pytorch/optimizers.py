"""What PyTorch's optimizers make of four weights in 100 steps, for tests/train/optimizers/published_optimizers_test.cc; and, in
float64, the formulas of those that it does not have.

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



class Lars(optim.Optimizer):
    """You, Gitman and Ginsburg 2017, the rate inside the momentum."""

    def __init__(self, params, lr, eta, weight_decay, momentum=0.9):
        super().__init__(params, dict(lr=lr, eta=eta, wd=weight_decay, momentum=momentum))

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        for w in group["params"]:
            m = self.state[w].setdefault("m", torch.zeros_like(w))
            rate = group["lr"] * group["eta"] * w.norm() / (w.grad.norm() + group["wd"] * w.norm())
            m.mul_(group["momentum"]).add_(rate * (w.grad + group["wd"] * w))
            w.sub_(m)


class Lamb(optim.Optimizer):
    """You and others 2019."""

    def __init__(self, params, lr, weight_decay, upper=float("inf"), beta1=0.9, beta2=0.999, epsilon=1e-6):
        super().__init__(params, dict(lr=lr, wd=weight_decay))
        self.numbers = beta1, beta2, epsilon, upper

    @torch.no_grad()
    def step(self):
        beta1, beta2, epsilon, upper = self.numbers
        group = self.param_groups[0]
        for w in group["params"]:
            state = self.state[w]
            state["t"] = t = state.get("t", 0) + 1
            state["m"] = m = beta1 * state.get("m", 0) + (1 - beta1) * w.grad
            state["v"] = v = beta2 * state.get("v", 0) + (1 - beta2) * w.grad**2
            u = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + epsilon) + group["wd"] * w
            w.sub_(group["lr"] * w.norm().clamp(max=upper) / u.norm() * u)


RULES += [
    ("lars(lr=1, eta=0.02, wd=0.01)", lambda p: Lars(p, 1, 0.02, 0.01)),
    ("lamb(lr=0.02, wd=0.01)", lambda p: Lamb(p, 0.02, 0.01)),
    ("lamb(lr=0.02, upper=0.5, wd=0.01)", lambda p: Lamb(p, 0.02, 0.01, upper=0.5)),
]

for text, make in RULES:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0]))
    optimizer = make([weight])
    for step in range(1, 101):
        index = torch.arange(4, dtype=torch.float64)
        weight.grad = torch.sin(index + 1.7 * step) + 0.1 * weight.detach()
        optimizer.step()
    print('    {"%s", {%s}},' % (text, ", ".join("%.17g" % value for value in weight.tolist())))
