"""The same small trainings by Bindery and by another system: 100 updates by each optimizer, loss scaling with
overflows, accumulation over micro-batches. See compare.sh.

    python rules.py pytorch|chainer|nnabla|formulas --program bazel-bin/tools/compare_rules
"""
import argparse
import math
import subprocess

import numpy as np

STEPS, WEIGHTS = 100, 8
START = np.cos(2.0 * np.arange(WEIGHTS)) * 2
BIG = 1e6  # its gradient overflows at any scale


def gradient(step, weight):
    return np.sin(np.arange(WEIGHTS) + 1.7 * step) + 0.1 * weight


def micro_data(update):
    number = update * 6 + np.arange(6.0)
    return np.stack([np.sin(number), np.cos(3 * number)], 1).astype(np.float32), np.sin(2 * number)[:, None].astype(
        np.float32)


class PyTorch:
    def __init__(self):
        import torch
        self.torch = torch
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)  # NAdam's products of momenta are of it, too
        optim = torch.optim
        adam = dict(weight_decay=0.01)
        self.version, self.tolerance = torch.__version__, 1e-9
        self.optimizers = [
            ("sgd(lr=0.1, wd=0.01)", lambda p: optim.SGD(p, 0.1, **adam)),
            ("sgd(lr=0.1, momentum=0.9, wd=0.01)", lambda p: optim.SGD(p, 0.1, 0.9, **adam)),
            ("nag(lr=0.1, momentum=0.9, wd=0.01)", lambda p: optim.SGD(p, 0.1, 0.9, nesterov=True, **adam)),
            ("adam(lr=0.1, wd=0.01)", lambda p: optim.Adam(p, 0.1, **adam)),
            ("adamw(lr=0.1, wd=0.01)", lambda p: optim.AdamW(p, 0.1, **adam)),
            ("nadam(lr=0.1, wd=0.01)", lambda p: optim.NAdam(p, 0.1, **adam)),
            ("adamax(lr=0.1, wd=0.01)", lambda p: optim.Adamax(p, 0.1, **adam)),
            ("rmsprop(lr=0.1, rho=0.99, wd=0.01)", lambda p: optim.RMSprop(p, 0.1, **adam)),
            ("rmsprop(lr=0.1, momentum=0.5, wd=0.01)", lambda p: optim.RMSprop(p, 0.1, 0.9, momentum=0.5, **adam)),
            ("centered_rmsprop(lr=0.1, wd=0.01)", lambda p: optim.RMSprop(p, 0.1, 0.9, centered=True, **adam)),
            ("adagrad(lr=0.1, lr_decay=0.01, wd=0.01)", lambda p: optim.Adagrad(p, 0.1, 0.01, 0.01)),
            ("adadelta(lr=1, wd=0.01)", lambda p: optim.Adadelta(p, 1, **adam)),
        ]

    def train(self, make):
        torch = self.torch
        weight = torch.nn.Parameter(torch.tensor(START))
        optimizer = make([weight])
        for step in range(1, STEPS + 1):
            weight.grad = torch.tensor(gradient(step, weight.detach().numpy()))
            optimizer.step()
            yield weight.detach().numpy().copy()

    def scaling(self):
        """GradScaler on float32, growth every three steps."""
        torch = self.torch
        values = [1, 1, 1, 1, BIG, 1, BIG, BIG, 1, 1, 1, 1, 1, 1, 1]
        scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=3)
        weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float32))
        optimizer = torch.optim.SGD([weight], 1e-33)
        numbers = []
        for value in values:
            optimizer.zero_grad()
            scaler.scale(weight * value * 1e33).sum().backward()
            scaler.step(optimizer)
            scaler.update()
            numbers += [scaler.get_scale(), weight.item()]
        return "dynamic(start=1024,interval=3)", values, numbers

    def accumulated(self, parts):
        torch = self.torch
        weight = torch.nn.Parameter(torch.tensor([[0.3, -0.2]], dtype=torch.float32))
        optimizer = torch.optim.SGD([weight], 0.1, 0.9)
        for update in range(10):
            x, t = map(torch.tensor, micro_data(update))
            optimizer.zero_grad()
            for some_x, some_t in zip(x.chunk(parts), t.chunk(parts)):
                ((some_x @ weight.T - some_t) ** 2).sum().div(2 * 6).backward()
            optimizer.step()
            yield from weight.detach().numpy()[0].tolist()


