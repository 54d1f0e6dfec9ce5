"""Headers that are compiled once for all that include them first: half of most files' time goes into headers.

A library's holds what its files read from outside and of the layers below, so that a change of its own headers compiles
only what includes those. Files still include what they use; --define=precompiled=no --define=joined=no shows whether
they do.
"""

load("//base:compile.bzl", "COMPILE_ATTRIBUTES", "COMPILE_FRAGMENTS", "COMPILE_TOOLCHAINS", "RELOCATABLE", "compile")

def _impl(ctx):
    out = ctx.actions.declare_file(ctx.file.header.basename + ".gch")
    read = cc_common.merge_cc_infos(cc_infos = [library[CcInfo] for library in ctx.attr.deps]).compilation_context
    clang = compile(ctx, ctx.file.header, out, read, "CppPrecompile", header = True)

    # A clang looks at the headers themselves when it reads it.
    includes = depset([out, ctx.file.header], transitive = [read.headers]) if clang else depset([out])
    return [
        DefaultInfo(files = depset([out])),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = includes)),
    ]

# copts and compiler must be those of what includes it: a compiler that is told otherwise of macros or code does not take
# it.
precompiled_header = rule(
    implementation = _impl,
    attrs = dict(
        COMPILE_ATTRIBUTES,
        header = attr.label(
            allow_single_file = [".h"],
            mandatory = True,
            doc = "Without an include guard: it is compiled by itself, where one is warned of.",
        ),
    ),
    fragments = COMPILE_FRAGMENTS,
    toolchains = COMPILE_TOOLCHAINS,
)

def including(header):
    """Compiler options of what includes a precompiled header first, and has its rule among its dependencies.

    The header must be found among the outputs and nowhere else: an error, not twice the time, if the compiler cannot
    take it.

    Args:
      header: its path from the root.
    """
    return select({
        "//:not_precompiled": [],
        "//conditions:default": ["-include", "$(BINDIR)/" + header, "-Winvalid-pch"],
    }) + select({
        "//:by_clang": RELOCATABLE,
        "//conditions:default": [],
    })
