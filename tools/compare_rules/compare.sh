#!/bin/bash
# Compares training rules with those of the systems that have them: 100 updates by every optimizer, loss scales with
# overflows, accumulation over micro-batches; prints the largest relative difference of each, and fails if one is larger
# than rounding. (Epochs, triggers and ParallelUpdater: compare_chainer.) Neither build nor tests need it.
#
#   compare.sh [pytorch] [chainer] [nnabla] [formulas]     all that are found, unless named
#
# Each needs an environment of its own, whose Python the variables PYTORCH, CHAINER and NNABLA name:
#
#   python3 -m venv pytorch && pytorch/bin/pip install numpy torch
#   python3.10 -m venv nnabla && nnabla/bin/pip install 'numpy<1.24' 'protobuf<3.21' nnabla==1.39.0
#   Chainer's as compare_chainer/chainer_numbers.py says
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
declare -A python=([pytorch]=${PYTORCH:-} [chainer]=${CHAINER:-} [nnabla]=${NNABLA:-}
                   [formulas]=${PYTORCH:-${CHAINER:-${NNABLA:-python3}}})
systems=("$@")
if [ $# -eq 0 ]; then
  for system in pytorch chainer nnabla formulas; do
    if [ -n "${python[$system]}" ]; then
      systems+=("$system")
    else
      echo "compare_rules: ${system^^} names no Python: left out" >&2
    fi
  done
fi
(cd "$root" && tools/bazel build //tools:compare_rules)
failed=0
for system in "${systems[@]}"; do
  "${python[$system]:?${system^^} names no Python}" -W ignore -B "$root/tools/compare_rules/rules.py" "$system" \
    --program "$root/bazel-bin/tools/compare_rules" || failed=1
done
exit $failed
