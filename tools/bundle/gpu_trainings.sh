# shellcheck shell=bash disable=SC2154
# Of gpu_check.sh: trainings on the device beside a CPU's, and with CUDA graphs beside those without.

# What is left of the time, in `left`.
remain() {
  left=$((trainings_end - SECONDS))
  [ $left -gt 0 ] || left=1
}

# train FOLDER DEVICE OPTIONS...: by the program, for 20 steps; the model into the folder, the loss of each step beside
# it. What steps give is read after each, which is an epoch: so it is no matter of how many are in flight.
steps=20
train() {
  local folder=$work/$1 where=$2
  shift 2
  remain
  mkdir -p "$folder"
  timeout --kill-after=5 $left "$here/bin/bindery" train --device "$where" "$@" --epochs $steps \
    --seed 1 --checkpoints "" --save "$folder/model.pb" --json --progress none >"$work/out" 2>"$work/log"
  status=$?
  sed -n 's/.*"event":"epoch".*"train":{[^}]*"cross-entropy":\([0-9.e+-]*\).*/\1/p' "$work/out" >"$folder.losses"
  ! ended_by_time $status || echo "not ended after $left s" >>"$work/log"
  [ $status != 0 ] || echo "it gave $(wc -l <"$folder.losses") losses, not $steps" >>"$work/log"
  [ $status = 0 ] && [ "$(wc -l <"$folder.losses")" = $steps ]
}
# not_trained WHAT WHERE: the row of a training that came to nothing.
not_trained() {
  local result=FAILED
  ! ended_by_time $status || [ $left -ge "$least" ] || result="left out"
  row "$result" "$1" "$2$(reason)"
}

# training NETWORK OPTIONS...: the same on the device and on a CPU, and with CUDA graphs and without.
training() {
  local network=$1 losses bits verdict
  losses="losses of $network beside a CPU's" bits="$network: graphs give the same bits"
  shift
  say "training of $network"
  rm -rf "$work/there" "$work/piecewise"
  if ! train there "$device:0" --model "$network" "$@"; then
    not_trained "training of $network" ""
    return
  fi
  warnings "training of $network"
  if wanted graphs && [ "$device" = cuda ]; then
    if grep -q 'is not captured' "$work/log"; then
      row FAILED "$bits" "the driver captures none"
    elif ! BINDERY_CUDA_GRAPHS=no train piecewise "$device:0" --model "$network" "$@"; then
      not_trained "$bits" "without graphs: "
    elif diff -rq "$work/there" "$work/piecewise" >"$work/log" 2>&1; then
      row passed "$bits" "of all parameters after $steps steps"
    else
      row FAILED "$bits" "the models differ after $steps steps"
    fi
  fi
  wanted trainings || return
  if ! train cpu cpu:0 --model "$network" "$@"; then
    not_trained "$losses" "on the CPU: "
    return
  fi
  # Losses that hardly move would agree whatever the gradients are.
  verdict=$(paste "$work/there.losses" "$work/cpu.losses" | awk -v tolerance=1e-3 '
    { far = ($1 - $2) / $2; far = far < 0 ? -far : far; if (!(far <= most)) { most = far; step = NR } last = $1 }
    NR == 1 { first = $1 }
    END { moved = (last - first) / first; still = (moved < 0 ? -moved : moved) < 10 * tolerance
          printf "%s %.4f to %.4f; at most %.1e apart, in step %d%s", most <= tolerance && !still ? "passed" : "FAILED",
          first, last, most, step, still ? "; it hardly moved, which proves nothing" : "" }')
  row "${verdict%% *}" "$losses" "${verdict#* }"
  printf '{"training": "%s", "%s": [%s], "cpu": [%s]}\n' "$network" "$device:0" "$(paste -sd, "$work/there.losses")" \
    "$(paste -sd, "$work/cpu.losses")" >>"$json"
}

both=0
for part in trainings graphs; do
  ! wanted $part || both=$((both + ${shares[$part]}))
done
take $both
trainings_end=$((SECONDS + given))
# Rates and initial values with which roundings hardly grow: losses by AVX2 and by AVX-512 were 3e-5 apart at most.
digits=(--batch-size 16 --train-digits 16 --test-digits 1)
text=(--data "text:$here/LICENSE" --batch-size 4 --epoch-batches 1)
training lenet "${digits[@]}" --optimizer 'sgd(lr=0.02, momentum=0.9)'
training resnet20 "${digits[@]}" --optimizer 'sgd(lr=1e-4, momentum=0.9)'
training lstm "${text[@]}"
if [ "$device" = cuda ]; then
  training gpt "${text[@]}"
  remain
  timeout --kill-after=5 $left "$here/bin/bindery" train --model mlp --device cpu:0 --batch-size 8 --train-digits 8 \
    --test-digits 4 --epochs 1 --checkpoints "" --write-digits "images:$work/digits" --progress none >/dev/null 2>&1
  images="images:$work/digits/train?size=64"
  training resnet50 --data "$images" --test-data "$images&shard=0/8" --batch-size 8 \
    --optimizer 'sgd(lr=2e-6, momentum=0.9)' --initializer '*_bn3_gamma: constant(0.1), xavier'
fi
