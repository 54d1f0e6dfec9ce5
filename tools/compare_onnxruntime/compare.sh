#!/bin/bash
# Measures the server of examples/server beside the same server with ONNX Runtime computing, on LeNet and ResNet-20:
# requests a second and latencies at 1, 8 and 64 clients, in turns, each answer checked. Then overload, and a long run in
# which the server's memory must not grow.
#
# Builds what it needs of Bindery. ONNX Runtime's library is that of the wheel for Python: tools/python.sh.
set -euo pipefail

usage() {
  cat <<'END'
usage: tools/compare_onnxruntime/compare.sh [--seconds N] [--rounds N] [--clients LIST] [--models LIST]
                                            [--endurance SECONDS]

  --seconds N          of each measurement; default 5
  --rounds N           of all of them, in turns; default 3. The best is printed
  --clients LIST       default 1,8,64
  --models LIST        default lenet,resnet20
  --endurance SECONDS  how long memory is watched; default 0: not. 600 is what docs/serving.md tells of
END
}

fail() {
  echo "compare: $*" >&2
  exit 1
}

root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")
seconds=5 rounds=3 clients=1,8,64 models=lenet,resnet20 endurance=0
# shellcheck source=tools/options.sh
source "$root/tools/options.sh"
read_options "seconds rounds clients models endurance" "" "$@"
[[ $seconds$rounds$endurance =~ ^[0-9]+$ && $clients =~ ^[0-9,]+$ ]] || { usage >&2 && exit 2; }

source "$root/tools/python.sh"
find_python onnxruntime
library=$("$python" -c 'import glob, os, onnxruntime
print(glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "libonnxruntime.so*"))[0])')
if [ -z "${BINDERY_TEST_BIN:-}" ]; then # a folder like bazel-bin
  "$root/tools/setup.sh"
  (cd "$root" && tools/bazel build //tools:bindery //tools:compare_onnxruntime //examples/server:server \
    //examples/server:load_test)
fi
bin=${BINDERY_TEST_BIN:-$root/bazel-bin}

folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

# Starts a server and waits for its port.
start() { # COMMAND...
  : >address
  "$@" >address 2>server.log &
  server=$!
  for _ in $(seq 600); do
    port=$(sed -n 's|.*http://[^:]*:\([0-9]*\).*|\1|p' address)
    [ -z "$port" ] || return 0
    kill -0 "$server" 2>/dev/null || fail "a server ended: $(cat server.log)"
    sleep 0.1
  done
  fail "a server does not listen"
}
stop() {
  kill -TERM "$server"
  wait "$server" || fail "a server ended with status $?: $(cat server.log)"
  server=
}
ask() { # MODEL CLIENTS SECONDS OPTION...
  "$bin/examples/server/load_test" --model "$1" --port "$port" --clients "$2" --seconds "$3" "${@:4}" >asked 2>&1 ||
    fail "a wrong answer, or none: $(cat asked)"
}
memory() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$server/status"; } # KiB

for model in ${models//,/ }; do
  "$bin/tools/bindery" train --model "$model" --train-digits 256 --test-digits 64 --epochs 1 --progress none \
    --checkpoints '' --save "$model.onnx" >/dev/null
done
cores=$(nproc)
# By name: the program, and how it is to use the cores, both with and without batches of several requests.
start_by_name() { # NAME MODEL
  local command=("$bin/examples/server/server")
  [[ $1 != onnxruntime* ]] || command=("$bin/tools/compare_onnxruntime" --library "$library")
  command+=(--port 0 --model "$2.onnx")
  case $1 in
    *-waits) command+=(--max-delay 1000) ;;
    *-each) command+=(--max-delay 0 --max-batch 1 --workers "$cores" --threads 1) ;;
    onnxruntime) command+=(--max-delay 0 --threads "$cores") ;;
    *) command+=(--max-delay 0) ;;
  esac
  start "${command[@]}"
}
names="bindery bindery-waits bindery-each onnxruntime onnxruntime-each"
for ((round = 0; round < rounds; ++round)); do
  for model in ${models//,/ }; do
    for name in $names; do
      start_by_name "$name" "$model"
      for n in ${clients//,/ }; do
        ask "$model.onnx" "$n" 0.5 # it binds what it needs
        ask "$model.onnx" "$n" "$seconds"
        awk -v key="$model $n $name" '
          / requests\/s/ { rate = $1 } /^ms: p50/ { p50 = $3; p99 = $5 } END { print key, rate, p50, p99 }' asked >>measured
      done
      stop
    done
  done
done
echo "$(head -n 1 address | sed 's/ listening.*//'), $cores cores, the best of $rounds x $seconds s"
printf '%-10s %7s  %-17s %12s %10s %10s\n' model clients server requests/s 'p50 ms' 'p99 ms'
sort -s -k1,1 -k2,2n -k3,3 measured | awk '
  { key = $1 " " $2 " " $3 }
  !(key in best) { order[++n] = key }
  $4 > best[key] { best[key] = $4; line[key] = $0 }
  END { for (i = 1; i <= n; ++i) { split(line[order[i]], w, " ")
          printf "%-10s %7d  %-17s %12d %10.2f %10.2f\n", w[1], w[2], w[3], w[4], w[5], w[6] } }'

# Overload: a queue for four. What comes on top gets 503 at once, what is taken is answered, and nothing is lost.
first=${models%%,*}
start "$bin/examples/server/server" --port 0 --model "$first.onnx" --max-batch 4 --queue 4
ask "$first.onnx" 64 "$seconds" --overload
echo "overload, $first, 64 clients, a queue of 4: $(tr '\n' ';' <asked)"
stop

if [ "$endurance" -gt 0 ]; then
  start "$bin/examples/server/server" --port 0 --model "$first.onnx"
  ask "$first.onnx" 8 $((endurance / 10 + 1))
  before=$(memory)
  ask "$first.onnx" 8 "$endurance"
  after=$(memory)
  echo "$endurance s, $first, 8 clients: $(head -n 2 asked | tr '\n' ';') memory $before KiB before, $after KiB after"
  stop
  [ "$after" -le $((before + before / 50 + 1024)) ] || fail "the server's memory grows"
fi
