#!/bin/bash
# Compares Bindery's training with PyTorch's: LeNet and ResNet-20 from equal initial weights on equal batches, on one
# and on two devices. The first loss must agree to 1e-5, those of 20 steps to 1e-3, relative, in float32; fails
# otherwise. Step times, measured in turns, are for orientation. Options: --help.
#
# Builds what it needs of Bindery. PyTorch goes into an environment of its own in the user's cache folder, used again
# next time; the environment variable PYTHON names another interpreter that has torch and numpy. Nothing else needs it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-pytorch

python=${PYTHON:-$environment/bin/python}
usable() { "$python" -c 'import numpy, torch' 2>/dev/null; }
if [ -z "${PYTHON:-}" ] && ! usable; then
  echo "compare: installing PyTorch into $environment" >&2
  python3 -m venv --clear "$environment" || {
    echo "compare: python3 -m venv failed; on Debian: apt-get install python3-venv" >&2
    exit 1
  }
  # PyTorch's own index has builds without CUDA, far smaller; pip prefers them to the registry's, and takes those where
  # the index cannot be reached.
  "$python" -m pip install --quiet --extra-index-url https://download.pytorch.org/whl/cpu numpy torch >&2
fi
usable || {
  echo "compare: $python cannot import numpy and torch" >&2
  exit 1
}

"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:compare_pytorch)
exec "$python" -B "$root/tools/compare_pytorch/compare.py" --program "$root/bazel-bin/tools/compare_pytorch" "$@"
