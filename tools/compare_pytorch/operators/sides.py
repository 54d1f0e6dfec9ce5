"""The two sides that run a case: Bindery's program, and PyTorch in this process."""

import json
import subprocess

import numpy
import torch

GROUPS = ("predict", "train", "write", "add", "state")  # of arrays, as run.cc has them


def describe(tensor):
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}


def listed(outputs):
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


class Bindery:
    """The program in another process."""

    def __init__(self, program, threads):
        command = [program, "--threads", str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, case, heads, gradients, seconds=None):
        """Arrays by group and name, or times if `seconds` are given; or a text that says what is wrong."""
        inputs = [i.value.detach().contiguous() for i in case.inputs]
        gradients = [] if case.loss else [g.contiguous() for g in gradients]
        described = [
            {
                **describe(i.value),
                "name": i.name,
                "layout": i.layout or "-" * i.value.dim(),
                "role": i.role,
                "grad": i.grad,
            }
            for i in case.inputs
        ]
        request = {
            "op": case.op,
            "attrs": case.attrs,
            "inputs": described,
            "heads": list(heads),
            "head_gradients": [describe(g) for g in gradients],
        }
        if seconds is not None:
            request["seconds"] = seconds
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        for array in inputs + gradients:
            self.process.stdin.write(array.numpy().tobytes())
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"Bindery's program ended with status {self.process.wait()}")
        answer = json.loads(line)
        return self._read(answer["arrays"]) if "arrays" in answer else answer.get("error", answer)

    def _read(self, arrays):
        groups = {group: {} for group in GROUPS}
        for array in arrays:
            dtype, shape = numpy.dtype(array["dtype"]), array["shape"]
            data = self.process.stdout.read(int(numpy.prod(shape)) * dtype.itemsize)
            value = torch.from_numpy(numpy.frombuffer(data, dtype).reshape(shape).copy())
            groups[array["group"]][array["name"]] = value
        return groups


class PyTorch:
    """A case computed in some type of element; `groups` are then what Bindery should give."""

    def __init__(self, case, dtype, heads=None):
        self.case = case
        self.values = [i.value.to(dtype) if i.value.is_floating_point() else i.value for i in case.inputs]
        self.groups = {group: {} for group in GROUPS}
        outputs = self.predict()
        self.groups["predict"] = {str(i): y for i, y in enumerate(outputs)}
        self.wanted = [i for i, given in enumerate(case.inputs) if given.grad]
        if heads is None and self.wanted:
            heads = [i for i, y in enumerate(outputs) if y.is_floating_point()] if case.heads is None else case.heads
        self.heads = heads or []
        if not self.heads:
            return
        for i in self.wanted:
            self.values[i] = self.values[i].detach().requires_grad_()
        self.groups["train"] = {str(i): y.detach() for i, y in enumerate(self.forward())}
        if case.state:
            self.groups["state"] = {name: value.detach() for name, value in case.state(*self.values).items()}

    def predict(self):
        with torch.no_grad():
            return listed((self.case.predict or self.case.function)(*self.values))

    def forward(self):
        outputs = listed(self.case.function(*self.values))
        self.outputs = [outputs[i] for i in self.heads]
        return self.outputs

    def backward(self, gradients):
        """Of the outputs of the last forward."""
        if not self.heads:
            return
        roots = [(y, g.to(y.dtype)) for y, g in zip(self.outputs, gradients)]
        if self.case.loss:
            loss = self.case.loss(*self.values)
            roots = [(loss, torch.ones_like(loss))]
        roots = [(y, g) for y, g in roots if y.requires_grad]
        inputs = [self.values[i] for i in self.wanted]
        found = [None] * len(inputs)
        if roots:
            found = torch.autograd.grad([y for y, _ in roots], inputs, [g for _, g in roots], allow_unused=True)
        for place, value, gradient in zip(self.wanted, inputs, found):
            gradient = torch.zeros_like(value) if gradient is None else gradient
            name = self.case.inputs[place].name
            self.groups["write"][name] = gradient
            self.groups["add"][name] = gradient * 2 + 1
