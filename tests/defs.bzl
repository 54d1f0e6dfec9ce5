"""One test binary per *_test.cc of a folder."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

def bindery_tests(deps = [], medium = [], loader = [], data = []):
    """Declares a cc_test for every *_test.cc beside the BUILD file, named after the file.

    Other .cc and .h files of the folder are helpers that all of its tests share.

    Args:
      deps: libraries under test.
      medium: names of tests that may take up to five minutes; the others get one.
      loader: names of tests that read files from outside; CI repeats them under sanitizers.
      data: files that the tests open at run time.
    """
    native.filegroup(
        name = "sources",
        srcs = native.glob(["**"]),
        visibility = ["//tests:__subpackages__"],
    )
    sources = native.glob(["*_test.cc"], allow_empty = True)
    for name in medium + loader:
        if name + ".cc" not in sources:
            fail("no test source %s.cc" % name)
    cc_library(
        name = "helpers",
        testonly = True,
        srcs = native.glob(["*.cc"], allow_empty = True, exclude = ["*_test.cc"]),
        hdrs = native.glob(["*.h"], allow_empty = True),
        visibility = ["//tests:__subpackages__"],
        deps = deps + ["//tests:message_of", "//third_party:gtest"],
    )
    for source in sources:
        name = source[:-len(".cc")]
        cc_test(
            name = name,
            size = "medium" if name in medium else "small",
            srcs = [source],
            # gtest's macros are slow to optimise and gain nothing from it; with sanitizers three times as slow.
            copts = select({
                "//:sanitized": ["-O0"],
                "//conditions:default": ["-O1"],
            }),
            data = data,
            tags = ["loader"] if name in loader else [],
            deps = deps + [":helpers", "//third_party:gtest_main"],
        )
