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


def as_written(module, path):
    """Running values move while a module is traced: those in the file count."""
    state = module.state_dict()
    for tensor in onnx.load(path).graph.initializer:
        if tensor.name in state and 'running' in tensor.name:
            state[tensor.name] = torch.tensor(numpy_helper.to_array(tensor).copy())
    module.load_state_dict(state)


def losses(module, data, label):
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)
    values = []
    module.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = module(data)
        loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), label.reshape(-1))
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


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
        expected = losses(module, data, label) if form == 'traced' or not has_batch_norm else []
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
            ok = forward <= 1e-5 and back <= 1e-5 and first <= 1e-5 and worst <= 1e-3
            good = good and ok
            print(f'{name:10} {form:9} {devices:12} outputs {forward:.1e}, exported again {back:.1e}, first loss '
                  f'{first:.1e}, {len(off)} steps {worst:.1e}{"" if ok else "  WRONG"}', flush=True)
    return good


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
    sys.exit(0 if good else 1)


main()
