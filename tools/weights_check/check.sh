#!/bin/bash
# Exchanges files of weights with Python's own readers and writers, NumPy and the safetensors package: every element
# type, in both directions, through `bindery convert` and `bindery verify`. Fails if a bit is another.
#
# Builds what it needs of Bindery, unless the environment variable BINDERY names a program. NumPy, ml_dtypes and
# safetensors: tools/python.sh.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tools/python.sh"
find_python safetensors
if [ -z "${BINDERY:-}" ]; then
  "$root/tools/setup.sh"
  (cd "$root" && tools/bazel build //tools:bindery)
fi
exec "$python" -B "$root/tools/weights_check/check.py" --program "${BINDERY:-$root/bazel-bin/tools/bindery}"
