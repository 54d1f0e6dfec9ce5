"""What a build with CUDA has and one without has not."""

load("@cuda//:toolkit.bzl", "CUDA_HOME", "CUDA_PROBLEM")

# Code for these, and PTX for all that come after the first. All of it is made of the first one's PTX: kernels use nothing
# of later ones, and making PTX is most of the time.
_ARCHITECTURES = ["80", "90", "100"]

def if_cuda(yes, no):
    """`yes` in builds with CUDA, `no` in others."""
    return select({
        "//third_party/cuda:wanted": yes,
        "//third_party/cuda:unwanted": no,
        "//conditions:default": no if CUDA_PROBLEM else yes,
    })

# target_compatible_with of tests that need the toolkit's headers; elsewhere they are skipped by name.
CUDA_ONLY = if_cuda([], ["@platforms//:incompatible"])

# For kernels' bodies on CPUs: an access that is not aligned, which a GPU would punish, ends the test.
CHECK_ALIGNMENT = select({
    "//:sanitized": [],  # has it among others
    "//conditions:default": ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"],
})

_ARCHITECTURE_FLAGS = " ".join(
    ["-gencode arch=compute_%s,code=sm_%s" % (_ARCHITECTURES[0], architecture) for architecture in _ARCHITECTURES] +
    ["-gencode arch=compute_%s,code=compute_%s" % (_ARCHITECTURES[0], _ARCHITECTURES[0])],
)

def cuda_image(name, src, headers, declaration, symbol, out):
    """Compiles a .cu file to an array `symbol` in a C++ file: code for all architectures, without any of the host's.

    `declaration` is the header that declares the array.
    """
    command = " && ".join([
        " ".join([
            CUDA_HOME + "/bin/nvcc --fatbin -std=c++20 --expt-relaxed-constexpr --fmad=false --compress-mode=size -Werror all-warnings -I.",
            _ARCHITECTURE_FLAGS,
            "-o $(@D)/%s.fatbin $(location %s)" % (name, src),
        ]),
        "echo '#include \"%s\"' > $@" % declaration,
        "%s/bin/bin2c --const --padd 0 --type longlong --name %s $(@D)/%s.fatbin >> $@" % (CUDA_HOME, symbol, name),
        "rm $(@D)/%s.fatbin" % name,
    ])
    native.genrule(
        name = name + "_code",
        srcs = [src] + headers,
        outs = [name + ".inc"],
        cmd = "echo '%s' >&2; exit 1" % CUDA_PROBLEM if CUDA_PROBLEM else command,
        message = "Compiling for GPUs",
        tags = ["manual"],
    )

    # As a tool it is made once for builds of all configurations, which are the host's alone.
    native.genrule(
        name = name,
        outs = [out],
        cmd = "cp $(location %s_code) $@" % name,
        message = "Copying",
        tools = [name + "_code"],
    )
