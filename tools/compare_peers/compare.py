"""Trains and predicts with Bindery and with its peers, each in the best setting that a search finds, in turns.

Started by compare.sh. Equal work is verified by equal losses, of equal weights on an equal batch. The exit status is 0
if every row has peers, and no losses differ.
"""

import argparse
import datetime
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile

import report
from peers import PEERS, Configuration, Option, Work
from protocol import Failure, Side, end_all, ended_on_failure

HERE = os.path.dirname(os.path.abspath(__file__))
# Of gradient descent. Roundings grow in ResNet-50 at the first rate: losses of JAX and PyTorch part by 3e-3 in a step.
RATE, RATE_OF_RESNET50, MOMENTUM = 1e-3, 1e-6, 0.9
# What an earlier run must have in common with one that goes on with it.
SAME = ("machine", "threads", "rounds", "turn_ms", "trials", "trial_ms", "search", "commit")
TUNINGS = ("off", "measured", "winograd")
CHECKED = 4  # losses: the first tells of forward, the others of updates, too
FIRST_BOUND, LATER_BOUND = 1e-4, 1e-3  # relative

# By name: as the zoo calls it, and the batches.
MODELS = {
    "mlp": ("mlp", {"train": (1, 64), "predict": (1, 64)}),
    "lenet": ("lenet", {"train": (64,), "predict": (1, 64)}),
    "resnet20": ("resnet20", {"train": (128,), "predict": (1, 128)}),
    "resnet50": ("resnet50", {"train": (16,), "predict": (1, 16)}),
    "gpt": ("gpt(layers=6, width=384, heads=6, context=256, classes=65)", {"train": (4,), "predict": (1, 4)}),
    "lstm": ("lstm(layers=2, width=650, context=35, classes=10000)", {"train": (20,), "predict": (1, 20)}),
}


class Unequal(Failure):
    """Losses differ: not the same work."""


def check(found, expected):
    for i, (loss, wanted) in enumerate(zip(found, expected)):
        bound = LATER_BOUND if i else FIRST_BOUND
        if not abs(loss - wanted) <= bound * abs(wanted):  # NaN is not good
            raise Unequal(f"loss {i + 1} is {loss:.7g}, ours {wanted:.7g}: not within {bound:g}")


def turn(side, steps):
    """Milliseconds of steps after a first one, in which threads and caches come back."""
    return side.run(1 + steps)[1:]


def steps_for(side, milliseconds):
    return max(1, round(milliseconds / statistics.median(turn(side, 3))))


