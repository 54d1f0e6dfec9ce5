#!/bin/bash
# Compares Bindery's training with PyTorch's: LeNet, ResNet-20, GPT and an LSTM from equal initial weights on equal
# batches, on one and on two devices. In float32 the first loss must agree to 1e-5, those of 20 steps to 1e-3, relative;
# in mixed precision with bfloat16, which is autocast there, to 4e-3 and 2e-2; fails otherwise. Step times, measured in
# turns, are for orientation. Options: --help.
#
# Builds what it needs of Bindery. PyTorch: tools/python.sh.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tools/python.sh"
find_python pytorch
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:compare_pytorch)
exec "$python" -B "$root/tools/compare_pytorch/compare.py" --program "$root/bazel-bin/tools/compare_pytorch" "$@"
