"""Reads the event files of a training by TensorBoard; see check.sh."""

import argparse
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

import numpy as np
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.backend.event_processing import directory_loader
from tensorboard.backend.event_processing import io_wrapper
from tensorboard.compat.proto import graph_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.summary.writer import record_writer
from tensorboard.util import tensor_util

failures = []


def expect(what, ok):
    print(("ok      " if ok else "FAILED  ") + what)
    if not ok:
        failures.append(what)


def train(program, folder, epochs, more=()):
    command = [program, "train", "--model", "lenet", "--train-digits", "200", "--test-digits", "50", "--epochs",
               str(epochs), "--json", "--tensorboard", folder + "/run", "--checkpoints", folder + "/checkpoints", *more]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == "epoch"]


def write_tf_records(path, rows, labels):
    """A tf.train.Example of each row, "x", and its label, "y", in records as TensorBoard writes them."""
    def field(number, content):  # in protobuf's encoding; less than 128 bytes
        return bytes([number << 3 | 2, len(content)]) + content

    def feature(name, kind, values):
        return field(1, field(1, name.encode()) + field(2, field(kind, field(1, values))))

    with open(path, "wb") as file:
        writer = record_writer.RecordWriter(file)
        for row, label in zip(rows, labels):
            writer.write(field(1, feature("x", 2, row.astype("<f4").tobytes()) + feature("y", 3, bytes([label]))))
        writer.flush()


def kinds(program, folder):
    """Data of every kind, small: names, and the lines that name them."""
    for to in ("images:" + folder + "/pictures", folder + "/idx"):
        subprocess.run([program, "train", "--model", "mlp", "--train-digits", "40", "--test-digits", "20", "--epochs",
                        "1", "--checkpoints=", "--write-digits", to], check=True, capture_output=True)
    y = np.arange(40) % 3
    x = np.random.default_rng(1).random((40, 3, 4)).astype(np.float32) + y[:, None, None]
    np.save(folder + "/x.npy", x)
    np.save(folder + "/y.npy", y)
    np.savez(folder + "/xy.npz", x=x, y=y)
    np.savetxt(folder + "/rows.csv", np.hstack([x[:, 0], y[:, None]]), "%g", ",")
    with open(folder + "/text", "w") as text:
        text.write("abcab\n" * 40)
    with tarfile.open(folder + "/digits.tar", "w") as archive:
        for label in sorted(os.listdir(folder + "/pictures/train")):
            for name in os.listdir(folder + "/pictures/train/" + label):
                record = f"{label}-{name[:-4]}"
                archive.add(f"{folder}/pictures/train/{label}/{name}", record + ".png")
                info = tarfile.TarInfo(record + ".cls")
                info.size = len(label)
                archive.addfile(info, io.BytesIO(label.encode()))
    write_tf_records(folder + "/rows.tfrecord", x[:, 0], y)
    return {
        "csv": f"csv:{folder}/rows.csv",
        "npy": f"npy:{folder}/x.npy?labels={folder}/y.npy",
        "npz": f"npz:{folder}/xy.npz",
        "images": f"images:{folder}/pictures/train",
        "tar": f"tar:{folder}/digits.tar?size=28&channels=1",
        "TFRecord": f"tfrecord:{folder}/rows.tfrecord?data=x&label=y",
        "IDX": folder + "/idx",
        "text": f"text:{folder}/text",
    }


def check_kind(program, folder, kind, data):
    """A training on it: its last values are among the events."""
    model = "gpt(layers=1, width=16, heads=2, context=8)" if kind == "text" else "mlp"
    command = [program, "train", "--model", model, "--data", data, "--batch-size", "12", "--epochs", "1", "--json",
               "--tensorboard", f"{folder}/events-{kind}", "--checkpoints="]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    wanted = [line for line in map(json.loads, lines) if line["event"] == "epoch"][-1]["test"]["cross-entropy"]
    read = event_accumulator.EventAccumulator(f"{folder}/events-{kind}")
    read.Reload()
    tag = "validation/cross-entropy"
    if tag in read.Tags()["scalars"]:
        got = read.Scalars(tag)[-1].value
    else:
        got = tensor_util.make_ndarray(read.Tensors(tag)[-1].tensor_proto).item()
    expect(f"{kind}: {tag}: {got} is {wanted}", abs(got - wanted) <= 1e-6 * max(1, abs(wanted)))


