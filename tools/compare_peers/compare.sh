#!/bin/bash
# Measures trainings and predictions beside those of PyTorch, JAX, MXNet and ONNX Runtime, in turns, each in the fastest
# of its settings, which are searched; equal losses show that the work is equal. Writes all samples and a table:
# docs/performance.md. Options: --help.
#
# Builds what it needs of Bindery, or takes it from the folder that BINDERY_TEST_BIN names, like bazel-bin. Each peer has an
# environment of its own in the user's cache folder, where it is installed the first time; or a variable, PYTORCH, JAX,
# MXNET or ONNXRUNTIME, names a Python that can import it. MXNet is no longer maintained, and runs on Python up to 3.11.
# A peer that cannot be had is named, and left out. PyTorch compiles with g++. jemalloc and tcmalloc are tried where the
# system has them: on Debian, apt-get install libjemalloc2 libtcmalloc-minimal4.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/tools/compare_peers
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}

say() { echo "compare_peers: $*" >&2; }

# Peer, its module, versions of Python that it runs on, packages. PyTorch's own index has builds without CUDA, far
# smaller; pip takes the registry's where that cannot be reached.
peers='
pytorch|torch|3.13 3.12 3.11 3.10 3|--retries 1 --extra-index-url https://download.pytorch.org/whl/cpu numpy torch
jax|jax|3.14 3.13 3.12 3.11 3|numpy jax
mxnet|mxnet|3.11 3.10 3.9 3.8|numpy<1.24 mxnet==1.9.1
onnxruntime|onnxruntime|3.13 3.12 3.11 3.10 3|numpy onnxruntime
'

# Prints a Python that can import the module, which is installed if need be.
find_python() { # PEER MODULE VERSIONS PACKAGES
  local variable=${1^^} version
  local environment=$cache/bindery-$1
  local python=${!variable:-$environment/bin/python}
  usable() { "$python" -W ignore -c "import numpy, $1" 2>/dev/null; }
  if [ -z "${!variable:-}" ] && ! usable "$2"; then
    if [ ! -x "$python" ]; then
      for version in $3; do
        if "python$version" -c 'import venv' 2>/dev/null; then break; fi
      done
      "python$version" -m venv "$environment" >&2 || {
        say "$1 needs a Python of version ${3// / or } with venv, or $variable to name one that has it"
        return 1
      }
    fi
    say "installing $1 into $environment"
    # shellcheck disable=SC2086
    "$python" -m pip install --quiet $4 >&2 || return 1
  fi
  usable "$2" || {
    say "$python cannot import numpy and $2"
    return 1
  }
  echo "$python"
}

# Prints where a library is, if the system has it. (All of the list is read: a pipe that is closed early is a failure.)
find_library() { # NAME
  ldconfig -p 2>/dev/null | awk -v name="$1" '!found && index($1, name ".so.") == 1 { print $NF; found = 1 }'
}

case " $* " in
  *" --help "* | *" -h "*) exec python3 -B "$here/compare.py" --program none --help ;;
esac
arguments=()
while IFS='|' read -r peer module versions packages; do
  [ -n "$peer" ] || continue
  if python=$(find_python "$peer" "$module" "$versions" "$packages" </dev/null); then
    arguments+=(--python "$peer=$python")
    [ "$peer" != pytorch ] || pytorch=$python
  fi
done <<<"$peers"

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
