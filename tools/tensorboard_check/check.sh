#!/bin/bash
# Trains a little with `bindery train --tensorboard` and reads what it wrote by TensorBoard's own readers and plugins:
# numbers, histograms, images, the graph, the settings; before and after a resume; and numbers of trainings on data of
# every kind. Fails if anything is not as the lines of --json have it.
#
# Builds what it needs of Bindery. TensorBoard is that of the interpreter that the environment variable PYTHON names, or
# is installed into an environment of its own in the user's cache folder.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-tensorboard
python=${PYTHON:-$environment/bin/python}
if [ -z "${PYTHON:-}" ] && ! "$python" -c 'import tensorboard' 2>/dev/null; then
  echo "check: installing tensorboard into $environment" >&2
  [ -x "$environment/bin/python" ] || python3 -m venv "$environment"
  "$python" -m pip install --quiet tensorboard >&2
fi
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:bindery)
exec "$python" -B "$root/tools/tensorboard_check/check.py" --program "$root/bazel-bin/tools/bindery"
