#!/bin/bash
# Kills a training with SIGKILL at random moments and resumes it, again and again: whatever the moment, every run must end
# in the model of the uninterrupted run, bit for bit, and every checkpoint that is there must be good. With --faults the
# moments are system calls: one write, fsync or rename fails, or is the program's last.
set -euo pipefail

usage() {
  cat <<'END'
usage: tools/kill_and_resume.sh [--kills N | --faults N] [--seed N] [--program FILE] [-- options of bindery train...]

Kills N times (default 50), at moments drawn with the seed (default 1); or lets N system calls fail by EIO or ENOSPC, or
end the program, which takes strace. The training is a small one of LeNet with a
checkpoint every 3 steps unless the options say otherwise; --checkpoints, --save and --resume are this script's.
END
}

fail() {
  echo "kill_and_resume: $*" >&2
  exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kills=50
faults=0
seed=1
program=$root/bazel-bin/tools/bindery
while [ $# -gt 0 ]; do
  case $1 in
    --kills) kills=${2-} && shift ;;
    --faults) faults=${2-} && shift ;;
    --seed) seed=${2-} && shift ;;
    --program) program=${2-} && shift ;;
    --help | -h) usage && exit ;;
    --) shift && break ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift || { usage >&2 && exit 2; }
done
[[ $kills =~ ^[1-9][0-9]*$ && $faults =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || { usage >&2 && exit 2; }
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
# Every checkpoint that has its name is good, whatever happened; and what was there before is not all gone.
check_checkpoints() { # FOLDER STEP-BEFORE
  local files=("$1"/checkpoints/step-*.ckpt)
  if [ ! -e "${files[0]}" ]; then
    [ -z "$2" ] || fail "no checkpoint is left of those until step $2"
    return 0
  fi
  "$program" verify "${files[@]}" >verify.log 2>&1 || fail "a damaged checkpoint: $(cat verify.log)"
}
newest() { (ls "$1/checkpoints" 2>/dev/null || true) | sed -n 's/^step-0*\([0-9][0-9]*\)\.ckpt$/\1/p' | tail -n 1; }

mkdir whole
begin=$(date +%s%N)
"$program" train --progress none --save whole/model.pb --checkpoints whole/checkpoints "$@" >whole.log 2>&1 ||
  fail "the uninterrupted training failed: $(tail -n 3 whole.log)"
milliseconds=$((($(date +%s%N) - begin) / 1000000))
expected=$(model_of whole)
if [ "$faults" -gt 0 ]; then what="$faults faults"; else what="$kills kills"; fi
echo "uninterrupted: $milliseconds ms, $(newest whole) steps; now $what (seed $seed)"

# The training under way, killed after so many milliseconds; 0: not.
train() { # MILLISECONDS OPTION...
  # --foreground: only the training is killed, not timeout, which waits for its end. --preserve-status: one that ends of
  # itself at that very moment has ended, not been killed.
  timeout --foreground --preserve-status --signal=KILL "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" \
    "$program" train --progress none --save run/model.pb --checkpoints run/checkpoints --resume "${@:2}" >run.log 2>&1
}

# The same, but a call of one of its threads fails, or is its last. A thread that writes a checkpoint is there for it
# alone, so the numbers are those within a checkpoint: or in the model that is saved at last.
train_with() { # CALL KIND NUMBER OPTION...
  local how=error=$2
  [ "$2" != KILL ] || how=signal=KILL
  strace -f -qqq --seccomp-bpf -o strace.log -e "trace=$1" -e "inject=$1:$how:when=$3" \
    "$program" train --progress none --save run/model.pb --checkpoints run/checkpoints --resume "${@:4}" >run.log 2>&1
}

if [ "$faults" -gt 0 ]; then
  command -v strace >/dev/null || fail "--faults needs strace (apt-get install strace)"
  hit=0
  runs=0
  rm -rf run && mkdir run
  finish() {
    [ "$(model_of run)" = "$expected" ] || fail "the model differs from the uninterrupted one"
    runs=$((runs + 1))
    rm -rf run && mkdir run
  }
  calls=(fsync rename write)
  most=(2 1 24) # of a checkpoint, about
  kinds=(EIO ENOSPC KILL)
  while [ "$hit" -lt "$faults" ]; do
    # To some step; then a fault in what comes next.
    status=0
    train $((RANDOM % milliseconds + 1)) "$@" 2>/dev/null || status=$?
    check_checkpoints run ""
    [ "$status" != 0 ] || finish
    which=$((RANDOM % 3))
    call=${calls[which]}
    kind=${kinds[RANDOM % 3]}
    number=$((RANDOM % most[which] + 1))
    before=$(newest run)
    status=0
    train_with "$call" "$kind" "$number" "$@" 2>/dev/null || status=$?
    check_checkpoints run "$before"
    [ "$status" != 0 ] || { finish && continue; }
    [[ $status = 4 || $status = 137 ]] || fail "$kind in $call $number: status $status: $(tail -n 3 run.log)"
    hit=$((hit + 1))
    after=$(newest run)
    echo "fault $hit: $kind in $call $number, status $status, at step ${before:-0} to ${after:-0}"
  done
  train 0 "$@" || fail "the training does not go on: $(tail -n 3 run.log)"
  finish
  echo "$hit faults in $runs runs: a good checkpoint was always left, and every run ended in the uninterrupted run's" \
    "parameters, bit for bit"
  exit
fi

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
    train "$limit" "$@" || status=$?
    [ "$status" = 137 ] || break
    killed=$((killed + 1))
    here=$((here + 1))
    after=$(newest run)
    check_checkpoints run "$before"
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
