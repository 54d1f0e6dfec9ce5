"""Sources that are compiled some at a time: most of a file's time goes into templates that its neighbours use, too."""

_MOST = 6

def _impl(ctx):
    if not ctx.attr.join:
        return [DefaultInfo(files = depset(ctx.files.srcs))]
    folders = {}
    for source in ctx.files.srcs:
        folders.setdefault(source.dirname, []).append(source)
    joined = []
    for folder, sources in folders.items():
        parts = (len(sources) + _MOST - 1) // _MOST
        for part in range(parts):
            members = sources[part * len(sources) // parts:(part + 1) * len(sources) // parts]
            name = "%s_%d.cc" % (folder.replace("/", "_"), part + 1)
            out = ctx.actions.declare_file(ctx.label.name + "/" + name)
            ctx.actions.run_shell(
                mnemonic = "JoinSources",
                inputs = members,
                outputs = [out],
                # Compilers and debuggers name the files and lines that somebody wrote.
                command = 'out=$1; shift; for f; do echo "#line 1 \\"$f\\""; cat "$f"; done >"$out"',
                arguments = [out.path] + [member.path for member in members],
            )
            joined.append(out)
    return [DefaultInfo(files = depset(joined))]

_joined_sources = rule(
    implementation = _impl,
    attrs = {
        "join": attr.bool(),
        "srcs": attr.label_list(allow_files = [".cc"]),
    },
)

def joined(name, srcs):
    """Sources of a cc_library: as many as stand together in a folder, up to six, become one.

    What they name in unnamed namespaces must differ within a folder. --define=joined=no compiles each by itself.

    Args:
      name: of the target, and the folder of what it makes.
      srcs: the files.

    Returns:
      What to give as the library's `srcs`.
    """
    _joined_sources(
        name = name,
        srcs = srcs,
        join = select({
            "//:not_joined": False,
            "//conditions:default": True,
        }),
    )
    return [":" + name]
