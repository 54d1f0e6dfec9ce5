"""A header that is compiled once for all that includes it first, by copts = ["-include", "$(BINDIR)/folder/header.h"]."""

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

    # Those of what includes it: a compiler that is told otherwise of macros or code does not take it.
    flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts + ["-x", "c++-header"]
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.header.path,
        output_file = out.path,
        user_compile_flags = flags,
        use_pic = True,
    )
    ctx.actions.run(
        mnemonic = "CppPrecompile",
        progress_message = "Compiling " + ctx.file.header.short_path,
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([ctx.file.header], transitive = [toolchain.all_files]),
        outputs = [out],
    )
    return [
        DefaultInfo(files = depset([out])),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset([out]))),
    ]

precompiled_header = rule(
    implementation = _impl,
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
