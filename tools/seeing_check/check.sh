#!/bin/bash
# Looks at what Bindery shows: the progress of a training on terminals of 20 to 200 columns, in tmux, and where there is
# no terminal; and its pages, of a model and of a test, and the plots, in a headless Chromium on a wide and on a narrow
# window. Fails for a bar that wraps or stays, for control characters in a file, for a page that reads anything from
# outside, says an error on its console, or is wider than its window. What it saw is kept as text and pictures in the
# folder OUT, if that is given.
#
# usage: tools/seeing_check/check.sh [OUT]
#
# Builds what it needs of Bindery, or takes the program that BINDERY names. On Debian: apt-get install tmux chromium
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")

fail() {
  echo "seeing_check: $*" >&2
  exit 1
}

for needed in tmux chromium; do
  command -v "$needed" >/dev/null || fail "this needs $needed (apt-get install $needed)"
done
if [ -z "${BINDERY:-}" ]; then
  "$root/tools/setup.sh"
  (cd "$root" && tools/bazel build //tools:bindery)
  BINDERY=$root/bazel-bin/tools/bindery
fi
BINDERY=$(realpath "$BINDERY")
folder=$(mktemp -d)
socket=bindery-seeing-$$
trap 'tmux -L "$socket" kill-server 2>/dev/null || true; rm -rf "$folder"' EXIT
seen=$folder/seen
if [ $# -gt 0 ]; then
  mkdir -p "$1"
  seen=$(realpath "$1")
fi
mkdir -p "$seen"
cd "$folder"
training=("$BINDERY" train --epochs 2 --train-digits 6000 --test-digits 500 --checkpoints "")
bar='^[^ ].*[0-9]+%' # the line of a bar, whatever is left of it in a narrow window: "epoch 1/2:  10% ...", "10%"

# --- terminals

for columns in 20 40 80 200; do
  record=$seen/terminal-$columns.txt
  : >"$record"
  tmux -L "$socket" new-session -d -x "$columns" -y 50 "$(printf '%q ' "${training[@]}"); echo status=\$?; sleep 60"
  bars=0
  for ((i = 0; ; ++i)); do
    [ "$i" -lt 600 ] || fail "on $columns columns the training did not end in a minute; see $record"
    screen=$(tmux -L "$socket" capture-pane -p)
    printf '%s\n----\n' "$screen" >>"$record"
    now=$(grep -Ec "$bar" <<<"$screen" || true)
    [ "$now" -le 1 ] || fail "on $columns columns a bar takes $now lines:"$'\n'"$screen"
    bars=$((bars + now))
    if grep -q '^status=' <<<"$screen"; then break; fi
    sleep 0.1
  done
  tmux -L "$socket" kill-server
  [ "$bars" -gt 3 ] || fail "on $columns columns a bar was seen $bars times"
  [ "$now" = 0 ] || fail "on $columns columns the bar stays:"$'\n'"$screen"
  grep -q '^status=0' <<<"$screen" || fail "on $columns columns:"$'\n'"$screen"
  grep -q 'epoch 2/2' <<<"$screen" || fail "on $columns columns no line tells the second epoch:"$'\n'"$screen"
  echo "terminal of $columns columns: the bar stood on one line each of the $bars times it was seen, and went"
done

"${training[@]}" >"$seen/no-terminal.txt" 2>&1 </dev/null || fail "without a terminal:"$'\n'"$(cat "$seen/no-terminal.txt")"
if grep -q $'[\r\e]' "$seen/no-terminal.txt"; then fail "control characters where there is no terminal"; fi
grep -q 'epoch 2/2' "$seen/no-terminal.txt" || fail "without a terminal no line tells the second epoch"
echo "no terminal: $(wc -l <"$seen/no-terminal.txt") lines without control characters"

# --- pages

"$BINDERY" inspect --model resnet20 --html model.html >/dev/null
"${training[@]}" --save trained.pb --plot curves.svg --progress none >/dev/null 2>&1
"$BINDERY" test --model trained.pb --data digits --test-digits 500 --report report.html >/dev/null
# A picture is looked at within a page.
printf '<!DOCTYPE html><title>curves</title><img src="curves.svg" style="max-width: 100%%">' >curves.html

browser() { # OPTIONS... FILE
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --enable-logging=stderr --user-data-dir="$folder/profile" \
    --virtual-time-budget=2000 "$@" 2>"$folder/console"
  if grep -E 'CONSOLE' "$folder/console"; then fail "the console of ${*: -1} says that"; fi
}

for page in model report curves; do
  if grep -oE '(src|href)="(https?:)?//[^"]*"|@import|url\([^)#]*//' "$page.html"; then fail "$page.html reads from outside"; fi
  for width in 400 1200; do
    browser --window-size="$width,1600" --screenshot="$seen/$page-$width.png" "$page.html" >/dev/null
    [ -s "$seen/$page-$width.png" ] || fail "no picture of $page.html"
    # A frame as wide as the window tells how wide the page in it is: scripts may not, since the pages have none.
    printf '<!DOCTYPE html><iframe id="f" src="%s" style="width: %dpx; height: 1000px; border: 0"></iframe><script>%s</script>' \
      "$page.html" "$width" \
      'f.onload = () => { document.body.append("wide " + f.contentDocument.documentElement.scrollWidth) }' >frame.html
    wide=$(browser --allow-file-access-from-files --dump-dom frame.html | grep -oE 'wide [0-9]+' | tail -n 1 | tr -dc 0-9)
    [ -n "$wide" ] || fail "$page.html was not measured"
    [ "$wide" -le "$width" ] || fail "$page.html is $wide pixels wide in a window of $width"
  done
  echo "$page.html: no errors, nothing from outside, as wide as windows of 400 and 1200 pixels"
done
