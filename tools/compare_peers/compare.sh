#!/bin/bash
# Measures trainings and predictions beside those of PyTorch, JAX, MXNet and ONNX Runtime, in turns, each in the fastest
# of its settings, which are searched; equal losses show that the work is equal. Writes all samples and a table:
# docs/performance.md. Options: --help.
#
# Builds what it needs of Bindery, or takes it from the folder that BINDERY_TEST_BIN names, like bazel-bin. The peers:
# tools/python.sh; one that cannot be had is named, and left out. PyTorch compiles with g++. jemalloc and tcmalloc are
# tried where the system has them: on Debian, apt-get install libjemalloc2 libtcmalloc-minimal4.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
here=$root/tools/compare_peers
source "$root/tools/python.sh"

say() { echo "compare_peers: $*" >&2; }

# Prints where a library is, if the system has it. (All of the list is read: a pipe that is closed early is a failure.)
find_library() { # NAME
  ldconfig -p 2>/dev/null | awk -v name="$1" '!found && index($1, name ".so.") == 1 { print $NF; found = 1 }'
}

case " $* " in
  *" --help "* | *" -h "*) exec python3 -B "$here/compare.py" --program none --help ;;
esac
arguments=()
for peer in pytorch jax mxnet onnxruntime; do
  if find_python "$peer"; then
    arguments+=(--python "$peer=$python")
    [ "$peer" != pytorch ] || pytorch=$python
  else
    say "$peer is left out"
  fi
done

# A library that settings may preload.
offer() { # NAME PATH
  if [ -n "$2" ] && [ -e "$2" ]; then arguments+=(--library "$1=$2"); else say "$1 is not tried: not installed"; fi
}
for allocator in jemalloc tcmalloc; do
  for name in "lib$allocator" "lib${allocator}_minimal"; do
    library=$(find_library "$name")
    [ -z "$library" ] || break
  done
  offer "$allocator" "$library"
done
# Intel's OpenMP comes as a package, too.
if [ -n "${pytorch:-}" ] && [ -z "${PYTORCH:-}" ]; then
  library=$(dirname "$(dirname "$pytorch")")/lib/libiomp5.so
  [ -e "$library" ] || "$pytorch" -m pip install --quiet intel-openmp >&2 || true
  offer iomp5 "$library"
fi

if [ -z "${BINDERY_TEST_BIN:-}" ]; then
  "$root/tools/setup.sh"
  (cd "$root" && tools/bazel build //tools:compare_peers)
fi
exec python3 -B "$here/compare.py" --program "${BINDERY_TEST_BIN:-$root/bazel-bin}/tools/compare_peers" \
  "${arguments[@]}" "$@"
