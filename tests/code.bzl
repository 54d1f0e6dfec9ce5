"""Code of tests, by clang without optimisation: it takes less time for it than the build's compiler."""

load("//base:compile.bzl", "COMPILE_ATTRIBUTES", "COMPILE_FRAGMENTS", "COMPILE_TOOLCHAINS", "compile", "compile_features")

# For test_code and the headers that are precompiled for it. With sanitizers all of the build is clang's.
TEST_COMPILER = select({
    "//:sanitized": "",
    "//:one_compiler": "",
    "//conditions:default": "clang-16",
})
TEST_OPTIMIZATION = select({
    "//:one_compiler": ["-O1"],
    "//conditions:default": ["-O0"],
}) + ["-ffp-contract=off"]  # as //engine: tests have update rules of their own, which must give the same bits anywhere

# Of test programs: a fast one. (Sanitizers have it for all.)
TEST_LINKER = select({
    "//:sanitized": [],
    "//:one_compiler": [],
    "//conditions:default": ["-fuse-ld=lld", "-B/usr/lib/llvm-16/bin"],
})

def _impl(ctx):
    toolchain, features = compile_features(ctx)
    precompiled = [ctx.attr.precompiled] if ctx.attr.precompiled else []
    libraries = cc_common.merge_cc_infos(cc_infos = [library[CcInfo] for library in ctx.attr.deps + precompiled])
    headers = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs))
    read = cc_common.merge_cc_infos(cc_infos = [CcInfo(compilation_context = headers), libraries]).compilation_context
    including = ["-include", ctx.file.precompiled.path[:-len(".gch")]] if precompiled else []
    objects = []
    for source in ctx.files.srcs:
        out = ctx.actions.declare_file("_%s/%s.o" % (ctx.label.name, source.basename[:-len(".cc")]))
        compile(ctx, source, out, read, "CppTestCompile", more_flags = including)
        objects.append(out)
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset(objects)),
        linking_contexts = [libraries.linking_context],
        alwayslink = ctx.attr.alwayslink,
        disallow_dynamic_library = True,  # some tests replace operator new: in the program itself
    )
    return [CcInfo(compilation_context = read, linking_context = linking)]

_test_code = rule(
    implementation = _impl,
    attrs = dict(
        COMPILE_ATTRIBUTES,
        srcs = attr.label_list(allow_files = [".cc"]),
        hdrs = attr.label_list(allow_files = [".h"]),
        alwayslink = attr.bool(doc = "As cc_library's."),
        precompiled = attr.label(
            allow_single_file = True,
            doc = "The rule of the header that all of them include first.",
            providers = [CcInfo],
        ),
    ),
    fragments = COMPILE_FRAGMENTS,
    toolchains = COMPILE_TOOLCHAINS,
)

def test_code(name, precompiled, **kwargs):
    """A library of sources that all include a header of //tests/precompiled first, which `precompiled` names."""
    _test_code(
        name = name,
        testonly = True,
        compiler = TEST_COMPILER,
        copts = TEST_OPTIMIZATION,
        precompiled = select({
            "//:not_precompiled": None,
            "//conditions:default": "//tests/precompiled:" + precompiled,
        }),
        visibility = ["//tests:__subpackages__"],
        **kwargs
    )
