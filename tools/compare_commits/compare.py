"""Measures two programs of the benchmark in turns; compare.sh builds them."""

import argparse
import json
import math
import statistics
import subprocess
import sys

ALLOWED = 1.02
STEPS = {"mlp": 400, "lenet": 40, "resnet20": 8, "resnet50": 3}


def measure(program, model, devices, threads):
    """Medians of the steps of training and of prediction, in milliseconds."""
    command = [program, "--json", "--no-chain", "--model", model, "--device", devices, "--threads", str(threads),
               "--steps", str(STEPS.get(model, 10))]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    results = [json.loads(line) for line in lines]
    return {result["phase"]: result["step_median_ms"] for result in results}


def median(ratios):
    """It, and what is known of it, 19 times of 20, from the spread of the middle half (McGill's notches)."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    reach = 1.57 * (high - low) / math.sqrt(len(ratios))
    return middle, middle - reach, middle + reach


def main():
    parser = argparse.ArgumentParser(prog="compare.sh COMMIT", description=__doc__)
    parser.add_argument("--before", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--now", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=11, help="at least 3; default: %(default)s")
    parser.add_argument("--models", default="mlp,lenet,resnet20,resnet50", help="by name, with commas between")
    parser.add_argument("--devices", action="append", help="may be given again; by default cpu:0, and cpu:0,cpu:1")
    parser.add_argument("--threads", type=int, default=0, help="of each device; 0: the cores, shared out")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("--rounds: at least 3")

    slower = 0
    print("| step | now / before: median of pairs, its interval | before / before | |\n|---|---|---|---|", flush=True)
    for model in options.models.split(","):
        for devices in options.devices or ["cpu:0", "cpu:0,cpu:1"]:
            rounds = [[measure(program, model, devices, options.threads)
                       for program in (options.before, options.now, options.before)] for _ in range(options.rounds)]
            for phase in ("train", "predict"):
                # Each beside the mean of what came before and after it.
                ratios = [2 * now[phase] / (first[phase] + last[phase]) for first, now, last in rounds]
                ratio, low, high = median(ratios)
                noise, noise_low, noise_high = median([last[phase] / first[phase] for first, _, last in rounds])
                slower += low > ALLOWED
                print(f"| {phase} {model} on {devices} | {ratio:.3f}, {low:.3f} to {high:.3f} | {noise:.3f}, "
                      f"{noise_low:.3f} to {noise_high:.3f} | {'slower' if low > ALLOWED else ''} |", flush=True)
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
