"""What the driver says to the sides, and what they answer. Each side, ours among them, is a process that stays:

    it prints, once imports are done      started NAME AND VERSION
    write       writes the files that the others start from; ours   written
    make        builds the network, the others' from these files    made
    losses N    does N steps, and computes the loss of each         N numbers
    run N       does N steps                                        N numbers: milliseconds

A loss is the mean cross-entropy of the batch, in training before the step's update. A side that fails ends; the last
line of its standard error says why.

`serve` is a side's end in Python, `Side` the driver's.
"""

import argparse
import atexit
import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time


class Failure(Exception):
    """A side's, with its reason."""


def serve(name, make):
    """make(options) gives an object with losses(n) and run(n)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="as the zoo names it")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--phase", choices=["train", "predict"], required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--momentum", type=float, required=True)
    parser.add_argument("--set", action="append", default=[], help="a setting that is searched: NAME=VALUE")
    options = parser.parse_args()
    options.set = dict(setting.split("=", 1) for setting in options.set)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    print("started", name, file=answers)
    side = None
    for line in sys.stdin:
        command, *count = line.split()
        if command == "make":
            side = make(options)
            print("made", file=answers)
        else:
            print(*{"losses": side.losses, "run": side.run}[command](int(count[0])), file=answers)


def timed(step, times):
    """Milliseconds of each of so many calls."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        step()
        taken.append((time.perf_counter_ns() - begin) * 1e-6)
    return taken


def model_and_settings(text):
    """"gpt(layers=6)" -> "gpt", {"layers": 6}"""
    name, settings = re.fullmatch(r"(\w+)(?:\((.*)\))?", text).groups()
    return name, {key: int(value) for key, value in re.findall(r"(\w+) *= *(\d+)", settings or "")}


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: what is stopped would stay for ever


@contextlib.contextmanager
def ended_on_failure(side):
    try:
        yield side
    except BaseException:
        side.end()
        raise


class Side:
    """A process, stopped while it is not asked: nothing of it spins or runs while another is measured."""

    alive = set()

    def __init__(self, command, environment, cores, timeout):
        def prepare():
            os.sched_setaffinity(0, cores)
            die_with_parent()

        self.timeout = timeout
        self.errors = tempfile.TemporaryFile(mode="w+")
        begin = time.perf_counter()
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1,
                env=environment, preexec_fn=prepare, start_new_session=True)
        except OSError as error:
            raise Failure(str(error)) from error
        Side.alive.add(self)
        with ended_on_failure(self):
            self.name = self._answer().removeprefix("started ")
            self.start_ms = 1000 * (time.perf_counter() - begin)
            self.started_kib = self._status("VmRSS")
            self._signal(signal.SIGSTOP)

    def write(self):
        if self._ask("write") != "written":
            raise Failure('expected "written"')

    def make(self, losses):
        """And finds some losses. The time is that to the first of them: networks are compiled when they first run."""
        begin = time.perf_counter()
        if self._ask("make") != "made":
            raise Failure('expected "made"')
        self.found = self.losses(1)
        self.make_ms = 1000 * (time.perf_counter() - begin)
        self.found += self.losses(losses - 1)

    def losses(self, steps):
        return self._numbers(f"losses {steps}", steps)

    def run(self, steps):
        return self._numbers(f"run {steps}", steps)

    def memory_mib(self, steps=2):
        """The most that is resident within some steps, above what was after the start."""
        try:
            with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
                file.write("5")  # the peak begins again
        except OSError:
            pass  # then it is that of the whole run
        self.run(steps)
        return max(0, self._status("VmHWM") - self.started_kib) / 1024

    def complaint(self):
        """The last that it wrote to its standard error."""
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors if line.strip()]
        return lines[-1][:300] if lines else ""

    def end(self):
        if self in Side.alive:
            Side.alive.remove(self)
            with contextlib.suppress(OSError):
                self._signal(signal.SIGKILL)
            self.process.wait()

    def _ask(self, command):
        self._signal(signal.SIGCONT)
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is seen below
        answer = self._answer()
        self._signal(signal.SIGSTOP)
        return answer

    def _numbers(self, command, count):
        answer = self._ask(command)
        try:
            numbers = [float(word) for word in answer.split()]
        except ValueError:
            numbers = []
        if len(numbers) != count:
            raise Failure(f'expected {count} numbers in answer to "{command}", got "{answer[:100]}"')
        return numbers

    def _answer(self):
        # One line for each command: nothing is left in the buffer that select would not see.
        if not select.select([self.process.stdout], [], [], self.timeout)[0]:
            raise Failure(f"no answer within {self.timeout:g} s")
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            raise Failure(self.complaint() or f"ended with status {status}")
        return line.strip()

    def _signal(self, number):
        os.killpg(self.process.pid, number)  # and its helpers: compilers

    def _status(self, field):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field + ":"))


@atexit.register
def end_all():
    for side in list(Side.alive):
        side.end()
