"""Finds CUDA on this machine, or says why not: the one place of the build that looks for it."""

_OLDEST = (12, 8)  # the first that compiles for sm_100

# The headers of the driver, of cuBLASLt and of cuDNN, and what these include, of which a version may lack some.
_NEEDED = ["cuda.h", "cublasLt.h", "cudnn_graph.h"]
_INCLUDED = [
    "builtin_types.h",
    "crt/host_defines.h",
    "cuComplex.h",
    "cublas_api.h",
    "cuda_bf16.h",
    "cuda_bf16.hpp",
    "cuda_device_runtime_api.h",
    "cuda_fp16.h",
    "cuda_fp16.hpp",
    "cuda_runtime_api.h",
    "cudnn_version.h",
    "device_types.h",
    "driver_types.h",
    "host_defines.h",
    "library_types.h",
    "nv/detail/__preprocessor",
    "nv/detail/__target_macros",
    "nv/target",
    "surface_types.h",
    "texture_types.h",
    "vector_functions.h",
    "vector_functions.hpp",
    "vector_types.h",
]

# cuDNN is a package of its own, which may put its headers beside the toolkit.
_BESIDE = ["/usr/include", "/usr/include/x86_64-linux-gnu"]

def _header(ctx, home, name):
    for folder in [home + "/include"] + (_BESIDE if name.startswith("cudnn") else []):
        path = ctx.path(folder + "/" + name)
        if path.exists:
            return path
    return None

def _problem(ctx, home):
    nvcc = ctx.path(home + "/bin/nvcc")
    if not nvcc.exists:
        return "no CUDA toolkit in %s (CUDA_HOME names another folder)" % home
    for header in _NEEDED:
        if not _header(ctx, home, header):
            return "no %s in CUDA's toolkit in %s (CUDA_HOME names another folder)" % (header, home)
    answer = ctx.execute([nvcc, "--version"])
    for word in answer.stdout.replace(",", " ").split(" "):
        if word.startswith("V") and word.count(".") == 2:
            major, minor, _ = word[1:].split(".")
            if (int(major), int(minor)) < _OLDEST:
                return "CUDA in %s is %s.%s, too old: %d.%d is needed" % ((home, major, minor) + _OLDEST)
            return ""
    return "%s does not tell its version" % nvcc

def _find_cuda(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    problem = _problem(ctx, home)
    if not problem:
        for header in _NEEDED + _INCLUDED:
            path = _header(ctx, home, header)
            if path:
                ctx.symlink(path, "include/" + header)
    ctx.file("toolkit.bzl", "CUDA_HOME = %r\nCUDA_PROBLEM = %r\n" % (home, problem))
    ctx.file("BUILD", """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["include/**"], allow_empty = True),
    includes = ["include"],
    visibility = ["//visibility:public"],
)
""")

find_cuda = repository_rule(
    implementation = _find_cuda,
    configure = True,
    environ = ["CUDA_HOME"],
    local = True,
)
