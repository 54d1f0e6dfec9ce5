"""One test binary per *_test.cc of a folder."""

load("@rules_cc//cc:defs.bzl", "cc_test")
load("//tests:code.bzl", "TEST_LINKER", "test_code")

_FAKE_CUDA = "//tests/engine/cuda/fake"

def bindery_tests(
        deps = [],
        medium = [],
        loader = [],
        data = [],
        on_devices = [],
        on_gpus = [],
        delayed = [],
        of_cuda = [],
        cuda = _FAKE_CUDA,
        precompiled = "outside"):
    """Declares a cc_test for every *_test.cc beside the BUILD file, named after the file.

    Other .cc and .h files of the folder are helpers that all of its tests share. Those that run on other devices than CPUs
    have the tag "devices".

    Args:
      deps: libraries under test.
      medium: names of tests that may take up to five minutes; the others get one.
      loader: names of tests that read files from outside; CI repeats them under sanitizers.
      data: files that the tests open at run time.
      on_devices: names of tests that run on CPUs and again (tests/test_device.h): as <name>_on_sim and <name>_on_mixed,
        on simulated devices and on both kinds in turn, and as <name>_on_cuda, on GPUs over a fake of CUDA's driver,
        where the toolkit is found (elsewhere these are skipped).
      on_gpus: names of tests that choose accelerators themselves (Accelerator): they run on simulated ones, and again as
        <name>_on_cuda.
      of_cuda: names of tests of that backend itself, over the fake.
      cuda: the fake, with whatever kernels it must have.
      delayed: those of them that also run ten times on both kinds, as <name>_delayed, with random delays by ten seeds.
      precompiled: which header of tests/precompiled all files of the folder include first.
    """
    native.filegroup(
        name = "sources",
        srcs = native.glob(["**"]),
        visibility = ["//tests:__subpackages__"],
    )
    sources = native.glob(["*_test.cc"], allow_empty = True)
    for name in medium + loader + on_devices + on_gpus + delayed + of_cuda:
        if name + ".cc" not in sources:
            fail("no test source %s.cc" % name)
    test_code(
        name = "helpers",
        srcs = native.glob(["*.cc"], allow_empty = True, exclude = ["*_test.cc"]),
        hdrs = native.glob(["*.h"], allow_empty = True),
        precompiled = precompiled,
        deps = deps + ["//tests:helpers", "//third_party:gtest"],
    )
    for source in sources:
        name = source[:-len(".cc")]
        test_code(
            name = name + "_code",
            srcs = [source],
            alwayslink = True,
            precompiled = precompiled,
            deps = deps + [":helpers", "//tests:test_device", "//third_party:gtest"] + ([cuda] if name in of_cuda else []),
        )
        for suffix, devices in [("", "cpu"), ("_on_sim", "sim"), ("_on_mixed", "mixed"), ("_on_cuda", "cuda")]:
            if suffix and name not in on_devices and (devices != "cuda" or name not in on_gpus):
                continue
            cc_test(
                name = name + suffix,
                size = "medium" if name in medium else "small",
                data = data,
                env = {"BINDERY_TEST_DEVICES": devices},
                linkopts = TEST_LINKER,
                tags = ["devices"] if suffix or name in of_cuda else ["loader"] if name in loader else [],
                deps = [name + "_code", "//third_party:gtest_main"] + ([cuda] if devices == "cuda" else []),
            )
        if name in delayed:
            cc_test(
                name = name + "_delayed",
                size = "small",
                args = ["--gtest_repeat=10"],
                data = data,
                env = {
                    "BINDERY_TEST_DELAYS": "1",
                    "BINDERY_TEST_DEVICES": "mixed",
                },
                linkopts = TEST_LINKER,
                tags = ["devices"],
                deps = [name + "_code", "//third_party:gtest_main"],
            )