class Comparison:
    """Of one model, batch and phase."""

    def __init__(self, options, name, batch, phase, variant, folder):
        self.options, self.name, self.batch, self.phase, self.folder = options, name, batch, phase, folder
        self.variant = variant  # our options, as text
        self.work = Work(MODELS[name][0], batch, phase == "train", len(options.cores), options.libraries)
        self.common = ["--model", self.work.model, "--batch-size", str(batch), "--phase", phase]
        self.rate = RATE_OF_RESNET50 if name == "resnet50" else RATE
        self.expected = {}  # losses, by the number of contexts
        self.left_out = []  # (who, why)
        self.error = None

    def leave_out(self, who, why):
        self.left_out.append((who, str(why)))
        print(f"  left out: {who}: {why}", flush=True)

    def start_ours(self, devices):
        command = [self.options.program, *self.common, "--folder", self.folder]
        command += ["--device", ",".join(f"cpu:{i}" for i in range(devices))]
        command += ["--threads", str(max(1, self.work.threads // devices))]
        command += ["--optimizer", f"sgd(lr={self.rate}, momentum={MOMENTUM})", *self.variant.split()]
        return Side(command, dict(os.environ), self.options.cores, self.options.timeout)

    def write(self):
        """What the others start from. Says what they cannot have."""
        side = self.start_ours(1)
        with ended_on_failure(side):
            side.write()
        complaint = side.complaint()
        side.end()
        return complaint

    def ours(self, devices):
        side = self.start_ours(devices)
        with ended_on_failure(side):
            side.make(CHECKED)
        side.configuration = Configuration((Option(self.variant),))
        return side

    def expect(self, contexts):
        """Batch-norm in training is by each context's share: ours is asked on as many devices."""
        contexts = contexts if self.work.training else 1
        if contexts not in self.expected:
            side = self.ours(contexts)
            side.end()
            self.expected[contexts] = side.found
        return self.expected[contexts]

    def start(self, peer, configuration):
        command = [self.options.python[peer], "-W", "ignore", "-B", os.path.join(HERE, PEERS[peer].program)]
        command += [*self.common, "--folder", self.folder, "--threads", str(configuration.threads(self.work.threads))]
        command += ["--rate", str(self.rate), "--momentum", str(MOMENTUM)]
        command += [f"--set={name}={value}" for name, value in configuration.settings.items()]
        side = Side(command, configuration.environment(self.work.threads), configuration.cores(self.options.cores),
                    self.options.timeout)
        with ended_on_failure(side):
            side.make(CHECKED)
            check(side.found, self.expect(configuration.contexts))
        side.configuration = configuration
        return side

    def is_faster(self, side, best):
        """By medians of turns, one after the other."""
        times = {side: [], best: []}
        steps = {each: steps_for(each, self.options.trial_ms) for each in times}
        for each in (side, best) * self.options.trials:
            times[each] += turn(each, steps[each])
        return statistics.median(times[side]) < statistics.median(times[best])

    def searched(self, peer):
        """What is to be tried: options by the setting, of which each has a first one."""
        searched = PEERS[peer].searched(self.work)
        known = self.options.known.get((self.name, self.batch, self.phase, peer))
        if known:
            return {setting: [option for option in options if option.name == name] or options[:1]
                    for (setting, options), name in zip(searched.items(), known)}
        names = {next(iter(searched))} if self.options.quick else self.options.search or searched
        return {setting: options if setting in names else options[:1] for setting, options in searched.items()}

    def search(self, peer):
        """A side in the fastest setting; None, where it does not run."""
        searched = self.searched(peer)
        chosen, best = {setting: options[0] for setting, options in searched.items()}, None
        for setting, options in searched.items():
            for option in options:
                attempt = Configuration(tuple((chosen | {setting: option}).values()))
                if best and (attempt == best.configuration or not attempt.makes_sense):
                    continue
                side = None
                try:
                    side = self.start(peer, attempt)
                    wins = best is None or self.is_faster(side, best)
                except Failure as failure:
                    if best is None and isinstance(failure, Unequal):  # its default: not the network that we have
                        self.error = f"{peer}: {failure}"
                    self.leave_out(f"{peer}, {attempt.name}", failure)
                    if side:
                        side.end()
                    continue
                if wins:
                    best, side, chosen[setting] = side, best, option
                if side:
                    side.end()
            if best is None:
                break
        return best

    def measure(self):
        """The row: all samples of all sides, and what is told of them."""
        complaint = self.write()
        ours = self.ours(1)
        self.expected[1] = ours.found
        sides = {}
        for peer in self.options.peers:
            if self.phase not in PEERS[peer].phases:
                continue
            if peer not in self.options.python:
                self.leave_out(peer, "there is no Python with it")
                continue
            if PEERS[peer].reads and not os.path.exists(os.path.join(self.folder, PEERS[peer].reads)):
                self.leave_out(peer, f"we have not written {PEERS[peer].reads}: {complaint}")
                continue
            side = self.search(peer)
            if side:
                sides[peer] = side
                print(f"  {side.name}: {side.configuration.name}", flush=True)
        told = self.take_turns({"ours": ours, **sides})
        return self.row(told.pop("ours"), told)

    def row(self, ours, peers):
        return {"model": self.name, "text": self.work.model, "batch": self.batch, "phase": self.phase,
                "variant": self.variant, "ours": ours, "peers": peers, "left_out": self.left_out, "error": self.error}

    def take_turns(self, sides):
        """What is told of each, by the same names. A peer that fails is left out."""
        steps, samples, memory = {}, {name: [] for name in sides}, {}

        def each(ask):
            for name, side in list(sides.items()):
                try:
                    ask(name, side)
                except Failure as failure:
                    if name == "ours":
                        raise
                    self.leave_out(f"{name}, {side.configuration.name}", failure)
                    sides.pop(name).end()

        each(lambda name, side: steps.update({name: steps_for(side, self.options.turn_ms)}))
        for _ in range(self.options.rounds):
            each(lambda name, side: samples[name].append(turn(side, steps[name])))
        each(lambda name, side: memory.update({name: side.memory_mib()}))
        for side in sides.values():
            side.end()
        return {name: {"name": side.name, "setting": side.configuration.name,
                       "options": [option.name for option in side.configuration.options],
                       "losses": side.found, "samples": samples[name], "memory_mib": memory[name],
                       "start_ms": side.start_ms, "start_mib": side.started_kib / 1024,
                       "make_ms": side.make_ms}
                for name, side in sides.items()}


def cases(options):
    for text in options.models.split(","):
        name, _, batch = text.partition(":")
        for phase in ("train", "predict"):
            if options.phase in (phase, "both"):
                for size in [int(batch)] if batch else MODELS[name][1][phase]:
                    work = Work(name, size, phase == "train", len(options.cores), {})
                    variants = options.tune if work.has_convolutions else options.tune[:1]
                    for variant in variants + options.mirror * (phase == "train"):
                        yield name, size, phase, variant


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit():
    try:
        return subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def known_settings(path):
    """What an earlier run has found, by row and peer."""
    with open(path) as file:
        rows = json.load(file)["rows"]
    return {(row["model"], row["batch"], row["phase"], peer): side["options"]
            for row in rows for peer, side in row["peers"].items()}


def known_searches():
    """Names of all settings, of whatever work."""
    works = [Work(model, 2, training, 2, {}) for model, _ in MODELS.values() for training in (True, False)]
    return sorted({setting for peer in PEERS.values() for work in works for setting in peer.searched(work)})


def rows_of(path, result):
    """Of an earlier run that was like this one; none, where there was no run."""
    try:
        with open(path) as file:
            earlier = json.load(file)
    except FileNotFoundError:
        return {}
    for what in SAME:
        if earlier.get(what) != result[what]:
            sys.exit(f'{path} is of another run: {what} is "{earlier.get(what)}" there, "{result[what]}" here')
    return {(row["model"], row["batch"], row["phase"], row["variant"]): row for row in earlier["rows"]}


def parse():
    parser = argparse.ArgumentParser(prog="compare.sh", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--models", default=",".join(MODELS), help="with or without :BATCH; default: %(default)s")
    parser.add_argument("--phase", choices=["train", "predict", "both"], default="both")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=11, help="of a turn of each side; default: %(default)s")
    parser.add_argument("--turn-ms", type=float, default=500, help="milliseconds of it, about; default: %(default)s")
    parser.add_argument("--trials", type=int, default=3,
                        help="turns that decide between two settings; default: %(default)s")
    parser.add_argument("--trial-ms", type=float, default=300, help="of such a turn; default: %(default)s")
    parser.add_argument("--threads", type=int, help="of each side; default: the cores that it may use")
    parser.add_argument("--tune", default="off",
                        help="how our convolutions are chosen, a row for each: off,measured,winograd; default: off")
    parser.add_argument("--mirror", action="store_true",
                        help="one more row for each training: ours in the least memory, values computed again")
    parser.add_argument("--quick", action="store_true", help="3 rounds of short turns, one setting searched")
    parser.add_argument("--search", type=lambda text: text.split(","), metavar="SETTINGS",
                        help="only these, as peers.py calls them: way,contexts,allocator")
    parser.add_argument("--settings", metavar="FILE", help="of an earlier run's samples: take what it has found")
    parser.add_argument("--continue", dest="goes_on", action="store_true",
                        help="go on with a run that was ended: rows in its samples are not measured again")
    parser.add_argument("--samples", metavar="FILE", default="compare_peers.json",
                        help="all of them, to write; default: %(default)s")
    parser.add_argument("--write", metavar="FILE", help="replace the section of this page between two comments")
    parser.add_argument("--timeout", type=float, default=1800,
                        help="seconds that a side may take to answer; default: %(default)s")
    parser.add_argument("--program", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", action="append", default=[], help=argparse.SUPPRESS)  # PEER=PATH
    parser.add_argument("--library", action="append", default=[], help=argparse.SUPPRESS)  # NAME=PATH
    if parser.parse_args().quick:
        parser.set_defaults(rounds=3, turn_ms=50, trials=1, trial_ms=50)
    options = parser.parse_args()
    for kind, names, known in (("model", options.models, MODELS), ("peer", options.peers, PEERS)):
        for name in names.split(","):
            if not re.fullmatch(f"({'|'.join(known)})" + r"(:[1-9]\d*)?" * (kind == "model"), name):
                parser.error(f'unknown {kind} "{name}"; there are: {", ".join(known)}')
    for name in options.search or []:
        if name not in known_searches():
            parser.error(f'unknown setting "{name}" to search; there are: {", ".join(known_searches())}')
    options.tune = options.tune.split(",")
    for name in options.tune:
        if name not in TUNINGS:
            parser.error(f'unknown tuning "{name}"; there are: {", ".join(TUNINGS)}')
    options.tune = [f"--tune {name}" * (name != "off") for name in options.tune]
    options.mirror = ["--mirror least"] * options.mirror
    cores = sorted(os.sched_getaffinity(0))
    if options.threads and not 1 <= options.threads <= len(cores):
        parser.error(f"--threads: from 1 to {len(cores)}")
    options.cores = cores[: options.threads or len(cores)]
    options.peers = options.peers.split(",")
    options.python = dict(pair.split("=", 1) for pair in options.python)
    options.libraries = dict(pair.split("=", 1) for pair in options.library)
    options.known = known_settings(options.settings) if options.settings else {}
    return options


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # sides end with it
    if options.write:
        report.write_section(options.write, None)  # fails now, not after hours
    result = {"machine": processor(), "threads": len(options.cores), "rounds": options.rounds, "commit": commit(),
              "turn_ms": options.turn_ms, "trials": options.trials, "trial_ms": options.trial_ms,
              "search": "the first" if options.quick else ", ".join(options.search or ["all"]),
              "date": datetime.date.today().isoformat(), "rows": []}
    old = rows_of(options.samples, result) if options.goes_on else {}
    good = True
    for case in cases(options):
        if case in old:
            row = old[case]
            good &= bool(row["peers"]) and not row["error"]
            result["rows"].append(row)
            continue
        name, batch, phase, variant = case
        print(f"{phase}, {name} b{batch}, {len(options.cores)} threads" + f", {variant}" * bool(variant), flush=True)
        with tempfile.TemporaryDirectory(prefix="bindery-peers-") as folder:
            comparison = Comparison(options, name, batch, phase, variant, folder)
            try:
                row = comparison.measure()
            except Failure as failure:
                comparison.error = f"ours: {failure}"
                row = comparison.row(None, {})
            end_all()
        print(*report.lines(row), sep="\n", flush=True)
        for peer, side in row["peers"].items():  # what was found for this work is not searched again in its next row
            options.known.setdefault((name, batch, phase, peer), side["options"])
        good &= bool(row["peers"]) and not row["error"]
        result["rows"].append(row)
        report.replace(options.samples, json.dumps(result, indent=1))
    section = report.markdown(result)
    print("\n" + section)
    if options.write:
        report.write_section(options.write, section)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
