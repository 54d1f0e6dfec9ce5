"""The programs of pages in docs/, built as they stand there."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("//base:precompiled.bzl", "including")

# Pages that are a program each, with what it prints.
PAGES = [
    "fine_tuning",
    "library",
    "onnx",
    "own_data",
    "own_loss_and_metric",
    "own_operator",
    "own_optimizer",
    "padded_sequences",
    "several_devices",
    "several_machines",
]

def page_programs(pages):
    """Builds programs of pages, NAME: PAGE: of all blocks ```cpp of the page, one after the other."""
    for name, page in pages.items():
        native.genrule(
            name = "make_" + name,
            srcs = [page],
            outs = [name + ".cc"],
            cmd = "awk '/^```cpp/ { on = 1; next } /^```/ { on = 0 } on' $< > $@",
        )
        cc_binary(
            name = name,
            testonly = True,
            srcs = [name + ".cc"],
            copts = ["-I."] + including("bindery/precompiled.h"),  # <bindery/bindery.h>, as outside
            deps = [
                "//bindery",
                "//bindery:precompiled",
            ],
        )
