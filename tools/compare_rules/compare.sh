#!/bin/bash
# Compares training rules with those of the systems that have them: 100 updates by every optimizer, loss scales with
# overflows, accumulation over micro-batches; prints the largest relative difference of each, and fails if one is larger
# than rounding. (Epochs, triggers and ParallelUpdater: compare_chainer.) Neither build nor tests need it.
#
#   compare.sh [pytorch] [chainer] [nnabla] [formulas]     all of them, unless named
#
# Builds what it needs of Bindery. The systems: tools/python.sh. Two are no longer maintained: Chainer runs on Python up
# to 3.11, NNabla up to 3.10, which Debian 12 does not have. What finds no such Python is left out, unless it is named.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tools/python.sh"

say() { echo "compare_rules: $*" >&2; }

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
  if ! find_python "${system/formulas/numpy}"; then
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