class Chainer:
    def __init__(self):
        import chainer
        self.chainer = chainer
        o, decay = chainer.optimizers, chainer.optimizer_hooks.WeightDecay(0.01)
        lars = chainer.optimizer_hooks.GradientLARS(threshold=0, weight_decay=0.01)
        self.version, self.tolerance = chainer.__version__, 1e-6
        # Not its NesterovAG: that looks ahead by the momentum that it has moved already, which is no published rule.
        self.optimizers = [
            ("sgd(lr=0.1, wd=0.01)", lambda: (o.SGD(0.1), decay)),
            ("sgd(lr=0.1, momentum=0.9, wd=0.01)", lambda: (o.MomentumSGD(0.1, 0.9), decay)),
            ("adam(lr=0.1, wd=0.01)", lambda: (o.Adam(0.1), decay)),  # its epsilon is beside a root not yet corrected
            ("adamw(lr=0.1, wd=0.01)", lambda: (o.AdamW(0.1, weight_decay_rate=0.1 * 0.01), None)),
            ("rmsprop(lr=0.1, rho=0.99, wd=0.01)", lambda: (o.RMSprop(0.1), decay)),
            ("centered_rmsprop(lr=0.1, momentum=0.9, rho=0.95, epsilon=1e-12, wd=0.01)",
             lambda: (o.RMSpropGraves(0.1, eps=1e-12), decay)),  # its epsilon is in the root
            ("adagrad(lr=0.1, epsilon=1e-8, wd=0.01)", lambda: (o.AdaGrad(0.1), decay)),
            ("adadelta(lr=1, rho=0.95, wd=0.01)", lambda: (o.AdaDelta(), decay)),
            ("lars(lr=0.02, eta=1, epsilon=1e-9, wd=0.01)", lambda: (o.MomentumSGD(0.02, 0.9), lars)),
        ]

    def train(self, make):
        optimizer, hook = make()
        link = self.chainer.Link()
        with link.init_scope():
            link.w = self.chainer.Parameter(START.copy())
        optimizer.setup(link)
        if hook:
            optimizer.add_hook(hook)
        for step in range(1, STEPS + 1):
            link.w.grad = gradient(step, link.w.array)
            optimizer.update()
            yield link.w.array.copy()

    def scaling(self):
        """loss_scaling(interval=1), whose pace after the first overflow is ours, too."""
        values = [1, 1, 1, BIG, 1, BIG, BIG, 1, 1, 1, 1, BIG, 1, 1, 1]
        chainer = self.chainer
        link = chainer.Link()
        with link.init_scope():
            link.w = chainer.Parameter(np.zeros(1, np.float32))
        optimizer = chainer.optimizers.SGD(1e-33).setup(link)
        optimizer.loss_scaling(interval=1)
        numbers = []
        for value in values:
            optimizer.update(lambda: chainer.functions.sum(link.w * np.float32(value) * np.float32(1e33)))
            numbers += [float(optimizer._loss_scale), float(link.w.array[0])]
        return "dynamic(start=1,interval=1,max=65504)", values, numbers

    def accumulated(self, parts):
        chainer = self.chainer
        link = chainer.Link()
        with link.init_scope():
            link.w = chainer.Parameter(np.array([[0.3, -0.2]], np.float32))
        optimizer = chainer.optimizers.MomentumSGD(0.1, 0.9).setup(link)
        for update in range(10):
            x, t = micro_data(update)
            link.cleargrads()
            for some_x, some_t in zip(np.split(x, parts), np.split(t, parts)):
                loss = chainer.functions.sum((chainer.functions.linear(some_x, link.w) - some_t) ** 2) / (2 * 6)
                loss.backward()
            optimizer.update()
            yield from link.w.array[0].tolist()


