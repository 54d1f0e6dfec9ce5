"""The headers of libraries, as files."""

def _headers_impl(ctx):
    contexts = [library[CcInfo].compilation_context for library in ctx.attr.libraries]
    return [DefaultInfo(files = depset(transitive = [context.headers for context in contexts]))]

headers = rule(
    implementation = _headers_impl,
    attrs = {"libraries": attr.label_list(providers = [CcInfo])},
    doc = "All headers of the libraries and of what they depend on.",
)
