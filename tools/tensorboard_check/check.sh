#!/bin/bash
# Trains a little with `bindery train --tensorboard` and reads what it wrote by TensorBoard's own readers and plugins:
# numbers, histograms, images, the graph, the settings; before and after a resume; and numbers of trainings on data of
# every kind. Fails if anything is not as the lines of --json have it.
#
# Builds what it needs of Bindery. TensorBoard: tools/python.sh.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tools/python.sh"
find_python tensorboard
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:bindery)
exec "$python" -B "$root/tools/tensorboard_check/check.py" --program "$root/bazel-bin/tools/bindery"
