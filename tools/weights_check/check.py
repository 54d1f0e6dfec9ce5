"""Exchanges files of weights with numpy and safetensors; see check.sh."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

TYPES = {
    "bool": np.bool_, "uint8": np.uint8, "int8": np.int8, "uint16": np.uint16, "int16": np.int16,
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "uint32": np.uint32, "int32": np.int32,
    "float32": np.float32, "uint64": np.uint64, "int64": np.int64, "float64": np.float64,
}  # as safetensors calls them

failures = []


def expect(what, ok):
    print(("ok      " if ok else "FAILED  ") + what)
    if not ok:
        failures.append(what)


def same(a, b):
    """Names, types, shapes and bits; bfloat16 comes out of an .npz as void elements of two bytes."""
    def plain(array):
        return array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array
    a, b = {k: plain(v) for k, v in a.items()}, {k: plain(v) for k, v in b.items()}
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a)


def arrays():
    random = np.random.default_rng(1)
    values = {}
    for name, dtype in TYPES.items():
        for shape in [(), (0, 3), (7,), (2, 3, 5)]:
            numbers = random.integers(0, 2 if name == "bool" else 100, shape)
            values[f"{name}/{len(shape)}"] = np.asarray(numbers).astype(dtype).reshape(shape)
    values["größe \"x\"\n"] = np.arange(6, dtype=np.float32).reshape(2, 3)
    return values


def load_safetensors(path):
    known = {"BOOL": np.bool_, "BF16": ml_dtypes.bfloat16}
    for kind, name in [("F", "float"), ("I", "int"), ("U", "uint")]:
        for bits in (8, 16, 32, 64):
            if hasattr(np, f"{name}{bits}"):
                known[f"{kind}{bits}"] = getattr(np, f"{name}{bits}")
    with open(path, "rb") as file:
        return {name: np.frombuffer(bytes(tensor["data"]), dtype=known[tensor["dtype"]]).reshape(tensor["shape"])
                for name, tensor in safetensors.deserialize(file.read())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program

    def bindery(*words):
        return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout

    values = arrays()
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        safetensors.numpy.save_file(values, at("theirs.safetensors"), {"format": "pt", "a": "ä\n"})
        np.savez(at("theirs.npz"), **{k: v for k, v in values.items()})
        np.savez_compressed(at("packed.npz"), **values)
        np.savez(at("fortran.npz"), x=np.asfortranarray(np.arange(24, dtype=">f8").reshape(2, 3, 4)))
        for name in ("theirs.safetensors", "theirs.npz", "packed.npz"):
            stem, ending = name.split(".")
            good = json.loads(bindery("verify", "--json", at(name)))
            expect(f"verify {name}: {len(values)} tensors", good["good"] and good["tensors"] == len(values))
            for to in ("safetensors", "npz"):
                ours = at(f"of-{stem}-{ending}.{to}")
                bindery("convert", at(name), ours)
                loaded = load_safetensors(ours) if to == "safetensors" else dict(np.load(ours))
                expect(f"{name} as .{to}, read by {'safetensors' if to == 'safetensors' else 'numpy'}",
                       same(loaded, values))
        with safetensors.safe_open(at("of-theirs-safetensors.safetensors"), framework="numpy") as file:
            expect("metadata", file.metadata() == {"format": "pt", "a": "ä\n"})
            expect("a tensor by safe_open", np.array_equal(file.get_tensor("float32/3"), values["float32/3"]))
        bindery("convert", at("fortran.npz"), at("c.npz"))
        c = np.load(at("c.npz"))["x"]
        expect("Fortran's order and big endian", np.array_equal(c, np.arange(24).reshape(2, 3, 4)) and c.dtype == "<f8")

        # A model's parameters, and back.
        subprocess.run([program, "train", "--model", "mlp", "--train-digits", "100", "--test-digits", "50", "--epochs",
                        "1", "--save", at("net.pb"), "--checkpoints="], check=True, capture_output=True)
        bindery("convert", at("net.pb"), at("net.safetensors"))
        net = safetensors.numpy.load_file(at("net.safetensors"))
        expect("a model's tensors", net["fc1_weight"].shape == (128, 784) and len(net) == 6)
        for array in net.values():
            array *= 2
        safetensors.numpy.save_file(net, at("twice.safetensors"))
        bindery("convert", at("twice.safetensors"), at("twice.pb"), "--model", "mlp")
        bindery("convert", at("twice.pb"), at("twice.npz"))
        expect("there and back", same(dict(np.load(at("twice.npz"))), net))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
