#!/bin/bash
# compile.sh [--same OUT] HEADERS UNUSED COMMAND...: compiles, and names in UNUSED those of the headers listed in HEADERS
# that were not read: when they change, nothing has to be compiled anew. %root% in the command is the working folder.
# With --same: OUT, which the command writes, is as far as can be the same each time.
set -euo pipefail
same=
if [ "$1" = --same ]; then
  same=$2
  shift 2
fi
headers=$1
unused=$2
shift 2

command -v "$1" >/dev/null || {
  echo "there is no $1, which compiles tests: tools/setup.sh --tests installs it, --define=compiler=one does without" >&2
  exit 1
}
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
dependencies=$temporary/dependencies
command=("${@//%root%/$PWD}" -MD -MF "$dependencies")

# g++ writes its memory into a precompiled header, addresses included; whatever includes another one is not found in the
# disk cache. So it runs at fixed addresses, with an environment of a fixed size below its stack.
if [ -n "$same" ] && fixed=(env -i "PATH=$PATH" "TMPDIR=${TMPDIR:-/tmp}" setarch --addr-no-randomize) &&
  "${fixed[@]}" true 2>/dev/null; then
  "${fixed[@]}" "${command[@]}"
  mv "$same" "$temporary/first"
  "${fixed[@]}" "${command[@]}"
  # What still differs, four bytes in some places of 80 MB, is a part of the guard of its stack, which the kernel draws,
  # between the members of structures: these become zero. Many differences were something else, and stay.
  { cmp -l "$temporary/first" "$same" || [ $? = 1 ]; } |
    awk '{ at = int(($1 - 1) / 4) * 4 } at != last { print last = at }' >"$temporary/words"
  if [ "$(wc -l <"$temporary/words")" -le 256 ]; then
    while read -r word; do
      printf '\0\0\0\0' | dd of="$same" bs=1 seek="$word" conv=notrunc status=none
    done <"$temporary/words"
  fi
else
  "${command[@]}"
fi
grep -o "[^ \\]*" "$dependencies" | sed 's,^\./,,' | grep -vxFf - "$headers" >"$unused" || [ $? = 1 ]
