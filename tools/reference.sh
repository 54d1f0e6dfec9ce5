#!/bin/bash
# The reference: a page for each class and header that programs may include, made of the headers' own comments.
#
#   tools/reference.sh --output DIR       # then open DIR/index.html
#
# Wants Debian's doxygen. What the headers are, and what comments become, is in tools/reference/.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")

usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; }

fail() {
  echo "reference: $*" >&2
  exit 1
}

output=
# shellcheck source=tools/options.sh
source "$root/tools/options.sh"
read_options output "" "$@"
[ -n "$output" ] || fail "--output DIR is missing"
command -v doxygen >/dev/null || fail "there is no doxygen: apt-get install doxygen"
mkdir -p "$output" || fail "cannot make $output"
output=$(realpath -s "$output")

# Doxygen writes its pages to the folder html.
work=$(mktemp -d "$output/.reference-XXXXXX")
trap 'rm -rf "$work"' EXIT
# Headers lie as they are installed, so that the pages name them as programs include them.
cd "$work"
headers=()
while IFS= read -r header; do
  headers+=("bindery/${header#bindery/}")
  install -D -m 644 "$root/$header" "${headers[-1]}"
done < <(grep -v '^#' "$root/bindery/headers.txt")
cp "$root/tools/reference/front.md" .
{
  cat "$root/tools/reference/Doxyfile"
  echo "PROJECT_NUMBER = $(number MAJOR).$(number MINOR).$(number PATCH)"
  echo "INPUT_FILTER = $root/tools/reference/comments.awk"
  echo "INPUT = front.md ${headers[*]}"
} >Doxyfile
doxygen >log 2>&1 || { cat log >&2 && fail "doxygen failed"; }
cp -r html/. "$output"
echo "reference: $(find "$output" -name '*.html' | wc -l) pages: $output/index.html"
