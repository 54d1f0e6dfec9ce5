#!/bin/bash
# Compares Bindery's reading of images with Pillow's, which torchvision uses: the same JPEG files decoded, scaled and made
# to floats, on one core each, in turns. Fails if a pixel differs by more than 1 of 255. Options: --help.
#
# Builds what it needs of Bindery. Pillow is that of the interpreter that the environment variable PYTHON names, or is
# installed into an environment of its own in the user's cache folder.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-pillow
python=${PYTHON:-$environment/bin/python}
if [ -z "${PYTHON:-}" ] && ! "$python" -c 'import numpy, PIL' 2>/dev/null; then
  echo "compare: installing numpy and Pillow into $environment" >&2
  [ -x "$environment/bin/python" ] || python3 -m venv "$environment"
  "$python" -m pip install --quiet numpy Pillow >&2
fi
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:compare_pillow)
exec "$python" -B "$root/tools/compare_pillow/compare.py" --program "$root/bazel-bin/tools/compare_pillow" "$@"
