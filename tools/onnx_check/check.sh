#!/bin/bash
# Compares models that PyTorch exported to ONNX with themselves: imported, their outputs must agree to 1e-5, exported
# again and run by ONNX Runtime too; the losses of 20 steps of fine-tuning, on one and on two devices, to 1e-3 (the first
# to 1e-5), relative. Networks: tools/onnx_check/networks.py; names as arguments choose some.
#
# Builds what it needs of Bindery. PyTorch, onnx, onnxscript and ONNX Runtime go into an environment of their own in the
# user's cache folder, used again next time; the environment variable PYTHON names another interpreter that has them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-pytorch

python=${PYTHON:-$environment/bin/python}
usable() { "$python" -c 'import numpy, onnx, onnxruntime, onnxscript, torch' 2>/dev/null; }
if [ -z "${PYTHON:-}" ] && ! usable; then
  echo "check: installing PyTorch and ONNX Runtime into $environment" >&2
  [ -x "$environment/bin/python" ] || python3 -m venv "$environment" || {
    echo "check: python3 -m venv failed; on Debian: apt-get install python3-venv" >&2
    exit 1
  }
  "$python" -m pip install --quiet --extra-index-url https://download.pytorch.org/whl/cpu \
    numpy onnx onnxruntime onnxscript torch >&2
fi
usable || {
  echo "check: $python cannot import numpy, onnx, onnxruntime, onnxscript and torch" >&2
  exit 1
}

"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:onnx_check)
exec "$python" -B "$root/tools/onnx_check/check.py" --program "$root/bazel-bin/tools/onnx_check" "$@"
