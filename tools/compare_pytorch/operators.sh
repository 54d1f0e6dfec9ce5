#!/bin/bash
# Compares operators with PyTorch's: 200 cases of each, of random shapes, attributes and elements, in float32 and in
# float64; outputs, and gradients that are written and that are added. Prints a line for each operator with the worst
# relative error, and how to repeat what fails. With --time it measures instead, at three sizes. Options: --help.
#
# Builds what it needs of Bindery. PyTorch: tools/python.sh.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tools/python.sh"
find_python pytorch
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:compare_operators)
exec "$python" -B "$root/tools/compare_pytorch/operators/compare.py" --program "$root/bazel-bin/tools/compare_operators" "$@"
