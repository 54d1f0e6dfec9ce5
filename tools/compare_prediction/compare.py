"""Predictions of Bindery beside ONNX Runtime's, of the same exported models: see compare.sh."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import onnxruntime

CASES = ["mlp:1", "mlp:64", "lenet:1", "lenet:64", "resnet20:1", "resnet20:128", "resnet50:1", "resnet50:16"]
TOLERANCE = 1e-4  # of outputs, relative to the largest


class Ours:
    def __init__(self, program, model, batch, threads, folder, fold):
        command = [program, "--model", model, "--batch-size", str(batch), "--threads", str(threads), "--folder", folder]
        if not fold:
            command.append("--no-fold")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare: {' '.join(command)} failed")
        self.shape = [int(extent) for extent in line.split()]

    def run(self, times):
        self.process.stdin.write(f"{times}\n")
        self.process.stdin.flush()
        return [int(nanoseconds) * 1e-6 for nanoseconds in self.process.stdout.readline().split()]

    def end(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit("compare: our side failed")


class Theirs:
    """With inputs and outputs bound, so that nothing is copied."""

    def __init__(self, path, data, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        name, output = self.session.get_inputs()[0].name, self.session.get_outputs()[0].name
        self.output = self.session.run([output], {name: data})[0]
        self.binding = self.session.io_binding()
        self.bound = onnxruntime.OrtValue.ortvalue_from_numpy(data), onnxruntime.OrtValue.ortvalue_from_numpy(self.output)
        self.binding.bind_ortvalue_input(name, self.bound[0])
        self.binding.bind_ortvalue_output(output, self.bound[1])

    def run(self, times):
        taken = []
        for _ in range(times):
            begin = time.perf_counter_ns()
            self.session.run_with_iobinding(self.binding)
            taken.append((time.perf_counter_ns() - begin) * 1e-6)
        return taken


def compare(case, threads, args):
    model, batch = case.rsplit(":", 1)
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(args.program, model, int(batch), threads, folder, not args.no_fold)
        data = numpy.fromfile(Path(folder) / "data", numpy.float32).reshape(ours.shape)
        theirs = Theirs(str(Path(folder) / "model.onnx"), data, threads)
        output = numpy.fromfile(Path(folder) / "output", numpy.float32).reshape(theirs.output.shape)
    difference = float(numpy.abs(output - theirs.output).max() / numpy.abs(theirs.output).max())
    equal = difference <= TOLERANCE
    times = max(1, round(args.milliseconds / statistics.median(ours.run(3))))
    a, b = [], []
    for turn in range(args.pairs + 1):  # the first warms both up
        for side, found in ((ours, a), (theirs, b)):
            time.sleep(0.005)  # the other's threads stop waiting for work
            taken = side.run(1 + times)[1:]
            if turn > 0:
                found.append(taken)
    ours.end()
    medians = [statistics.median(x) / statistics.median(y) for x, y in zip(a, b)]
    least = min(min(x) for x in a), min(min(y) for y in b)
    print(
        f"{model:>12} {batch:>5} {threads:>7} {least[0]:>10.3f} {least[1]:>10.3f} {least[0] / least[1]:>7.2f}"
        f" {statistics.median(map(statistics.median, a)):>10.3f} {statistics.median(map(statistics.median, b)):>10.3f}"
        f" {statistics.median(medians):>7.2f} {difference:>10.1e}{'' if equal else '  DIFFERS'}",
        flush=True,
    )
    return equal


def main():
    parser = argparse.ArgumentParser(description="Predictions beside ONNX Runtime's.")
    parser.add_argument("cases", nargs="*", default=CASES, help="MODEL:BATCH; default: %(default)s")
    parser.add_argument("--program", required=True)
    parser.add_argument("--threads", default="1,2", help="numbers, with commas between; default %(default)s")
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--milliseconds", type=float, default=50, help="of each turn, about")
    parser.add_argument("--no-fold", action="store_true", help="keep our batch-norms by themselves")
    args = parser.parse_args()
    print(f"ONNX Runtime {onnxruntime.__version__}; milliseconds; ratios are ours / theirs")
    print("       model batch threads        min     theirs   ratio     median     theirs   ratio difference")
    results = [compare(case, threads, args) for threads in map(int, args.threads.split(",")) for case in args.cases]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
