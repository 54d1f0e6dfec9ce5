#!/bin/bash
# Compares imported MXNet models with MXNet itself: models of several kinds, loaded from the files that MXNet saves,
# their predictions, gradients, outputs and parameters over some steps of SGD, on one device and on two with an uneven
# split; a BucketingModule, and a module with states; and single operators, their outputs and gradients. Prints the
# largest difference of each, and fails if one is larger than rounding. Neither build nor tests need it.
#
# Builds what it needs of Bindery. MXNet 1.9.1 has an environment of its own in the user's cache folder, where it is
# installed the first time; or MXNET names a Python that can import it. It is no longer maintained, and runs on Python up
# to 3.11.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-mxnet
python=${MXNET:-$environment/bin/python}
usable() { "$python" -W ignore -c 'import mxnet' 2>/dev/null; }
if [ -z "${MXNET:-}" ] && ! usable; then
  for version in 3.11 3.10 3.9 3.8; do
    if "python$version" -c '' 2>/dev/null; then break; fi
  done
  echo "compare_mxnet: installing MXNet into $environment" >&2
  "python$version" -m venv "$environment" || {
    echo "compare_mxnet: needs a Python of version 3.8 to 3.11 with venv; on Debian 12: apt-get install python3-venv" >&2
    exit 1
  }
  "$environment/bin/pip" install --quiet 'numpy<1.24' mxnet==1.9.1 >&2
fi
usable || {
  echo "compare_mxnet: $python cannot import mxnet" >&2
  exit 1
}
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
