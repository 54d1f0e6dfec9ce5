"""Finds CUDA on this machine, or says why not: the one place of the build that looks for it."""

_OLDEST = (12, 8)  # the first that compiles for sm_100

def _problem(ctx, home):
    nvcc = ctx.path(home + "/bin/nvcc")
    if not nvcc.exists or not ctx.path(home + "/include/cuda.h").exists:
        return "no CUDA toolkit in %s (CUDA_HOME names another folder)" % home
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
        ctx.symlink(home + "/include/cuda.h", "include/cuda.h")
    ctx.file("toolkit.bzl", "CUDA_HOME = %r\nCUDA_PROBLEM = %r\n" % (home, problem))
    ctx.file("BUILD", """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h"], allow_empty = True),
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