def png_size(png):
    """Columns and rows, and whether all its parts have the right checksums."""
    at, good = 8, png[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(png):
        (length,) = struct.unpack(">I", png[at:at + 4])
        part = png[at + 4:at + 8 + length]
        good = good and zlib.crc32(part) == struct.unpack(">I", png[at + 8 + length:at + 12 + length])[0]
        at += 12 + length
    return (*struct.unpack(">II", png[16:24]), good)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    with tempfile.TemporaryDirectory() as folder:
        epochs = train(program, folder, 2)
        epochs += train(program, folder, 3, ["--resume"])
        # All records, with their checksums, as TensorBoard migrates them to what its plugins read.
        loader = directory_loader.DirectoryLoader(
            folder + "/run", event_file_loader.TimestampedEventFileLoader, path_filter=io_wrapper.IsTensorFlowEventsFile)
        events = list(loader.Load())
        expect(f"{len(events)} events of two files", len(events) > 20)
        plugins, settings = {}, {}
        for event in events:
            for value in event.summary.value:
                name = value.metadata.plugin_data.plugin_name
                if name:
                    plugins[value.tag] = name
                if name == "hparams":
                    settings[value.tag] = plugin_data_pb2.HParamsPluginData.FromString(
                        value.metadata.plugin_data.content)
        # The older reader, which keeps values by their kind, and drops what a restart replaces.
        read = event_accumulator.EventAccumulator(
            folder + "/run", size_guidance={kind: 0 for kind in event_accumulator.DEFAULT_SIZE_GUIDANCE})
        read.Reload()
        tensors = {tag: read.Tensors(tag) for tag in read.Tags()["tensors"]}

        def numbers(tag):
            values = {e.step: tensor_util.make_ndarray(e.tensor_proto).item() for e in tensors.get(tag, [])}
            values.update({e.step: e.value for e in (read.Scalars(tag) if tag in read.Tags()["scalars"] else [])})
            return values

        for epoch in epochs:
            for place, values in (("train", epoch["train"]), ("validation", epoch["test"])):
                for name, value in values.items():
                    got = numbers(f"{place}/{name}").get(epoch["step"])
                    expect(f"{place}/{name} at step {epoch['step']}: {got} is {value}",
                           got is not None and abs(got - value) <= 1e-6 * max(1, abs(value)))
        weights = "main/conv1_weight"
        steps = sorted({e.step for e in tensors.get(weights, [])} |
                       ({e.step for e in read.Histograms(weights)} if weights in read.Tags()["histograms"] else set()))
        expect(f"histograms of {weights} at {steps}", steps == [epoch["step"] for epoch in epochs])
        if weights in tensors:
            counts = tensor_util.make_ndarray(tensors[weights][-1].tensor_proto)[:, 2].sum()
            expect(f"{counts:g} values in the last, of 20 x 1 x 5 x 5", counts == 500)
        images = [e.encoded_image_string for e in read.Images("test/0")] if "test/0" in read.Tags()["images"] else [
            tensor_util.make_ndarray(e.tensor_proto)[2] for e in tensors["test/0"]]
        expect(f"an image of {png_size(images[0])}", png_size(images[0]) == (28, 28, True))
        graph = read.Graph()
        operators = {node.name: node.op for node in graph.node}
        expect(f"a graph of {len(operators)} nodes", operators.get("conv1") == "Convolution")
        shapes = [[dim.size for dim in shape.dim] for node in graph.node if node.name == "conv1"
                  for shape in node.attr["_output_shapes"].list.shape]
        expect(f"conv1 gives {shapes}", shapes == [[64, 20, 24, 24]])
        assert isinstance(graph, graph_pb2.GraphDef)
        start = settings["_hparams_/session_start_info"].session_start_info
        expect("settings: " + ", ".join(sorted(start.hparams)), start.hparams["batch size"].number_value == 64)
        expect("the run ended well", settings["_hparams_/session_end_info"].session_end_info.status == 1)
        expect("plugins: " + ", ".join(sorted(set(plugins.values()))),
               {"scalars", "histograms", "images", "hparams"} <= set(plugins.values()))
        for kind, data in kinds(program, folder).items():
            check_kind(program, folder, kind, data)
    if failures:
        sys.exit(f"{len(failures)} failed")
    print("all as it was written")


if __name__ == "__main__":
    main()