class NNabla:
    def __init__(self):
        import nnabla
        import nnabla.functions as functions
        import nnabla.solvers as s
        self.nn, self.functions = nnabla, functions
        self.version, self.tolerance = nnabla.__version__, 1e-4  # float32
        self.optimizers = [
            ("sgd(lr=0.1, wd=0.01)", lambda: s.Sgd(0.1)),
            ("sgd(lr=0.1, momentum=0.9, wd=0.01)", lambda: s.Momentum(0.1, 0.9)),
            ("nag(lr=0.1, momentum=0.9, wd=0.01)", lambda: s.Nesterov(0.1, 0.9)),
            ("adam(lr=0.1, wd=0.01)", lambda: s.Adam(0.1)),
            ("adamax(lr=0.1, wd=0.01)", lambda: s.Adamax(0.1)),
            ("rmsprop(lr=0.1, wd=0.01)", lambda: s.RMSprop(0.1)),
            ("centered_rmsprop(lr=0.1, momentum=0.9, rho=0.95, epsilon=1e-8, wd=0.01)",
             lambda: s.RMSpropGraves(0.1, 0.95, 0.9, 1e-8)),
            ("adagrad(lr=0.1, epsilon=1e-8, wd=0.01)", lambda: s.Adagrad(0.1)),
            ("adadelta(lr=1, rho=0.95, wd=0.01)", lambda: s.Adadelta(1.0, 0.95)),
            ("lion(lr=0.01)", lambda: s.Lion(0.01, 0.9, 0.99)),
        ]

    def train(self, make):
        weight = self.nn.Variable((WEIGHTS,), need_grad=True)
        weight.d = START
        solver = make()
        solver.set_parameters({"w": weight})
        for step in range(1, STEPS + 1):
            weight.g = gradient(step, weight.d.astype(np.float64))
            if solver.name != "Lion":
                solver.weight_decay(0.01)
            solver.update()
            yield weight.d.astype(np.float64)

    def updater(self, weight, loss, feed, **options):
        import nnabla.experimental.mixed_precision_training as mixed
        import nnabla.solvers as s
        solver = s.Momentum(options.pop("lr"), options.pop("momentum", 0.0))
        solver.set_parameters({"w": weight})
        return mixed.DynamicLossScalingUpdater(solver, loss, feed, **options)

    def scaling(self):
        """DynamicLossScalingUpdater; with N = -1 it grows with every good step: there is no N with which its first
        pause and the others are equally long."""
        values = [1, 1, 1, BIG, 1, BIG, BIG, 1, 1, 1, BIG, 1, 1]
        x = self.nn.Variable((1,))
        weight = self.nn.Variable((1,), need_grad=True)
        weight.d = 0
        loss = self.functions.sum(weight * x * 1e33)
        fed = []

        def feed():
            x.d = values[len(fed)]
            fed.append(updater.scale)

        updater = self.updater(weight, loss, feed, lr=1e-33, scale=8.0, N=-1)
        weights = {}
        while len(fed) < len(values):
            updater.update()
            weights[len(fed)] = float(weight.d[0])
        numbers = []
        for i in range(1, len(values) + 1):  # what was fed again is an overflow: the next scale, the same weight
            numbers.append(fed[i] if i < len(values) else updater.scale)
            numbers.append(weights.get(i, numbers[-2] if len(numbers) > 1 else 0.0))
        return "dynamic(start=8,interval=1)", values, numbers

    def accumulated(self, parts):
        x, t = self.nn.Variable((6 // parts, 2)), self.nn.Variable((6 // parts, 1))
        weight = self.nn.Variable((2, 1), need_grad=True)
        weight.d = [[0.3], [-0.2]]
        loss = self.functions.sum((self.functions.affine(x, weight) - t)**2) * (1 / (2 * 6))
        fed = []

        def feed():
            data, label = micro_data(len(fed) // parts)
            part = slice(len(fed) % parts * (6 // parts), (len(fed) % parts + 1) * (6 // parts))
            x.d, t.d = data[part], label[part]
            fed.append(part)

        updater = self.updater(weight, loss, feed, lr=0.1, momentum=0.9, accum_grad=parts)
        for _ in range(10):
            updater.update()
            yield from weight.d[:, 0].tolist()


class Formulas:
    """Published rules that none of the others has just so, written down once more."""
    scaling = accumulated = None

    def __init__(self):
        self.version, self.tolerance = "of the papers", 1e-9
        self.optimizers = [
            ("lars(lr=1, eta=0.02, wd=0.01)", self.lars),  # You, Gitman and Ginsburg 2017
            ("lamb(lr=0.02, wd=0.01)", self.lamb),  # You and others 2019
            ("ftrl(lr=0.1, lambda1=0.05, wd=0.01)", self.ftrl),  # McMahan and others 2013
            ("signum(lr=0.01, wd=0.01)", self.signum),  # Bernstein and others 2018
            ("lion(lr=0.01, wd=0.01)", self.lion),  # Chen and others 2023
        ]

    def train(self, rule):
        w, memory = START.copy(), {}
        for step in range(1, STEPS + 1):
            w = rule(step, w, gradient(step, w), memory)
            yield w.copy()

    @staticmethod
    def lars(_, w, g, s):
        norm = np.linalg.norm
        rate = 0.02 * norm(w) / (norm(g) + 0.01 * norm(w))
        s["m"] = 0.9 * s.get("m", 0) + rate * (g + 0.01 * w)
        return w - s["m"]

    @staticmethod
    def lamb(t, w, g, s):
        s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
        s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
        u = s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-6) + 0.01 * w
        return w - 0.02 * np.linalg.norm(w) / np.linalg.norm(u) * u

    @staticmethod
    def ftrl(_, w, g, s):
        rate, l1, l2, beta = 0.1, 0.05, 0.01, 1
        n, z = s.get("n", np.zeros(WEIGHTS)), s.get("z", np.zeros(WEIGHTS))
        sigma = (np.sqrt(n + g * g) - np.sqrt(n)) / rate
        s["z"] = z = z + g - sigma * w
        s["n"] = n = n + g * g
        return np.where(abs(z) <= l1, 0, -(z - np.sign(z) * l1) / ((beta + np.sqrt(n)) / rate + l2))

    @staticmethod
    def signum(_, w, g, s):
        s["m"] = 0.9 * s.get("m", 0) + 0.1 * (g + 0.01 * w)
        return w - 0.01 * np.sign(s["m"])

    @staticmethod
    def lion(_, w, g, s):
        m = s.get("m", 0)
        s["m"] = 0.99 * m + 0.01 * g
        return w - 0.01 * (np.sign(0.9 * m + 0.1 * g) + 0.01 * w)


def ours(program, lines):
    output = subprocess.run([program], input="".join(line + "\n" for line in lines), stdout=subprocess.PIPE, check=True,
                            universal_newlines=True).stdout
    return [np.array([float(x) for x in line.split()[1:]]) for line in output.splitlines() if line.startswith("result")]


def difference(a, b):
    """The largest of all steps, in parts of the largest weight of the step."""
    a, b = np.asarray(a).reshape(-1, np.shape(b)[-1]), np.asarray(b)
    return max(float(abs(x - y).max() / abs(y).max()) for x, y in zip(a, b))


def main():
    systems = {"pytorch": PyTorch, "chainer": Chainer, "nnabla": NNabla, "formulas": Formulas}
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=systems)
    parser.add_argument("--program", required=True)
    arguments = parser.parse_args()
    system = systems[arguments.system]()
    print(f"{arguments.system} {system.version}")
    worst = 0
    results = ours(arguments.program, ["optimizer " + text for text, _ in system.optimizers])
    for (text, make), mine in zip(system.optimizers, results):
        off = difference(mine, list(system.train(make)))
        worst = max(worst, off)
        print(f"  {text}: {off:.1e}", flush=True)
    same = True
    if system.scaling:
        text, values, theirs = system.scaling()
        mine = ours(arguments.program, [f"scale {text} {' '.join(map(str, values))}"])[0]
        same = np.allclose(mine[::2], theirs[::2], rtol=1e-12) and np.allclose(mine[1::2], theirs[1::2], rtol=1e-6)
        scales = " ".join(f"{scale:g}" for scale in theirs[::2])
        print(f"  {text}: scales {scales}: {'the same' if same else f'ours {mine}'}")
        for parts in (1, 3):
            theirs = list(system.accumulated(parts))
            off = difference(ours(arguments.program, [f"micro {parts} 10"])[0], np.reshape(theirs, (-1, 2)))
            same = same and off < 1e-5
            print(f"  accumulation over {parts}: {off:.1e}")
    if not same or not worst <= system.tolerance or math.isnan(worst):
        raise SystemExit(f"{arguments.system}: differs by more than {system.tolerance}")


main()
