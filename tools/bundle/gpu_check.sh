#!/bin/bash
# Tells in eight minutes what of Bindery works on this machine's GPU, and how fast it is: operators' kernels against the
# reference, by NVIDIA's libraries and by own kernels; the tests of devices; memory and races by compute-sanitizer where
# it is installed; trainings beside a CPU's, and with CUDA graphs beside those without; and training steps beside those
# of PyTorch and JAX where a Python has them. A short table comes last, and all of it is in a file of JSON lines. All it
# needs lies where tools/bundle.sh's archive was unpacked.
set -uo pipefail
export LC_ALL=C

usage() {
  cat <<'END'
usage: ./gpu_check.sh [--device cuda|cpu] [--json FILE] [--python PROGRAM]...

  --device KIND     cuda without it; cpu: what of it CPUs can do, to see that the bundle works
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

# As programs are without anyone's switches; what NVRTC compiles is compiled now, and not kept.
unset BINDERY_CUBLASLT BINDERY_CUDNN BINDERY_NVRTC BINDERY_NCCL BINDERY_CUDA_GRAPHS BINDERY_TF32 BINDERY_MAX_ISA
export XDG_CACHE_HOME=$work/cache

say() { printf '\n=== %s\n' "$*" >&2; }
# row RESULT WHAT DETAIL
row() {
  local detail=${3//[\"\\]/\'}
  detail=${detail//[[:cntrl:]]/ }
  rows+=("$(printf '%-8s %-44s %s' "$1" "$2" "$detail")")
  printf '{"check": "%s", "result": "%s", "detail": "%s"}\n' "$2" "$1" "$detail" >>"$json"
  [ "$1" != FAILED ] || failed=1
}
joined() { printf '%s, ' "$@" | sed 's/, $//'; }

say "the machine"
machine=$("$here/bin/bindery" devices 2>&1)
echo "$machine" >&2
if [ "$device" = cuda ] && ! grep -q '^cuda:0 ' <<<"$machine"; then
  echo "gpu_check: there is no GPU to check: $(grep '^cuda' <<<"$machine")" >&2
  exit 3
fi
"$here/bin/bindery" devices --json >>"$json"
while read -r name what; do row machine "$name" "$what"; done < <(grep '^c' <<<"$machine")
by=() # the libraries that operators are by
if [ "$device" = cuda ]; then
  while read -r name what; do
    if [ "$what" = "not found" ]; then row "left out" "$name" "it is not found"; else row machine "$name" "$what"; fi
    [[ $name != cu* || $what = "not found" ]] || by+=("$name $what")
  done < <(grep '^ ' <<<"$machine")
fi

# What programs do for want of something: a library that is there may not work, and own code does its work then.
warned=()
warnings() {
  local line
  while IFS= read -r line; do
    [[ " ${warned[*]} " == *" $line "* ]] || row warning "${1:0:44}" "$line"
    warned+=("$line")
  done < <(grep -aE 'by own kernels|copy what they exchange|one by one: |is not captured' "$work/log" | sort -u)
}

# Why a program failed, in a line.
reason() {
  grep -aA3 ': Failure$' "$work/log" | head -n 4 | paste -sd ' ' | cut -c 1-300 | grep . || findings | grep . ||
    grep -a . "$work/log" | tail -n 1
}
findings() { grep -aE '^========= .*[a-z]' "$work/log" | grep -v 'SUMMARY: 0 ' | head -n 1; } # of compute-sanitizer
# Of the tests of a suite: those that failed, or the one in which the process ended.
failed_tests() {
  sed -n 's/^\[  FAILED  \] \([^ ,]*\).* ms)$/\1/p' "$work/log" | paste -sd ' ' | grep . ||
    sed -n 's/^\[ RUN      \] //p' "$work/log" | tail -n 1 | grep . || echo "$1"
}
tests_that() { sed -n "s/^\[  $1 *\] \([0-9]*\) tests*[.,].*/\1/p" "$work/log" | grep . || echo 0; }

# tests WHAT SECONDS PATTERNS COMMAND...: the device tests whose suites fit one of the patterns, with spaces between, by
# this command before the program. Each suite in a process of its own: what one does to the engine of its process, and
# to the GPU, is no business of another. A command makes tests slow: what it has not ended in time has not failed.
tests() {
  local what=$1 end=$((SECONDS + $2)) patterns passed=0 skipped=0 bad=() undone=() why='' suite left status detail
  read -ra patterns <<<"$3"
  shift 3
  say "$what"
  while read -r suite; do
    left=$((end - SECONDS)) suite=${suite%.}
    if [ $left -le 0 ]; then
      undone+=("$suite")
      continue
    fi
    BINDERY_TEST_DEVICES=$device timeout --kill-after=5 "$left" "$@" \
      "$here/bin/bindery-device-tests" --gtest_filter="$suite.*" >"$work/log" 2>&1
    status=$?
    passed=$((passed + $(tests_that PASSED))) skipped=$((skipped + $(tests_that SKIPPED)))
    warnings "$suite"
    case $status in
      0) continue ;;
      124 | 137)
        if [ $# -gt 0 ] && [ -z "$(findings)" ]; then
          undone+=("$suite")
          continue
        fi
        why=${why:-not ended after $left s}
        ;;
      1[3-9]?) why=${why:-ended by signal $((status - 128))} ;;
    esac
    bad+=("$(failed_tests "$suite")")
    why=${why:-$(reason)}
    grep -aE '^\[  FAILED|: Failure|=========' "$work/log" | head -n 20 >&2
  done < <(for pattern in "${patterns[@]}"; do
    "$here/bin/bindery-device-tests" --gtest_list_tests --gtest_filter="$pattern" | grep -o '^[^ ]*[.]'
  done)
  detail="$passed passed"
  [ $skipped = 0 ] || detail+=", $skipped skipped"
  [ ${#undone[@]} = 0 ] || detail+="; no time was left for ${undone[*]}"
  if [ ${#bad[@]} -gt 0 ]; then
    row FAILED "$what" "$detail; failed: ${bad[*]}: $why"
  elif [ ${#undone[@]} -gt 0 ]; then
    row partly "$what" "$detail"
  elif [ $passed = 0 ]; then
    row FAILED "$what" "no test ran"
  else
    row passed "$what" "$detail"
  fi
}

families() { printf 'GpuOperators%s.* ' "$@"; }
operators=operators
[ "$device" != cuda ] || operators+=" by $(joined "${by[@]:-own kernels}")"
tests "$operators" 75 'GpuOperators*-GpuOperatorsLarge.*'
tests "large operators" 60 'GpuOperatorsLarge.*'
if [ ${#by[@]} -gt 0 ]; then
  BINDERY_CUBLASLT=no BINDERY_CUDNN=no tests "the same of those by own kernels" 45 \
    "$(families FullyConnected MatMul Convolution Attention Recurrent)"
fi
tests "devices, groups, stores, training" 50 '-GpuOperators*'

# Own kernels, those among them that share a block's memory: NVIDIA's libraries are not ours to check. That a call of
# CUDA's fails is no finding: what a machine may lack is asked for.
if [ "$device" = cuda ]; then
  sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer)
  sanitized="Losses.* $(families Softmax CrossEntropy FullyConnected BatchNorm Order Attention Indexing Reduce)"
  for tool in memcheck racecheck; do
    if [ -n "$sanitizer" ]; then
      BINDERY_CUBLASLT=no BINDERY_CUDNN=no BINDERY_NVRTC=no tests "compute-sanitizer $tool" 35 "$sanitized" \
        "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9
    else
      row "left out" "compute-sanitizer $tool" "it is not installed"
    fi
  done
fi

# train FOLDER DEVICE OPTIONS...: by the program, for 20 steps; the model into the folder, the loss of each step beside
# it. What steps give is read after each, which is an epoch: so it is no matter of how many are in flight.
steps=20
train() {
  local folder=$work/$1 where=$2 left=$((trainings_end - SECONDS))
  shift 2
  mkdir -p "$folder"
  timeout --kill-after=5 $((left > 1 ? left : 1)) "$here/bin/bindery" train --device "$where" "$@" --epochs $steps \
    --seed 1 --checkpoints "" --save "$folder/model.pb" --json --progress none >"$work/out" 2>"$work/log"
  status=$?
  sed -n 's/.*"event":"epoch".*"train":{[^}]*"cross-entropy":\([0-9.e+-]*\).*/\1/p' "$work/out" >"$folder.losses"
  [ $status != 124 ] || echo "not ended when no time was left" >>"$work/log"
  [ $status != 0 ] || echo "it gave $(wc -l <"$folder.losses") losses, not $steps" >>"$work/log"
  [ $status = 0 ] && [ "$(wc -l <"$folder.losses")" = $steps ]
}

# training NETWORK OPTIONS...: the same on the device and on a CPU, and with CUDA graphs and without.
training() {
  local network=$1 losses verdict
  losses="losses of $network beside a CPU's"
  shift
  say "training of $network"
  rm -rf "$work/there" "$work/piecewise"
  if ! train there "$device:0" --model "$network" "$@"; then
    row FAILED "training of $network" "$(reason)"
    return
  fi
  warnings "training of $network"
  if [ "$device" = cuda ]; then
    if grep -q 'is not captured' "$work/log"; then
      row FAILED "$network: graphs give the same bits" "the driver captures none"
    elif ! BINDERY_CUDA_GRAPHS=no train piecewise "$device:0" --model "$network" "$@"; then
      row FAILED "$network: graphs give the same bits" "without graphs: $(reason)"
    elif diff -rq "$work/there" "$work/piecewise" >"$work/log" 2>&1; then
      row passed "$network: graphs give the same bits" "of all parameters after $steps steps"
    else
      row FAILED "$network: graphs give the same bits" "the models differ after $steps steps"
    fi
  fi
  if ! train cpu cpu:0 --model "$network" "$@"; then
    row FAILED "$losses" "on the CPU: $(reason)"
    return
  fi
  verdict=$(paste "$work/there.losses" "$work/cpu.losses" | awk '
    { far = ($1 - $2) / $2; far = far < 0 ? -far : far; if (!(far <= most)) { most = far; step = NR } last = $1 }
    NR == 1 { first = $1 }
    END { printf "%s %.4f to %.4f; at most %.1e apart, in step %d", most <= 1e-3 ? "passed" : "FAILED", first, last,
          most, step }')
  row "${verdict%% *}" "$losses" "${verdict#* }"
  printf '{"training": "%s", "%s": [%s], "cpu": [%s]}\n' "$network" "$device:0" "$(paste -sd, "$work/there.losses")" \
    "$(paste -sd, "$work/cpu.losses")" >>"$json"
}

# Rates and initial values with which roundings hardly grow: losses by AVX2 and by AVX-512 were 3e-5 apart at most.
trainings_end=$((SECONDS + 100))
digits=(--batch-size 16 --train-digits 16 --test-digits 1)
text=(--data "text:$here/LICENSE" --batch-size 4 --epoch-batches 1)
training lenet "${digits[@]}" --optimizer 'sgd(lr=0.02, momentum=0.9)'
training resnet20 "${digits[@]}" --optimizer 'sgd(lr=1e-4, momentum=0.9)'
training lstm "${text[@]}"
if [ "$device" = cuda ]; then
  training gpt "${text[@]}"
  "$here/bin/bindery" train --model mlp --device cpu:0 --batch-size 8 --train-digits 8 --test-digits 4 --epochs 1 \
    --checkpoints "" --write-digits "images:$work/digits" --progress none >/dev/null 2>&1
  images="images:$work/digits/train?size=64"
  training resnet50 --data "$images" --test-data "$images&shard=0/8" --batch-size 8 \
    --optimizer 'sgd(lr=2e-6, momentum=0.9)' --initializer '*_bn3_gamma: constant(0.1), xavier'
fi

number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | head -n 1; }

# What a warm step asks of the GPU besides work, by the benchmark's line: no memory; nor does the host wait, but for one
# operation that hears what became of the step (that of the step before may come late), and for the benchmark, which
# begins a step when the last one is over.
judge_step() { # NETWORK LINE
  local name result=FAILED counts=()
  for name in allocations synchronizations waits waits_of_caller; do
    counts+=("$(number "gpu_$name" <<<"$2")")
  done
  if awk -v "counts=${counts[*]}" 'BEGIN { exit !(split(counts, n, " ") == 4 && n[1] + n[2] == 0 && n[3] < 1.5) }'; then
    result=passed
  fi
  row $result "steps of $1: memory and waits" \
    "${counts[0]} allocations, ${counts[1]} synchronizations, ${counts[2]} waits; ${counts[3]} of the benchmark"
}

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
    [ "$device" != cuda ] || judge_step "$name" "$line"
  else
    row FAILED "training steps of $name" "$(tail -n 1 "$work/log")"
  fi
  best='' best_by=''
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
