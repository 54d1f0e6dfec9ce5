#!/bin/bash
# Compares imported MXNet models with MXNet itself: models of several kinds, loaded from the files that MXNet saves,
# their predictions, gradients, outputs and parameters over some steps of SGD; a BucketingModule; and single operators,
# their outputs and gradients. MXNET names the Python of an environment that has it (models.py says how to make one). Neither build nor
# tests need it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for part in "" --operators; do
  "${MXNET:?names no Python}" -W ignore -B "$root/tools/compare_mxnet/models.py" $part "$folder" >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    exit 1
  }
done
(cd "$root" && tools/bazel build //tools:compare_mxnet)
"$root/bazel-bin/tools/compare_mxnet" "$folder"
