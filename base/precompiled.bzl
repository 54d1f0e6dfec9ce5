"""Headers that are compiled once for all that include them first: half of most files' time goes into headers.

A library's holds what its files read from outside and of the layers below, so that a change of its own headers compiles
only what includes those. Files still include what they use; --define=precompiled=no shows whether they do.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    out = ctx.actions.declare_file(ctx.file.header.basename + ".gch")
    read = cc_common.merge_cc_infos(cc_infos = [library[CcInfo] for library in ctx.attr.deps]).compilation_context

    # Those of what includes it: a compiler that is told otherwise of macros or code does not take it.
    flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts + ["-x", "c++-header"]
    compiler = cc_common.get_tool_for_action(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME)
    requirements = {}
    includes = [out]
    if "clang" in compiler:
        flags += ["-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"]

        # It notes where the headers lie and looks for them there: not in a sandbox, which goes, nor in another clone.
        requirements = {"no-sandbox": "", "no-cache": ""}
        includes += [ctx.file.header]
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.header.path,
        output_file = out.path,
        user_compile_flags = flags,
        include_directories = read.includes,
        quote_include_directories = read.quote_includes,
        system_include_directories = read.system_includes,
        preprocessor_defines = read.defines,
        use_pic = True,
    )
    arguments = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )

    # The compiler does not write the same bytes each time: so it is asked only if a header changed that it reads.
    headers = ctx.actions.declare_file(ctx.label.name + "_headers.txt")
    unused = ctx.actions.declare_file(ctx.label.name + "_unused.txt")
    ctx.actions.write(headers, "\n".join([file.path for file in read.headers.to_list()]) + "\n")
    ctx.actions.run(
        mnemonic = "CppPrecompile",
        progress_message = "Compiling " + ctx.file.header.short_path,
        executable = ctx.executable._precompile,
        arguments = [headers.path, unused.path, compiler] + arguments,
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([ctx.file.header, headers], transitive = [read.headers, toolchain.all_files]),
        outputs = [out, unused],
        execution_requirements = requirements,
        unused_inputs_list = unused,
    )
    return [
        DefaultInfo(files = depset([out])),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(includes))),
    ]

precompiled_header = rule(
    implementation = _impl,
    attrs = {
        "header": attr.label(
            allow_single_file = [".h"],
            mandatory = True,
            doc = "Without an include guard: it is compiled by itself, where one is warned of.",
        ),
        "copts": attr.string_list(doc = "Those of what includes it."),
        "deps": attr.label_list(providers = [CcInfo], doc = "Whose headers it includes."),
        "_precompile": attr.label(default = "//base:precompile.sh", allow_single_file = True, executable = True, cfg = "host"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
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
    })
