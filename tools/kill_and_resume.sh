#!/bin/bash
# Kills a training with SIGKILL at random moments and resumes it, again and again: whatever the moment, every run must end
# in the model of the uninterrupted run, bit for bit.
set -euo pipefail

usage() {
  cat <<'END'
usage: tools/kill_and_resume.sh [--kills N] [--seed N] [--program FILE] [-- options of bindery train...]

Kills N times (default 50), at moments drawn with the seed (default 1). The training is a small one of LeNet with a
checkpoint every 3 steps unless the options say otherwise; --checkpoints, --save and --resume are this script's.
END
}

fail() {
  echo "kill_and_resume: $*" >&2
  exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kills=50
seed=1
program=$root/bazel-bin/tools/bindery
while [ $# -gt 0 ]; do
  case $1 in
    --kills) kills=${2-} && shift ;;
    --seed) seed=${2-} && shift ;;
    --program) program=${2-} && shift ;;
    --help | -h) usage && exit ;;
    --) shift && break ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift || { usage >&2 && exit 2; }
done
[[ $kills =~ ^[1-9][0-9]*$ && $seed =~ ^[0-9]+$ ]] || { usage >&2 && exit 2; }
[ -x "$program" ] || fail "there is no program \"$program\": tools/bazel build //tools:bindery"
program=$(realpath "$program")
[ $# -gt 0 ] || set -- --model lenet --train-digits 640 --test-digits 64 --epochs 3
case " $* " in
  *" --checkpoint-every"*) ;;
  *) set -- "$@" --checkpoint-every 3 ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
RANDOM=$seed

# Names and contents of the files of a saved model. A killed run may leave temporary files behind, called .bindery-*.
model_of() { (cd "$1" && sha256sum model.pb*); }
temporaries() { (cd "$1" && find . -name '.bindery-*' | sort); }
newest() { (ls "$1/checkpoints" 2>/dev/null || true) | sed -n 's/^step-0*\([0-9][0-9]*\)\.ckpt$/\1/p' | tail -n 1; }

mkdir whole
begin=$(date +%s%N)
"$program" train --progress none --save whole/model.pb --checkpoints whole/checkpoints "$@" >whole.log 2>&1 ||
  fail "the uninterrupted training failed: $(tail -n 3 whole.log)"
milliseconds=$((($(date +%s%N) - begin) / 1000000))
expected=$(model_of whole)
echo "uninterrupted: $milliseconds ms, $(newest whole) steps; now $kills kills (seed $seed)"

killed=0
runs=0
early=0
writing=0
while [ "$killed" -lt "$kills" ]; do
  # One training, killed until it ends by itself. Its start is part of the time, so kills fall there too.
  rm -rf run
  mkdir run
  here=0
  begin=$(date +%s%N)
  while :; do
    limit=$(((RANDOM * 32768 + RANDOM) % milliseconds + 1))
    [ "$killed" -lt "$kills" ] || limit=0 # none: the last one may end
    before=$(newest run)
    before_files=$(temporaries run)
    status=0
    # --foreground: only the training is killed, not timeout, which waits for its end. --preserve-status: one that ends
    # of itself at that very moment has ended, not been killed.
    timeout --foreground --preserve-status --signal=KILL "$((limit / 1000)).$(printf %03d $((limit % 1000)))" \
      "$program" train --progress none --save run/model.pb --checkpoints run/checkpoints --resume "$@" \
      >run.log 2>&1 || status=$?
    [ "$status" = 137 ] || break
    killed=$((killed + 1))
    here=$((here + 1))
    after=$(newest run)
    files=$(temporaries run)
    moment=
    if [ -n "$files" ] && [ "$files" != "$before_files" ]; then
      writing=$((writing + 1))
      moment=", while writing a file"
    elif [ "$before" = "$after" ]; then
      early=$((early + 1))
      moment=", before a new checkpoint"
    fi
    echo "kill $killed: after $limit ms, at step ${before:-0} to ${after:-0}$moment"
  done
  [ "$status" = 0 ] || fail "a resumed training ended with status $status: $(tail -n 3 run.log)"
  actual=$(model_of run)
  [ "$actual" = "$expected" ] || fail "after $here kills the model differs from the uninterrupted one:
$actual
$expected"
  runs=$((runs + 1))
  # Faster than thought (the machine was busy at first): draw earlier moments.
  took=$((($(date +%s%N) - begin) / 1000000 + 1))
  [ "$took" -gt "$milliseconds" ] || milliseconds=$took
  echo "run $runs: ended after $here kills, the model is the same"
done
echo "$killed kills in $runs runs, $writing while a file was written, $early before a new checkpoint: every run ended in" \
  "the uninterrupted run's parameters, bit for bit"
