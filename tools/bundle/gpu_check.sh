#!/bin/bash
# Tells in eight minutes what of Bindery works on this machine's GPU, and how fast it is: the tests of devices, every
# operator's kernel against the reference, memory and races by compute-sanitizer where it is installed, and training
# steps beside those of PyTorch and JAX where a Python has them. A short table comes last, and all of it is in a file of
# JSON lines. It runs where tools/bundle.sh's archive was unpacked, and needs nothing else.
set -uo pipefail
export LC_ALL=C

usage() {
  cat <<'END'
usage: ./gpu_check.sh [--device cuda|cpu] [--json FILE] [--python PROGRAM]...

  --device KIND     cuda without it; cpu: the same on CPUs, to see that the bundle works
  --json FILE       gpu_check.json without it
  --python PROGRAM  that has PyTorch, JAX or both; may be given again; python3 without it
Exit status: 0 if everything passed, 1 if something failed, 3 if there is no GPU to check.
END
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
device=cuda json=gpu_check.json pythons=()
while [ $# -gt 0 ]; do
  case $1 in
    --device | --json | --python)
      [ $# -ge 2 ] || { usage >&2; exit 2; }
      if [ "$1" = --python ]; then pythons+=("$2"); else printf -v "${1#--}" %s "$2"; fi
      shift
      ;;
    --help | -h)
      usage
      exit
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
  shift
done
case $device in cuda | cpu) ;; *) usage >&2; exit 2 ;; esac
[ ${#pythons[@]} -gt 0 ] || pythons=(python3)
most=470 # seconds that all of it may take

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$json" || exit 1
failed=0
rows=()

say() { printf '\n=== %s\n' "$*" >&2; }
# row RESULT WHAT DETAIL
row() {
  rows+=("$(printf '%-7s %-44s %s' "$1" "$2" "$3")")
  printf '{"check": "%s", "result": "%s", "detail": "%s"}\n' "$2" "$1" "${3//\"/\'}" >>"$json"
  [ "$1" != FAILED ] || failed=1
}

devices=$("$here/bin/bindery" devices 2>&1)
echo "$devices" >&2
if [ "$device" = cuda ] && ! grep -q '^cuda:0 ' <<<"$devices"; then
  echo "gpu_check: there is no GPU to check: $(grep '^cuda' <<<"$devices")" >&2
  exit 3
fi

# tests WHAT SECONDS FILTER COMMAND...: the device tests whose suites fit the pattern, by this command before the
# program. Each suite in a process of its own: what one does to the engine of its process is no business of another.
tests() {
  local what=$1 end=$((SECONDS + $2)) pattern=$3 passed=0 bad=() suite count
  shift 3
  say "$what"
  while read -r suite; do
    if BINDERY_TEST_DEVICES=$device timeout $((end > SECONDS ? end - SECONDS : 1)) "$@" \
      "$here/bin/bindery-device-tests" --gtest_filter="$suite*" >"$work/log" 2>&1; then
      count=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/log")
      passed=$((passed + ${count:-0}))
    else
      bad+=("${suite%.}")
      grep -aE '^\[  FAILED|: Failure|ERROR SUMMARY|=========' "$work/log" | head -n 20 >&2
      [ $SECONDS -lt $end ] || break
    fi
  done < <("$here/bin/bindery-device-tests" --gtest_list_tests --gtest_filter="$pattern" | grep '^[^ ].*[.]$')
  if [ ${#bad[@]} -gt 0 ]; then
    [ $SECONDS -lt $end ] || bad+=("no time was left")
    row FAILED "$what" "$passed passed; failed: ${bad[*]}"
  else
    row passed "$what" "$passed passed"
  fi
}

tests "operators against the reference" 110 'GpuOperators.*'
tests "devices, groups, stores, training" 110 '-GpuOperators.*'

if [ "$device" = cuda ]; then
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
  for tool in memcheck racecheck; do
    if [ -n "$sanitizer" ]; then
      tests "compute-sanitizer $tool" 40 'Losses.*' "$sanitizer" --tool "$tool" --error-exitcode 9
    else
      row "left out" "compute-sanitizer $tool" "it is not installed"
    fi
  done
fi

number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | head -n 1; }

# Peers that a Python has: the name, the program, the Python.
peers=()
find_peer() { # NAME MODULE PROGRAM
  local python
  for python in "${pythons[@]}"; do
    if timeout 60 "$python" -c "import $2" 2>/dev/null; then
      peers+=("$1|$3|$python")
      return
    fi
  done
  row "left out" "$1" "${pythons[*]} cannot import $2 (--python names another one)"
}
find_peer PyTorch torch torch_peer.py
find_peer JAX jax jax_peer.py

# What is left of the time, shared out among the networks that are left, and of that among ours and the peers.
share() { # PARTS
  local left=$(((most - SECONDS) / networks / $1))
  echo $((left > 1 ? left : 1))
}
timings=()
models=(mlp:64 lenet:64 resnet20:128)
[ "$device" != cuda ] || models+=(resnet50:64 gpt:16 lstm:16)
networks=${#models[@]}
for model in "${models[@]}"; do
  name=${model%:*} batch=${model#*:}
  say "training steps: $name, batches of $batch"
  part=$(share $((1 + ${#peers[@]})))
  line=$(timeout --kill-after=5 "$part" "$here/bin/bindery-bench" --json --no-chain --phase train --model "$name" \
    --batch-size "$batch" --device "$device:0" --steps 20 2>"$work/log")
  ours=$(number step_median_ms <<<"$line")
  if [ -n "$ours" ]; then
    echo "$line" >>"$json"
  else
    row FAILED "training steps of $name" "$(tail -n 1 "$work/log")"
  fi
  best= best_by=
  for peer in "${peers[@]}"; do
    [ -n "$ours" ] || break
    IFS='|' read -r peer_name program python <<<"$peer"
    PYTHONPATH=$here/lib timeout --kill-after=5 "$part" "$python" "$here/lib/$program" --model "$name" \
      --batch-size "$batch" --device "${device/cuda/cuda:0}" >"$work/peer" 2>"$work/log"
    status=$?
    while IFS= read -r line; do
      echo "$line" >>"$json"
      theirs=$(number step_median_ms <<<"$line")
      [ -n "$theirs" ] || continue
      if [ -z "$best" ] || awk "BEGIN { exit !($theirs < $best) }"; then
        best=$theirs best_by=$(sed -n 's/.*"peer": *"\([^"]*\)".*/\1/p' <<<"$line")
      fi
    done < <(grep '^{' "$work/peer")
    if [ $status = 124 ]; then
      row "left out" "$peer_name's $name" "what it had not measured after $part s"
    elif [ $status != 0 ]; then
      row "left out" "$peer_name's $name" "$(tail -n 1 "$work/log")"
    fi
  done
  networks=$((networks - 1))
  [ -n "$ours" ] || continue
  if [ -n "$best" ]; then
    ratio=$(awk "BEGIN { printf \"%.2f\", $ours / $best }")
    timings+=("$(printf '%-10s %6s %10.3f ms %10.3f ms  %6s  %s' "$name" "$batch" "$ours" "$best" "$ratio" "$best_by")")
  else
    timings+=("$(printf '%-10s %6s %10.3f ms' "$name" "$batch" "$ours")")
  fi
done

echo
printf '%s\n' "${rows[@]}"
echo
printf '%-10s %6s %13s %13s  %6s\n' "training" batch Bindery "best peer" ratio
printf '%s\n' "${timings[@]}"
echo
if [ $failed = 0 ]; then echo "Everything passed; details: $json"; else echo "Something FAILED; details: $json"; fi
exit $failed
