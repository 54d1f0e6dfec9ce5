"""Exports networks by PyTorch, has Bindery import, train and export them, and compares (check.sh)."""

import argparse
import struct
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F

from networks import networks

STEPS, RATE = 20, 0.003
DTYPES = {torch.float32: 0, torch.int64: 6}  # as base/dtype.h numbers them


def write(path, tensor):
    head = struct.pack(f'<ii{tensor.dim()}q', DTYPES[tensor.dtype], tensor.dim(), *tensor.shape)
    path.write_bytes(head + tensor.detach().contiguous().numpy().tobytes())


def export(module, data, path, form):
    """`form`: by tracing, with batch-norm as it is trained; or by the newer exporter, for inference. The batch is open."""
    if form == 'traced':
        torch.onnx.export(module.train(), (data,), path, dynamo=False, opset_version=17, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, input_names=['x'],
                          dynamic_axes={'x': {0: 'batch'}})
    else:
        torch.onnx.export(module.eval(), (data,), path, dynamo=True, external_data=False, verbose=False,
                          dynamic_shapes=({0: torch.export.Dim('batch')},))


def read(path):
    content = path.read_bytes()
    dtype, rank = struct.unpack_from('<ii', content)
    shape = struct.unpack_from(f'<{rank}q', content, 8)
    return torch.frombuffer(bytearray(content[8 + 8 * rank:]), dtype=torch.float32).reshape(shape)


def as_written(module, path):
    """Running values move while a module is traced: those in the file count."""
    state = module.state_dict()
    for tensor in onnx.load(path).graph.initializer:
        if tensor.name in state and 'running' in tensor.name:
            state[tensor.name] = torch.tensor(numpy_helper.to_array(tensor).copy())
    module.load_state_dict(state)


def losses(module, data, label):
    """Before each step; all elements of the parameters before the first, and the loss's gradients by them."""
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)
    values = []
    module.train()
    for step in range(STEPS):
        optimizer.zero_grad()
        output = module(data)
        loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), label.reshape(-1))
        loss.backward()
        if step == 0:
            elements = torch.cat([p.detach().flatten().clone() for p in module.parameters()])
            gradients = torch.cat([p.grad.flatten().clone() for p in module.parameters()])
        optimizer.step()
        values.append(loss.item())
    return values, elements, gradients


def worst_gradient(folder, elements, gradients):
    """Of the differences, each relative to the largest gradient of its parameter, or a thousandth of the network's.

    Parameters of a file are PyTorch's, but transposed, joined or with gates in another order: elements are found by
    their values. Few are there more than once, and are left out.
    """
    elements, order = elements.sort()
    gradients = gradients[order]
    once = torch.ones(len(elements), dtype=torch.bool)
    same = elements[1:] == elements[:-1]
    once[1:] &= ~same
    once[:-1] &= ~same
    found = torch.zeros(len(elements), dtype=torch.bool)
    worst = 0
    for path in (folder / 'values').iterdir():
        values, got = read(path).flatten(), read(folder / 'gradients' / path.name).flatten()
        places = torch.searchsorted(elements, values).clamp(max=len(elements) - 1)
        if not torch.equal(elements[places], values):
            raise ValueError(f'parameter {path.name} has other elements than PyTorch')
        found[places] = True
        counted, expected = once[places], gradients[places]
        if counted.float().mean() < 0.5:
            raise ValueError(f'parameter {path.name}: most elements are there more than once')
        scale = max(expected.abs().max(), 1e-3 * gradients.abs().max())
        worst = max(worst, ((got - expected)[counted].abs().max() / scale).item())
    if not found[once].all():
        raise ValueError('parameters are missing')
    return worst


def check(program, name, module, data, folder):
    has_batch_norm = any(isinstance(m, nn.BatchNorm2d) for m in module.modules())
    good = True
    # The newer exporter writes equal weights once, for all layers: which of them were one is lost.
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    initial = {key: value.clone() for key, value in module.state_dict().items()}
    for form in ('traced', 'exported'):
        module.load_state_dict(initial)
        path = folder / f'{name}_{form}.onnx'
        export(module, data, path, form)
        module.load_state_dict(initial)
        as_written(module, path)
        output = module.eval()(data)
        label = torch.randint(0, output.shape[-1], output.shape[:-1])
        write(folder / 'data', data)
        write(folder / 'output', output)
        write(folder / 'label', label.float())
        # The newer exporter folds batch-norm into convolutions, and another network is trained.
        compares = form == 'traced' or not has_batch_norm
        expected, elements, gradients = losses(module, data, label) if compares else ([], None, None)
        # A device normalises by its own share, so two are compared without batch-norm.
        for devices in ('cpu:0',) if has_batch_norm else ('cpu:0', 'cpu:0,cpu:1'):
            again = folder / 'again.onnx'
            run = subprocess.run([program, '--model', path, '--folder', folder, '--devices', devices, '--again', again,
                                  '--steps', str(len(expected)), '--rate', str(RATE)], capture_output=True, text=True)
            if run.returncode != 0:
                print(f'{name:10} {form:9} {devices:12} {run.stderr.strip()}')
                good = False
                continue
            numbers = [float(line) for line in run.stdout.split()]
            forward, got = numbers[0], numbers[1:]
            onnx.checker.check_model(again)
            session = onnxruntime.InferenceSession(again)
            back = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: data.numpy()})[0])
            back = ((back - output).abs().max() / output.abs().max()).item()
            off = [abs(a / b - 1) for a, b in zip(got, expected)]
            first, worst = (off[0], max(off)) if off else (0, 0)
            slope = worst_gradient(folder, elements, gradients) if compares else 0
            ok = forward <= 1e-5 and back <= 1e-5 and first <= 1e-5 and slope <= 1e-4 and worst <= 1e-3
            good = good and ok
            print(f'{name:10} {form:9} {devices:12} outputs {forward:.1e}, exported again {back:.1e}, first loss '
                  f'{first:.1e}, gradients {slope:.1e}, {len(off)} steps {worst:.1e}{"" if ok else "  WRONG"}', flush=True)
    return good


ZOO = ['mlp', 'lenet', 'resnet20', 'resnet18', 'resnet34', 'resnet50', 'mobilenetv2', 'vgg11', 'unet', 'gpt', 'lstm',
       'transformer']


def check_zoo(program, name, folder):
    """What ONNX Runtime computes of one of Bindery's models."""
    again = folder / 'zoo.onnx'
    run = subprocess.run([program, '--zoo', name, '--folder', folder, '--again', again], capture_output=True, text=True)
    if run.returncode != 0:
        print(f'zoo, {name}: {run.stderr.strip()}')
        return False
    onnx.checker.check_model(again)
    session = onnxruntime.InferenceSession(again)
    output = read(folder / 'output')
    got = torch.from_numpy(session.run(None, {i.name: read(folder / i.name).numpy() for i in session.get_inputs()})[0])
    off = ((got - output).abs().max() / output.abs().max()).item()
    print(f'zoo, {name:12} exported {off:.1e}{"" if off <= 1e-5 else "  WRONG"}', flush=True)
    return off <= 1e-5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--program', required=True)
    parser.add_argument('names', nargs='*')
    options = parser.parse_args()
    warnings.filterwarnings('ignore')
    torch.manual_seed(0)
    torch.set_num_threads(1)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name, (module, data) in networks().items():
            if not options.names or name in options.names:
                good = check(options.program, name, module, data, Path(folder)) and good
        for name in ZOO:
            if not options.names or name in options.names or 'zoo' in options.names:
                good = check_zoo(options.program, name, Path(folder)) and good
    sys.exit(0 if good else 1)


main()
