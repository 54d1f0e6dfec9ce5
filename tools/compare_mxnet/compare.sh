#!/bin/bash
# Compares imported MXNet models with MXNet itself: models of several kinds, loaded from the files that MXNet saves,
# their predictions, gradients, outputs and parameters over some steps of SGD, on one device and on two with an uneven
# split; a BucketingModule, and a module with states; and single operators, their outputs and gradients. Prints the
# largest difference of each, and fails if one is larger than rounding. Neither build nor tests need it.
#
# Builds what it needs of Bindery. MXNet 1.9.1, which is no longer maintained: tools/python.sh.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tools/python.sh"
find_python mxnet
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:compare_mxnet)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for part in "" --operators; do
  # shellcheck disable=SC2086
  "$python" -W ignore -B "$root/tools/compare_mxnet/models.py" $part "$folder/made" >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    exit 1
  }
done
"$root/bazel-bin/tools/compare_mxnet" "$folder/made"
