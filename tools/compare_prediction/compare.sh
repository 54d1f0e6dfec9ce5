#!/bin/bash
# Compares predictions with ONNX Runtime's, of our models as we export them: outputs must agree to 1e-4 of the largest;
# times are measured in turns, by one thread and by two. Options: --help.
#
# Builds what it needs of Bindery. ONNX Runtime comes from an environment of its own: the interpreter that the
# environment variable PYTHON names, or one in the user's cache folder, where it is installed the first time.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-onnxruntime
python=${PYTHON:-$environment/bin/python}
usable() { "$python" -c "import numpy, onnxruntime" 2>/dev/null; }
if [ -z "${PYTHON:-}" ] && ! usable; then
  echo "compare: installing ONNX Runtime into $environment" >&2
  [ -x "$environment/bin/python" ] || python3 -m venv "$environment"
  "$python" -m pip install --quiet numpy onnxruntime >&2
fi
usable || { echo "compare: $python cannot import numpy and onnxruntime" >&2; exit 1; }
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:compare_prediction)
exec "$python" -B "$root/tools/compare_prediction/compare.py" --program "$root/bazel-bin/tools/compare_prediction" "$@"
