#!/bin/bash
# Exchanges files of weights with Python's own readers and writers, NumPy and the safetensors package: every element
# type, in both directions, through `bindery convert` and `bindery verify`. Fails if a bit is another.
#
# Builds what it needs of Bindery, unless the environment variable BINDERY names a program. The packages are those of the
# interpreter that PYTHON names, or are installed into an environment of their own in the user's cache folder.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-weights
python=${PYTHON:-$environment/bin/python}
if [ -z "${PYTHON:-}" ] && ! "$python" -c 'import numpy, ml_dtypes, safetensors' 2>/dev/null; then
  echo "check: installing numpy, ml_dtypes and safetensors into $environment" >&2
  [ -x "$environment/bin/python" ] || python3 -m venv "$environment"
  "$python" -m pip install --quiet numpy ml_dtypes safetensors >&2
fi
if [ -z "${BINDERY:-}" ]; then
  "$root/tools/setup.sh"
  (cd "$root" && tools/bazel build //tools:bindery)
fi
exec "$python" -B "$root/tools/weights_check/check.py" --program "${BINDERY:-$root/bazel-bin/tools/bindery}"
