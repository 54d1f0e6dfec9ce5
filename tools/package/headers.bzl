"""The headers of libraries, as files."""

def _headers_impl(ctx):
    contexts = [library[CcInfo].compilation_context for library in ctx.attr.libraries]
    files = [file for context in contexts for file in context.headers.to_list() if file.extension != "gch"]
    return [DefaultInfo(files = depset(files))]

headers = rule(
    implementation = _headers_impl,
    attrs = {"libraries": attr.label_list(providers = [CcInfo])},
    doc = "All headers of the libraries and of what they depend on.",
)
