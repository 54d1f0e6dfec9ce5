#!/bin/bash
# Kills a training with SIGKILL at random moments and resumes it, again and again: whatever the moment, every run must end
# in the model of the uninterrupted run, bit for bit, and every checkpoint that is there must be good. With --faults the
# moments are system calls: one write, fsync or rename fails, or is the program's last; with --every-call it is each
# system call in turn that the writing of a checkpoint makes.
set -euo pipefail

usage() {
  cat <<'END'
usage: tools/kill_and_resume.sh [--kills N | --faults N | --every-call] [--seed N] [--program FILE]
                                [-- options of bindery train...]

Kills N times (default 50), at moments drawn with the seed (default 1); or lets N system calls fail by EIO or ENOSPC, or
end the program; or does all three to every system call on files by which a checkpoint is written, one after the other.
The last two take strace, which for --every-call attaches itself to the running training: as root, or where that is
allowed. The training is a small one on images that are cropped, mirrored and brightened at random, shuffled and read by
two workers, with dropout and a schedule, and with a checkpoint after each step, written in the background, unless the
options say otherwise; --checkpoints, --save and --resume are this script's.
END
}

fail() {
  echo "kill_and_resume: $*" >&2
  exit 1
}

root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")
kills=50
faults=0
every_call=
seed=1
program=$root/bazel-bin/tools/bindery
while [ $# -gt 0 ]; do
  case $1 in
    --kills) kills=${2-} && shift ;;
    --faults) faults=${2-} && shift ;;
    --every-call) every_call=yes ;;
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
[[ $faults = 0 && -z $every_call ]] || command -v strace >/dev/null || fail "this needs strace (apt-get install strace)"

folder=$(mktemp -d)
training= # a process in the background
trap '[ -z "$training" ] || kill -KILL "$training" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
RANDOM=$seed

# --- what is trained on

for ((i = 0; i < 256; ++i)); do
  crc=$i
  for _ in 1 2 3 4 5 6 7 8; do crc=$((crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1)); done
  crcs[i]=$crc
