"""Compiler options of programs."""

load("//base:precompiled.bzl", "including")

# What takes time is in the libraries; the parser of options is a header of virtual functions, slow to optimise.
PROGRAM_OPTIMIZATION = select({
    "//:sanitized": ["-O0"],
    "//conditions:default": ["-O1"],
})

PROGRAM_OPTIONS = PROGRAM_OPTIMIZATION + including("tools/precompiled.h")
