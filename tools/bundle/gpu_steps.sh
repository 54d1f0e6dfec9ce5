# shellcheck shell=bash disable=SC2154
# Of gpu_check.sh: training steps beside those of PyTorch and JAX.

number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | head -n 1; }

# What a warm step asks of the GPU besides work, by the benchmark's line: no memory, no graph that is made anew; nor
# does the host wait, but for one operation that hears what became of the step (that of the step before may come late),
# and for the benchmark, which begins a step when the last one is over.
judge_step() { # NETWORK LINE
  local name result=FAILED counts=()
  for name in allocations synchronizations captures waits waits_of_caller graph_launches; do
    counts+=("$(number "gpu_$name" <<<"$2")")
  done
  if awk -v "counts=${counts[*]}" '
    BEGIN { exit !(split(counts, n, " ") == 6 && n[1] + n[2] + n[3] == 0 && n[4] < 1.5) }'; then
    result=passed
  fi
  row $result "steps of $1: memory and waits" \
    "${counts[0]} allocations, ${counts[1]} synchronizations, ${counts[2]} graphs made, ${counts[5]} launched, \
${counts[3]} waits; ${counts[4]} of the benchmark"
}

# Peers that a Python has: the name, the program, the Python.
peers=()
find_peer() { # NAME MODULE PROGRAM
  local python
  for python in "${pythons[@]}"; do
    if LD_LIBRARY_PATH=$peers_path timeout 60 "$python" -c "import $2" 2>/dev/null; then
      peers+=("$1|$3|$python")
      return
    fi
  done
  row "left out" "$1" "${pythons[*]} cannot import $2 (--python names another one)"
}
find_peer PyTorch torch torch_peer.py
find_peer JAX jax jax_peer.py

# What is left of the time, shared out among the networks that are left, and of that among the programs that are left.
slice() { # PROGRAMS
  slice=$(((network_end - SECONDS) / $1))
  [ $slice -gt 0 ] || slice=1
}
times_as_fast() { awk "BEGIN { printf \"%.2f\", $2 / $1 }"; } # OURS THEIRS
text_of() { sed -n "s/.*\"$1\": *\"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p"; }

# bench PROGRAMS WHAT OPTIONS...: our line, of `name` in `batch`; PROGRAMS are left, this one among them.
bench() {
  local what=$2 status
  slice "$1"
  shift 2
  line=$(timeout --kill-after=5 $slice "$here/bin/bindery-bench" --json --no-chain --phase train --model "$name" \
    --batch-size "$batch" --device "$device:0" --steps 20 "$@" 2>"$work/log")
  status=$?
  median=$(number step_median_ms <<<"$line")
  if [ -n "$median" ]; then
    echo "$line" >>"$json"
  elif ended_by_time $status; then
    row "left out" "training steps of $name$what" "not measured after $slice s"
  else
    row FAILED "training steps of $name$what" "$(tail -n 1 "$work/log")"
  fi
  [ -n "$median" ]
}

# judge_goal COMPILED THEIRS: against steps that torch.compile made of one capture, where they ran on a GPU.
judge_goal() {
  local goal=1.0 times result="goal met"
  case $name in mlp | lenet) goal=2.0 ;; esac
  times=$(times_as_fast "$resident" "$2")
  awk "BEGIN { exit !($2 >= $goal * $resident) }" || result="missed"
  row "$result" "goal: $name, $goal times as fast" "$times times as fast as $1"
}

timings+=("Training steps, in milliseconds: Bindery's with batches from the host, and with a batch that is resident on"
  "the device, as the fastest peer's is; how many times as fast as the peer the latter is: above 1, Bindery is faster."
  "$(printf '%-10s %6s %10s %10s %10s  %13s  %s' training batch "from host" resident peer "times as fast" "the peer")")
models=(mlp:64 lenet:64 resnet20:128)
[ "$device" != cuda ] || models+=(resnet50:64 gpt:16 lstm:16)
networks=${#models[@]}
for model in "${models[@]}"; do
  name=${model%:*} batch=${model#*:}
  say "training steps: $name, batches of $batch"
  network_end=$((SECONDS + (most - SECONDS) / networks)) networks=$((networks - 1))
  best='' best_by='' host='' resident=''
  if bench $((2 + ${#peers[@]})) ""; then
    host=$median
    [ "$device" != cuda ] || judge_step "$name" "$line"
  fi
  if bench $((1 + ${#peers[@]})) ", resident" --resident; then resident=$median; fi
  waiting=${#peers[@]}
  for peer in "${peers[@]}"; do
    [ -n "$resident" ] || break
    IFS='|' read -r peer_name program python <<<"$peer"
    slice "$waiting"
    waiting=$((waiting - 1))
    LD_LIBRARY_PATH=$peers_path PYTHONPATH=$here/lib timeout --kill-after=5 $slice "$python" "$here/lib/$program" \
      --model "$name" --batch-size "$batch" --device "${device/cuda/cuda:0}" >"$work/peer" 2>"$work/log"
    status=$?
    while IFS= read -r line; do
      echo "$line" >>"$json"
      way=$(text_of peer <<<"$line") theirs=$(number step_median_ms <<<"$line")
      if [ -z "$theirs" ]; then
        row "left out" "$name by $way" "$(text_of error <<<"$line")"
        continue
      fi
      [[ $device != cuda || $way != PyTorch*", compiled" ]] || judge_goal "$way" "$theirs"
      if [ -z "$best" ] || awk "BEGIN { exit !($theirs < $best) }"; then best=$theirs best_by=$way; fi
    done < <(grep '^{' "$work/peer")
    if ended_by_time $status; then
      row "left out" "$peer_name's $name" "what it had not measured after $slice s"
    elif [ $status != 0 ]; then
      row "left out" "$peer_name's $name" "$(tail -n 1 "$work/log")"
    fi
  done
  line=$(printf '%-10s %6s' "$name" "$batch")
  for median in "$host" "$resident" "$best"; do
    if [ -n "$median" ]; then line+=$(printf ' %10.3f' "$median"); else line+=$(printf ' %10s' -); fi
  done
  [ -z "$best" ] || line+=$(printf '  %13s  %s' "$(times_as_fast "$resident" "$best")" "$best_by")
  timings+=("$line")
done
