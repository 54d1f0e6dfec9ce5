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
usage: ./gpu_check.sh [--device cuda|cpu] [--seconds N] [--only PART]... [--json FILE] [--python PROGRAM]...

  --device KIND     cuda without it; cpu: what of it CPUs can do, to see that the bundle works
  --seconds N       that all of it may take, shared out among the parts; 480 without it
  --only PART       operators, devices, sanitizer, trainings, graphs or steps, of GPUs alone sanitizer and graphs;
                    may be given again; all without it
  --json FILE       gpu_check.json without it; with --only, gpu_check-PART.json
  --python PROGRAM  that has PyTorch, JAX or both, or NVIDIA's libraries; may be given again; python3 without it
Exit status: 0 if nothing failed, 1 if something did or no program starts, 3 if there is no GPU to check.
END
}

here=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")")
device=cuda seconds=480 only=() json='' pythons=()
while [ $# -gt 0 ]; do
  case $1 in
    --device | --seconds | --only | --json | --python)
      [ $# -ge 2 ] || { usage >&2; exit 2; }
      case $1 in
        --only) only+=("$2") ;;
        --python) pythons+=("$2") ;;
        *) printf -v "${1#--}" %s "$2" ;;
      esac
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
case $device,${only[*]} in cpu,*sanitizer* | cpu,*graphs*) usage >&2; exit 2 ;; esac
[[ $seconds =~ ^[1-9][0-9]{0,5}$ ]] || { usage >&2; exit 2; }
[ ${#pythons[@]} -gt 0 ] || pythons=(python3)
[ -n "$json" ] || json=gpu_check$(printf -- '-%s' "${only[@]}" | sed 's/^-$//').json

# The parts' shares of the time: what a part leaves is for those after it. Steps are last: a peer's compiler takes what
# it gets.
declare -A shares=([operators]=13 [devices]=6 [sanitizer]=4 [trainings]=6 [graphs]=2 [steps]=17)
[ ${#only[@]} -gt 0 ] || only=("${!shares[@]}")
shares_left=0
for part in "${!shares[@]}"; do
  [[ " ${only[*]} " != *" $part "* ]] || shares_left=$((shares_left + ${shares[$part]}))
done
for part in "${only[@]}"; do
  [ -n "${shares[$part]-}" ] || { usage >&2; exit 2; }
done
wanted() { [[ " ${only[*]} " == *" $1 "* ]]; }
most=$((seconds * 47 / 48)) # some are for what ends late
least=20                    # seconds: who had fewer, and has not ended, has not failed
# take SHARES: the seconds of what is next, in `given`.
take() {
  given=$(((most - SECONDS) * $1 / shares_left)) shares_left=$((shares_left - $1))
  [ $given -gt 0 ] || given=1
}
ended_by_time() { [ "$1" = 124 ] || [ "$1" = 137 ]; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$json" || exit 1
failed=0 gaps=0
rows=()

# As programs are without anyone's switches; what NVRTC compiles is compiled now, and not kept.
unset BINDERY_CUBLASLT BINDERY_CUDNN BINDERY_NVRTC BINDERY_NCCL BINDERY_CUDA_GRAPHS BINDERY_TF32 BINDERY_MAX_ISA
unset NVIDIA_TF32_OVERRIDE CUDA_LAUNCH_BLOCKING
export XDG_CACHE_HOME=$work/cache

say() { printf '\n=== %s\n' "$*" >&2; }
# row RESULT WHAT DETAIL
row() {
  local detail=${3//[\"\\]/\'}
  detail=${detail//[[:cntrl:]]/ }
  rows+=("$(printf '%-8s %-44s %s' "$1" "$2" "$detail")")
  printf '{"check": "%s", "result": "%s", "detail": "%s"}\n' "$2" "$1" "$detail" >>"$json"
  case $1 in
    FAILED) failed=1 ;;
    partly | "left out") gaps=1 ;;
  esac
}
joined() { printf '%s, ' "$@" | sed 's/, $//'; }

say "the machine"
# NVIDIA's libraries may be there as packages of a Python, in folders that no loader looks into. They are for our
# programs alone: peers have theirs, and two Pythons may have different ones.
peers_path=${LD_LIBRARY_PATH-}
add_libraries_of() { # PYTHON
  local folders
  mapfile -t folders < <(timeout 60 "$1" -c 'import glob, nvidia
for root in nvidia.__path__:
    print(*glob.glob(glob.escape(root) + "/*/lib"), sep="\n")' 2>/dev/null | grep . | sort)
  [ ${#folders[@]} -gt 0 ] || return
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(printf '%s\n' "${folders[@]}" | paste -sd :)
  export LD_LIBRARY_PATH
  row machine "NVIDIA's packages of a Python" "$1, searched for libraries: ${folders[*]}"
}
if [ "$device" = cuda ]; then
  for python in "${pythons[@]}"; do add_libraries_of "$python"; done
fi

if ! machine=$("$here/bin/bindery" --version 2>&1); then
  echo "gpu_check: the program does not start here: $(head -n 1 <<<"$machine")" >&2
  exit 1
fi
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
    if [[ $what = "not found"* ]]; then row "left out" "$name" "it is $what"; else row machine "$name" "$what"; fi
    [[ $name != cu* || $what = "not found"* ]] || by+=("$name $what")
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
# Of compute-sanitizer: what it found, and no word of its own troubles; and why it cannot look at this machine's GPU.
findings() {
  grep -am 1 -E '^=+ .*(Invalid|Misaligned|Uninitialized|Barrier|Race reported|hazard detected|SUMMARY: [1-9])' \
    "$work/log"
}
unable() { grep -am 1 -E '^=+ .*(Device not supported|Internal Sanitizer Error|attachable process)' "$work/log"; }

# Of the tests of a suite: those that failed, or the one in which the process ended.
failed_tests() {
  sed -n 's/^\[  FAILED  \] \([^ ,]*\).* ms)$/\1/p' "$work/log" | paste -sd ' ' | grep . ||
    sed -n 's/^\[ RUN      \] //p' "$work/log" | tail -n 1 | grep . || echo "$1"
}
tests_that() { sed -n "s/^\[  $1 *\] \([0-9]*\) tests*[.,].*/\1/p" "$work/log" | grep . || echo 0; }

# tests WHAT SECONDS PATTERNS COMMAND...: the device tests whose suites fit one of the patterns, with spaces between, by
# this command before the program. Each suite in a process of its own: what one does to the engine of its process, and
# to the GPU, is no business of another. A command makes tests slow: what it has not ended in time has not failed; nor
# has a suite for which little time was left.
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
      "$here/bin/bindery-device-tests" --gtest_filter="$suite.*" </dev/null >"$work/log" 2>&1
    status=$?
    if [ $# -gt 0 ] && [ ${#bad[@]} = 0 ] && unable >/dev/null; then
      row "left out" "$what" "$(unable)"
      return
    fi
    passed=$((passed + $(tests_that PASSED))) skipped=$((skipped + $(tests_that SKIPPED)))
    warnings "$suite"
    case $status in
      0) continue ;;
      124 | 137)
        if { [ $# -gt 0 ] || [ $left -lt $least ]; } && ! grep -aqE '^\[  FAILED|: Failure$' "$work/log" &&
          ! findings >/dev/null; then
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
if wanted operators; then
  operators=operators
  [ "$device" != cuda ] || operators+=" by $(joined "${by[@]:-own kernels}")"
  take 6
  tests "$operators" $given 'GpuOperators*-GpuOperatorsLarge.*'
  take 4
  tests "large operators" $given 'GpuOperatorsLarge.*'
  take 3
  if [ ${#by[@]} -gt 0 ]; then
    BINDERY_CUBLASLT=no BINDERY_CUDNN=no tests "the same of those by own kernels" $given \
      "$(families FullyConnected MatMul Convolution Attention Recurrent)"
  fi
fi
if wanted devices; then
  take 6
  tests "devices, groups, stores, training" $given '-GpuOperators*'
fi

# Own kernels, those among them that share a block's memory: NVIDIA's libraries are not ours to check. That a call of
# CUDA's fails is no finding: what a machine may lack is asked for. A training takes most time, and is last.
if wanted sanitizer && [ "$device" = cuda ]; then
  sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer)
  sanitized="$(families Softmax CrossEntropy FullyConnected BatchNorm Order Attention Indexing Reduce) Losses.*"
  for tool in memcheck racecheck; do
    take 2
    if [ -n "$sanitizer" ]; then
      BINDERY_CUBLASLT=no BINDERY_CUDNN=no BINDERY_NVRTC=no tests "compute-sanitizer $tool" $given "$sanitized" \
        "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9
    else
      row "left out" "compute-sanitizer $tool" "it is not installed"
    fi
  done
elif wanted sanitizer; then
  take 4
fi

timings=()
# shellcheck source=tools/bundle/gpu_trainings.sh
if wanted trainings || { wanted graphs && [ "$device" = cuda ]; }; then source "$here/lib/gpu_trainings.sh"; fi
# shellcheck source=tools/bundle/gpu_steps.sh
if wanted steps; then source "$here/lib/gpu_steps.sh"; fi

echo
printf '%s\n' "${rows[@]}"
[ ${#timings[@]} = 0 ] || printf '%s\n' '' "${timings[@]}"
echo
if [ $failed = 1 ]; then
  echo "Something FAILED; details: $json"
elif [ $gaps = 1 ]; then
  echo "Nothing failed, but not all of it ran; details: $json"
else
  echo "Everything passed; details: $json"
fi
exit $failed
