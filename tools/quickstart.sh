#!/bin/bash
# From a fresh clone to a trained network: installs what is missing, builds, and runs `bindery train`. Options are handed
# on to it; without any it trains LeNet on digits that it draws itself, on two CPU devices, in place of an earlier run.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")

"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:bindery)
[ $# -gt 0 ] || set -- --overwrite
"$root/bazel-bin/tools/bindery" train "$@"
[ "$*" != --overwrite ] || echo "Now try: $root/bazel-bin/tools/bindery test" >&2
