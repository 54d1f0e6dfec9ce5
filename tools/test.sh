#!/bin/bash
# Builds and runs tests. Closes with one line, "N passed, N failed", of test cases; fails unless all of them passed.
set -euo pipefail

usage() {
  cat <<'END'
usage: tools/test.sh [--asan | --ubsan | --asan-ubsan | --tsan] [bazel option...] [target pattern...]

Without a pattern: builds everything and runs all tests. Examples:
  tools/test.sh //tests/base/...
  tools/test.sh --asan //tests/engine:storage_test --test_filter='StorageTest.*'
END
}

root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")
cd "$root"

options=()
patterns=()
for arg in "$@"; do
  case $arg in
    --help | -h)
      usage
      exit
      ;;
    --asan | --ubsan | --asan-ubsan | --tsan) options+=("--config=${arg#--}") ;;
    --*) options+=("$arg") ;;
    *) patterns+=("$arg") ;;
  esac
done
[ ${#patterns[@]} -gt 0 ] || patterns=(//...)
# Without a terminal: a line now and then, so that nobody takes a long compilation for a hang.
[ -t 2 ] || options+=(--show_progress_rate_limit=30)

# Who compiles tests as all else may do without what else compiles them.
case " ${options[*]} " in
  *" --config="*) tools/setup.sh --tests ;;
  *" --define=compiler=one "*) tools/setup.sh ;;
  *) tools/setup.sh --tests ;;
esac

events=$(mktemp)
trap 'rm -f "$events"' EXIT
status=0
tools/bazel test --keep_going --build_event_json_file="$events" "${options[@]}" -- "${patterns[@]}" </dev/null || status=$?
tools/test_summary "$events" "$status"
