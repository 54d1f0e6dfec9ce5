#!/bin/bash
# Compares training rules with those of the systems that have them: 100 updates by every optimizer, loss scales with
# overflows, accumulation over micro-batches; prints the largest relative difference of each, and fails if one is larger
# than rounding. (Epochs, triggers and ParallelUpdater: compare_chainer.) Neither build nor tests need it.
#
#   compare.sh [pytorch] [chainer] [nnabla] [formulas]     all of them, unless named
#
# Builds what it needs of Bindery. Each system has an environment of its own in the user's cache folder, where it is
# installed the first time; or a variable, PYTORCH, CHAINER, NNABLA or FORMULAS, names a Python that can import it. Two
# are no longer maintained: Chainer runs on Python up to 3.11, NNabla up to 3.10, which Debian 12 does not have. What
# finds no such Python is left out, unless it is named.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}

say() { echo "compare_rules: $*" >&2; }

# The first of these versions of Python that is there.
interpreter() {
  local version
  for version in "$@"; do
    if "python$version" -c '' 2>/dev/null; then
      echo "python$version"
      return
    fi
  done
  return 1
}

# environment SYSTEM VERSIONS: makes its environment by the first such Python that is there, if there is none, and sets
# $pip.
environment() {
  local system=$1 made_by
  pip=$cache/bindery-$system/bin/pip
  # shellcheck disable=SC2086
  [ -x "$pip" ] || made_by=$(interpreter $2) || {
    say "$system needs a Python of version ${2// / or }, or $(variable "$system") to name one that has it"
    return 1
  }
  say "installing $system into $cache/bindery-$system"
  [ ! -x "$pip" ] || return 0
  "$made_by" -m venv "$cache/bindery-$system" || {
    say "$made_by -m venv failed; on Debian: apt-get install python3-venv"
    return 1
  }
}

install() {
  case $1 in
    pytorch)
      environment pytorch "3.13 3.12 3.11 3.10 3" || return 1
      # Its own index has builds without CUDA, far smaller; pip takes the registry's where that cannot be reached.
      "$pip" install --quiet --extra-index-url https://download.pytorch.org/whl/cpu numpy torch >&2
      ;;
    chainer)
      environment chainer "3.11 3.10 3.9 3.8" || return 1
      "$pip" install --quiet 'numpy<1.24' 'setuptools<60' wheel six filelock typing_extensions 'protobuf<3.21' >&2 &&
        "$pip" install --quiet --no-build-isolation --no-deps chainer==7.8.1 >&2
      ;;
    nnabla)
      environment nnabla "3.10 3.9 3.8" || return 1
      "$pip" install --quiet nnabla==1.39.0 >&2
      ;;
    formulas)
      environment formulas 3 || return 1
      "$pip" install --quiet numpy >&2
      ;;
  esac
}

variable() { echo "${1^^}"; }
module() {
  case $1 in
    pytorch) echo torch ;;
    formulas) echo math ;;  # NumPy is enough
    *) echo "$1" ;;
  esac
}

# Sets $python to one that can import the system, which is installed if need be.
find_python() {
  local system=$1 named
  named=$(variable "$system")
  python=${!named:-$cache/bindery-$system/bin/python}
  usable() { "$python" -W ignore -c "import numpy, $(module "$system")" 2>/dev/null; }
  usable && return
  [ -n "${!named:-}" ] || install "$system" || return 1
  usable || {
    say "$python cannot import $(module "$system")"
    return 1
  }
}

systems=("$@")
[ $# -gt 0 ] || systems=(pytorch chainer nnabla formulas)
for system in "${systems[@]}"; do
  case $system in
    pytorch | chainer | nnabla | formulas) ;;
    *)
      say "unknown system \"$system\": expected pytorch, chainer, nnabla or formulas"
      exit 2
      ;;
  esac
done
"$root/tools/setup.sh"
(cd "$root" && tools/bazel build //tools:compare_rules)
failed=0 compared=0
for system in "${systems[@]}"; do
  if ! find_python "$system"; then
    [ $# -eq 0 ] || failed=1
    say "$system is left out"
    continue
  fi
  "$python" -W ignore -B "$root/tools/compare_rules/rules.py" "$system" \
    --program "$root/bazel-bin/tools/compare_rules" || failed=1
  compared=1
done
[ $compared = 1 ] || failed=1
exit $failed
