"""Measures two programs of the benchmark in turns; compare.sh builds them."""

import argparse
import json
import statistics
import subprocess
import sys

# What a step may take more by itself, beside the noise.
ALLOWED = 1.02
STEPS = {"mlp": 400, "lenet": 40, "resnet20": 8, "resnet50": 3}


def measure(program, model, devices, threads):
    """Medians of the steps of training and of prediction, in milliseconds."""
    command = [program, "--json", "--no-chain", "--model", model, "--device", devices, "--threads", str(threads),
               "--steps", str(STEPS.get(model, 10))]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    results = [json.loads(line) for line in lines]
    return {result["phase"]: result["step_median_ms"] for result in results}


def main():
    parser = argparse.ArgumentParser(prog="compare.sh COMMIT", description=__doc__)
    parser.add_argument("--before", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--now", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--models", default="mlp,lenet,resnet20,resnet50", help="by name, with commas between")
    parser.add_argument("--devices", action="append", help="may be given again; by default cpu:0, and cpu:0,cpu:1")
    parser.add_argument("--threads", type=int, default=0, help="of each device; 0: the cores, shared out")
    options = parser.parse_args()

    slower = 0
    print("| step | now / before: median of pairs | before / before: median, middle half | |\n|---|---|---|---|")
    for model in options.models.split(","):
        for devices in options.devices or ["cpu:0", "cpu:0,cpu:1"]:
            rounds = [[measure(program, model, devices, options.threads)
                       for program in (options.before, options.now, options.before)] for _ in range(options.rounds)]
            for phase in ("train", "predict"):
                # Each beside the mean of what came before and after it.
                ratios = [2 * now[phase] / (first[phase] + last[phase]) for first, now, last in rounds]
                noise = [last[phase] / first[phase] for first, _, last in rounds]
                low, _, high = statistics.quantiles(noise, n=4) if len(noise) > 1 else (1, 1, 1)
                bound = ALLOWED + (high - low)
                ratio = statistics.median(ratios)
                slower += ratio > bound
                print(f"| {phase} {model} on {devices} | {ratio:.3f} | {statistics.median(noise):.3f}, {low:.3f} to "
                      f"{high:.3f} | {'slower' if ratio > bound else ''} |", flush=True)
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