done
put() { printf '%b' "$(printf '\\x%02x' "$@")"; }
put32() { put $(($1 >> 24 & 255)) $(($1 >> 16 & 255)) $(($1 >> 8 & 255)) $(($1 & 255)); }
# A chunk of a PNG file: the four bytes of its type, then its data.
chunk() { # BYTE...
  local crc=$((0xffffffff)) byte
  for byte; do crc=$((crc >> 8 ^ crcs[(crc ^ byte) & 255])); done
  put32 $(($# - 4))
  put "$@"
  put32 $((crc ^ 0xffffffff))
}
# An image of 10 x 10 grey pixels, not compressed, drawn at random about a grey.
draw() { # GREY
  local row column low=1 high=0 data=()
  for ((row = 0; row < 10; ++row)); do
    data+=(0) # no filter
    for ((column = 0; column < 10; ++column)); do data+=($(($1 + RANDOM % 64))); done
  done
  for byte in "${data[@]}"; do low=$(((low + byte) % 65521)) high=$(((high + low) % 65521)); done
  put 0x89 0x50 0x4e 0x47 0x0d 0x0a 0x1a 0x0a
  chunk 0x49 0x48 0x44 0x52 0 0 0 10 0 0 0 10 8 0 0 0 0
  chunk 0x49 0x44 0x41 0x54 0x78 1 1 ${#data[@]} 0 $((255 - ${#data[@]})) 255 "${data[@]}" \
    $((high >> 8)) $((high & 255)) $((low >> 8)) $((low & 255))
  chunk 0x49 0x45 0x4e 0x44
}

if [ $# = 0 ] && [ -n "$every_call" ]; then
  # Long enough for strace to come in time, and nothing but checkpoints is read or written meanwhile.
  set -- --model mlp --train-digits 64 --test-digits 20 --batch-size 16 --epochs 1 --epoch-batches 120 --dropout 0.5 \
    --threads 1
elif [ $# = 0 ]; then
  mkdir -p images/dark images/light
  for ((i = 0; i < 48; ++i)); do
    draw 40 >"images/dark/$i.png"
    draw 90 >"images/light/$i.png"
  done
  set -- --model mlp --workers 2 --batch-size 8 --epochs 6 --dropout 0.5 --schedule 'factor(step=15, factor=0.7)' \
    --checkpoint-every 1 \
    --data "images:$folder/images?size=8&channels=1&crop=random&padding=1&mirror=1&brightness=0.3&contrast=0.3"
fi
case " $*$every_call " in
  *" --checkpoint-every"*yes\ ) fail "--every-call says itself how often a checkpoint is written" ;;
  *" --checkpoint-every"* | *yes\ ) ;;
  *) set -- "$@" --checkpoint-every 3 ;;
esac

# --- what must be true

# Names and contents of the files of a saved model. A killed run may leave temporary files behind, called .bindery-*.
model_of() { (cd "$folder/$1" && sha256sum model.pb*); }
temporaries() { (cd "$folder/$1" && find . -name '.bindery-*' | sort); }
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
what="$kills kills"
[ "$faults" = 0 ] || what="$faults faults"
[ -z "$every_call" ] || what="every system call of a checkpoint's writing"
echo "uninterrupted: $milliseconds ms, $(newest whole) steps; now $what (seed $seed)"

# The training under way, killed after so many milliseconds; 0: not.
resume=(train --progress none --save run/model.pb --checkpoints run/checkpoints --resume)
train() { # MILLISECONDS OPTION...
  # --foreground: only the training is killed, not timeout, which waits for its end. --preserve-status: one that ends of
  # itself at that very moment has ended, not been killed.
  timeout --foreground --preserve-status --signal=KILL "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" \
    "$program" "${resume[@]}" "${@:2}" >run.log 2>&1
}
fault_of() { # KIND
  if [ "$1" = KILL ]; then echo signal=KILL; else echo "error=$1"; fi
}
runs=0
finish() {
  [ "$(model_of run)" = "$expected" ] || fail "the model differs from the uninterrupted one"
  runs=$((runs + 1))
  rm -rf run && mkdir run
}
rm -rf run && mkdir run

# --- some calls of the writing, drawn

# A call of one of the training's threads fails, or is its last. A thread that writes a checkpoint is there for it alone,
# so the numbers are those within a checkpoint: or in the model that is saved at last.
train_with() { # CALL KIND NUMBER OPTION...
  strace -f -qqq --seccomp-bpf -o strace.log -e "trace=$1" -e "inject=$1:$(fault_of "$2"):when=$3" \
    "$program" "${resume[@]}" "${@:4}" >run.log 2>&1
}

drawn_faults() { # OPTION...
  local calls=(fsync rename write) most=(2 1 24) kinds=(EIO ENOSPC KILL) # most: of a checkpoint, about
  local hit=0 status which call kind number before after
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
}

# --- every call of the writing

# Starts the training and watches it by strace, from its first new checkpoints on; waits for its end. Status: its own.
watch() { # STRACE-OPTION... -- OPTION...
  local options=() status=0
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  rm -rf run && mkdir run
  "$program" "${resume[@]}" "$@" --checkpoint-every 1 >run.log 2>&1 &
  training=$!
  until [ "$(newest run)" -ge 8 ] 2>/dev/null || ! kill -0 "$training" 2>/dev/null; do sleep 0.01; done
  { # without the shell's word on what was killed
    strace -f -qqq -s 500 -o strace.log "${options[@]}" -p "$training" 2>strace.err || true
    wait "$training" || status=$?
  } 2>/dev/null
  training=
  [ -s strace.log ] || fail "strace: $(cat strace.err)"
  return "$status"
}

each_call() { # OPTION...
  local status=0 calls call kind number position=0 before after tolerated=0 failed=0 killed=0 try
  watch -e trace=%file,%desc,rseq -- "$@" || fail "the watched training failed: $(tail -n 3 run.log)"
  # Of a thread that was watched from its beginning, which is rseq, and that renamed a checkpoint: the longest list, as
  # an older one is removed, too, once there are enough.
  calls=$(awk '
    { name = $2; sub(/\(.*/, "", name) }
    name == "rseq" { born[$1] = 1; next }
    !($1 in born) || name !~ /^[a-z_0-9]+$/ { next }
    { list[$1] = list[$1] name "\n" }
    name ~ /^rename/ && /\.ckpt/ { renamed[$1] = 1 }
    END {
      for (thread in renamed) {
        if (length(list[thread]) > length(longest)) longest = list[thread]
      }
      if (longest == "") exit 1
      printf "%s", longest
    }' strace.log) || fail "no thread that writes checkpoints was seen"
  echo "a checkpoint's writing: ${calls//$'\n'/ }"
  declare -A count=()
  for call in $calls; do
    count[$call]=$((${count[$call]:-0} + 1))
    number=${count[$call]}
    position=$((position + 1))
    for kind in EIO ENOSPC KILL; do
      for try in 1 2 3 4 5; do
        status=0
        watch -e "trace=$call,rseq" -e "inject=$call:$(fault_of "$kind"):when=$number" -- "$@" || status=$?
        # Was it the call of a thread that was watched from its beginning?
        awk -v call="$call" -v number="$number" -v kind="$kind" '
          $2 ~ /^rseq/ { born[$1] = 1 }
          index($2, call "(") == 1 && ++n[$1] == number && born[$1] && (kind == "KILL" || /INJECTED/) { hit = 1 }
          END { exit !hit }' strace.log && break
        [ "$try" != 5 ] || fail "$call $number was not met by $kind"
      done
      after=$(newest run)
      check_checkpoints run 8
      case $kind,$status in
        KILL,137) killed=$((killed + 1)) ;;
        E*,4)
          failed=$((failed + 1))
          # Every thread's call of that number fails, and so the message may: then it is among what was to be written.
          grep -q "run/.*(errno" run.log strace.log || fail "$kind in $call $number: no clear message: $(tail -n 3 run.log)"
          ;;
        E*,0) tolerated=$((tolerated + 1)) ;;
        *) fail "$kind in $call $number: status $status: $(tail -n 3 run.log)" ;;
      esac
      if [ "$status" != 0 ]; then
        train 0 "$@" --checkpoint-every 1000 || fail "the training does not go on: $(tail -n 3 run.log)"
      fi
      [ "$(model_of run)" = "$expected" ] || fail "$kind in $call $number: the model differs from the uninterrupted one"
      echo "call $position: $kind in $call $number, status $status, at step $after"
    done
  done
  echo "$position calls: $killed kills, $failed errors that ended the run and named the file, $tolerated that did not" \
    "matter: a good checkpoint was always left, and every run ended in the uninterrupted run's parameters, bit for bit"
}

# --- kills

random_kills() { # OPTION...
  local killed=0 early=0 writing=0 here begin limit before before_files status after files moment actual took
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
  echo "$killed kills in $runs runs, $writing while a file was written, $early before a new checkpoint: every run ended" \
    "in the uninterrupted run's parameters, bit for bit"
}

if [ -n "$every_call" ]; then
  each_call "$@"
elif [ "$faults" -gt 0 ]; then
  drawn_faults "$@"
else
  random_kills "$@"
fi
