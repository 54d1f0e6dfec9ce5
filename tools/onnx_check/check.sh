#!/bin/bash
# Compares models that PyTorch exported to ONNX with themselves: imported, their outputs must agree to 1e-5, exported
# again and run by ONNX Runtime too; the gradients of all parameters to 1e-4; the losses of 20 steps of fine-tuning, on
# one and on two devices, to 1e-3 (the first to 1e-5); all relative. Networks: tools/onnx_check/networks.py. Then ONNX
# Runtime computes every model of the zoo, to 1e-5. Names as arguments choose some; "zoo" is all of the latter.
#
# Builds what it needs of Bindery. PyTorch, and onnx, onnxscript and ONNX Runtime beside it: tools/python.sh.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tools/python.sh"
find_python pytorch onnx onnxruntime onnxscript
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:onnx_check)
exec "$python" -B "$root/tools/onnx_check/check.py" --program "$root/bazel-bin/tools/onnx_check" "$@"
