#!/bin/bash
# Compares Bindery's reading of images with Pillow's, which torchvision uses: the same JPEG files decoded, scaled and made
# to floats, on one core each, in turns. Fails if a pixel differs by more than 1 of 255. Options: --help.
#
# Builds what it needs of Bindery. Pillow: tools/python.sh.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tools/python.sh"
find_python pillow
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:compare_pillow)
exec "$python" -B "$root/tools/compare_pillow/compare.py" --program "$root/bazel-bin/tools/compare_pillow" "$@"
