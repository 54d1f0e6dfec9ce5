"""The peers, and which of their settings are searched: one after the other, each time the fastest option is kept. The
first option of each is the peer's default. A setting comes before those that depend on it.
"""

import os
from typing import NamedTuple


class Option(NamedTuple):
    name: str = ""  # empty: the default
    settings: dict = {}  # of the side's program: NAME=VALUE
    environment: dict = {}
    preload: str = ""  # a library
    threads: int = 0  # of each context; 0: all
    contexts: int = 1
    needs: tuple = ()  # ways, of which one is chosen: else it changes nothing


class Configuration(NamedTuple):
    """Options, one of each setting, put together."""

    options: tuple

    @property
    def name(self):
        return ", ".join(option.name for option in self.options if option.name) or "default"

    @property
    def contexts(self):
        return max(option.contexts for option in self.options)

    def threads(self, most):
        """Of each context."""
        return next((option.threads for option in self.options if option.threads), max(1, most // self.contexts))

    def cores(self, cores):
        """That the process may use: XLA has a thread for each."""
        return cores[: self.threads(len(cores)) * self.contexts]

    @property
    def settings(self):
        return {name: value for option in self.options for name, value in option.settings.items()}

    @property
    def makes_sense(self):
        return all(not option.needs or self.settings.get("way") in option.needs for option in self.options)

    def environment(self, most):
        threads = str(self.threads(most))
        made = {name: value for name, value in os.environ.items() if not name.startswith(("LD_PRELOAD", "PYTHON"))}
        made.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads))
        made.update(CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu")
        for option in self.options:
            made.update(option.environment)
        libraries = [option.preload for option in self.options if option.preload]
        if libraries:
            made["LD_PRELOAD"] = ":".join(libraries)
        return made


class Work(NamedTuple):
    """What the peers are asked for."""

    model: str
    batch: int
    training: bool
    threads: int
    libraries: dict  # that may be preloaded, by name: those that there are

    @property
    def has_convolutions(self):
        return self.model.startswith(("lenet", "resnet"))


def allocators(work):
    # glibc's keeps what is freed: no page is touched for the first time again.
    kept = {"MALLOC_MMAP_THRESHOLD_": str(1 << 40), "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
            "MALLOC_TOP_PAD_": str(1 << 28)}
    found = [Option(), Option("malloc keeps memory", environment=kept)]
    keep = {"jemalloc": {"MALLOC_CONF": "metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"}, "tcmalloc": {}}
    for name in keep:
        if name in work.libraries:
            found.append(Option(name, environment=keep[name], preload=work.libraries[name]))
    return found


def threads(work):
    return [Option()] + ([Option("1 thread", threads=1)] if work.threads > 1 else [])


def of_pytorch(work):
    layouts = [Option()] + [Option("channels-last", {"layout": "last"})] * work.has_convolutions
    ways = [Option(), Option("compiled", {"way": "compiled"})]
    if not work.training:
        ways += [Option("frozen and compiled", {"way": "frozen"}), Option("traced", {"way": "traced"})]
    # Each way prefers a layout of its own: these are searched together.
    both = [Option(", ".join(filter(None, (way.name, layout.name))), {**way.settings, **layout.settings})
            for way in ways for layout in layouts]
    compiling = [Option()] + [Option(name, settings, needs=("compiled", "frozen")) for name, settings in (
        ("C++ wrapper", {"wrapper": "cpp"}), ("max-autotune", {"kernels": "tuned"}),
        ("C++ wrapper, max-autotune", {"wrapper": "cpp", "kernels": "tuned"}))]
    runtimes = [Option(), Option("pinned threads", environment={"OMP_PROC_BIND": "true"})]
    if "iomp5" in work.libraries:
        runtimes.append(Option("Intel's OpenMP", preload=work.libraries["iomp5"],
                               environment={"KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1"}))
    found = {"way": both, "compiler": compiling}
    if work.training:
        found["optimizer"] = [Option()] + [Option(f"{how} optimizer", {"optimizer": how})
                                           for how in ("foreach", "fused", "compiled")]
    return found | {"allocator": allocators(work), "threads": threads(work), "OpenMP": runtimes}


def of_jax(work):
    found = {}
    if work.has_convolutions:
        found["layout"] = [Option(), Option("NHWC", {"layout": "NHWC"})]
    if work.model.startswith("lstm"):
        found["unroll"] = [Option()] + [Option(f"unrolled by {n}", {"unroll": n}) for n in (5, 35)]
    if work.model.startswith("gpt"):
        found["attention"] = [Option(), Option("jax.nn attention", {"attention": "jax"})]
    if not work.training:
        found["values"] = [Option(), Option("constants", {"values": "constant"})]
    flags = ("--xla_cpu_prefer_vector_width=512", "--xla_cpu_enable_fast_math=true", "--xla_cpu_use_onednn=true",
             "--xla_cpu_use_xnnpack=true")
    found["flags"] = [Option()] + [Option(flag.removeprefix("--"), environment={"XLA_FLAGS": flag}) for flag in flags]
    return found | {"allocator": allocators(work), "threads": threads(work)}


def of_mxnet(work):
    contexts = [Option()]
    if work.threads > 1 and work.batch % 2 == 0:
        contexts.append(Option("2 contexts", {"contexts": 2}, contexts=2))
        if work.training:
            contexts.append(Option("2 contexts, kvstore device", {"contexts": 2, "kvstore": "device"}, contexts=2))
    engines = [Option()] + [Option(name, environment={"MXNET_ENGINE_TYPE": name})
                            for name in ("ThreadedEngine", "NaiveEngine")]
    graphs = [Option(), Option("no subgraphs", environment={"MXNET_SUBGRAPH_BACKEND": "NONE"})]
    # A second pool of threads beside OpenMP's.
    libraries = [Option(), Option("BLAS by 1 thread", environment={"OPENBLAS_NUM_THREADS": "1"})]
    return {"contexts": contexts, "engine": engines, "graph": graphs, "BLAS": libraries,
            "allocator": allocators(work), "threads": threads(work)}


def of_onnxruntime(work):
    levels = [Option(name, {"level": name}) for name in ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_BASIC")]
    return {"level": [Option(), *levels], "spinning": [Option(), Option("threads sleep", {"spinning": 0})],
            "allocator": allocators(work), "threads": threads(work)}


class Peer(NamedTuple):
    program: str
    searched: object  # of the work: options by the name of the setting
    phases: tuple = ("train", "predict")
    reads: str = ""  # a file that we may not be able to write


PEERS = {
    "pytorch": Peer("torch_side.py", of_pytorch),
    "jax": Peer("jax_side.py", of_jax),
    "mxnet": Peer("mxnet_side.py", of_mxnet),
    "onnxruntime": Peer("onnxruntime_side.py", of_onnxruntime, phases=("predict",), reads="model.onnx"),
}
