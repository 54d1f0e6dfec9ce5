"""Compiling by an action of our own, for what cc_library cannot: precompiled headers, and another compiler than its."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# Of rules that call compile().
COMPILE_ATTRIBUTES = {
    "compiler": attr.string(doc = "A clang, by name or path, in place of the build's compiler."),
    "copts": attr.string_list(),
    "deps": attr.label_list(providers = [CcInfo]),
    "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    "_compile": attr.label(default = "//base:compile.sh", allow_single_file = True, executable = True, cfg = "host"),
}
COMPILE_FRAGMENTS = ["cpp"]
COMPILE_TOOLCHAINS = ["@bazel_tools//tools/cpp:toolchain_type"]

# Clang notes in a precompiled header where the headers lie that it holds. Below this folder it notes and looks them up
# relative to it: in whichever sandbox or clone. (Of g++ the option means another thing.)
RELOCATABLE = ["-isysroot", "."]

def compile_features(ctx):
    """The toolchain of a rule and its features."""
    toolchain = find_cpp_toolchain(ctx)
    return toolchain, cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

def compile(ctx, source, out, read, mnemonic, header = False, more_flags = []):
    """Compiles a source to an object, or a header to a precompiled one, with the build's options and the rule's.

    Args:
      ctx: of a rule with COMPILE_ATTRIBUTES, COMPILE_FRAGMENTS and COMPILE_TOOLCHAINS.
      source: the file.
      out: what to write.
      read: the compilation context of the libraries whose headers it includes.
      mnemonic: what Bazel calls the action.
      header: whether the source is a header.
      more_flags: beside the rule's copts.

    Returns:
      Whether a clang compiles it.
    """
    toolchain, features = compile_features(ctx)
    compiler = ctx.attr.compiler or cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    )
    clang = "clang" in compiler
    options = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts + more_flags
    flags = [option for option in options if not (clang and option.startswith("--param"))]
    if header:
        flags += ["-x", "c++-header"]
        if clang:
            flags += ["-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"]
            flags += ["-Xclang", "-relocatable-pch", "-isysroot", "%root%"]
    elif clang:
        flags += RELOCATABLE
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = source.path,
        output_file = out.path,
        user_compile_flags = flags,
        include_directories = read.includes,
        quote_include_directories = read.quote_includes,
        system_include_directories = read.system_includes,
        preprocessor_defines = read.defines,
        use_pic = True,
    )
    if ctx.attr.compiler:
        # Without what the toolchain gives to its own compiler, but for what headers can tell.
        arguments = ["-DNDEBUG", "-fPIC"]
        for option, values in [
            ("-D", read.defines),
            ("-I", read.includes),
            ("-iquote", read.quote_includes),
            ("-isystem", read.system_includes),
        ]:
            arguments += [option + value for value in values.to_list()]
        arguments += flags + ["-c", source.path, "-o", out.path]
    else:
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        )

    # Compiled again only if a header changes that it reads.
    headers = ctx.actions.declare_file(out.basename + "_headers.txt", sibling = out)
    unused = ctx.actions.declare_file(out.basename + "_unused.txt", sibling = out)
    same = ["--same"] if header and not clang else []
    ctx.actions.write(headers, "\n".join([file.path for file in read.headers.to_list()]) + "\n")
    ctx.actions.run(
        mnemonic = mnemonic,
        progress_message = "Compiling " + source.short_path,
        executable = ctx.executable._compile,
        arguments = same + [headers.path, unused.path, compiler] + arguments,
        env = dict(
            cc_common.get_environment_variables(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
                variables = variables,
            ),
            # Compiled anew where the system's compilers or headers are others (tools/bazel).
            PACKAGES = ctx.configuration.default_shell_env.get("SYSTEM_PACKAGES", "") +
                       (ctx.var.get("test_packages", "") if clang else ""),
        ),
        inputs = depset([source, headers], transitive = [read.headers, toolchain.all_files]),
        outputs = [out, unused],
        unused_inputs_list = unused,
    )
    return clang
