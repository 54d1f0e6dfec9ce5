#!/bin/bash
# compile.sh [--same] HEADERS UNUSED COMMAND...: compiles, and names in UNUSED those of the headers listed in HEADERS
# that were not read: when they change, nothing has to be compiled anew. %root% in the command is the working folder.
# With --same, g++ writes the same bytes each time, as far as that can be, into a folder of the working folder.
set -euo pipefail
export PATH  # bash's own where Bazel gives none: gcc looks there for the linker
same=
if [ "$1" = --same ]; then
  same=yes
  shift
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
# disk cache. So it runs at fixed addresses, with an environment of a fixed size below its stack. Between the members of
# structures it writes what lay there before: of the guard of its stack, too, which the kernel draws. A library that is
# loaded before it begins makes that zero. And where its data lie depends on how long the working folder's name is, which
# for Bazel's sandboxes, counted from one, is another each time: so it works in a folder of links beside.
if [ -n "$same" ] && setarch --addr-no-randomize true 2>/dev/null &&
  echo '__attribute__((constructor)) void Zero(void) { __asm__ volatile("movq $0, %fs:40"); }' |
  "$1" -x c -shared -fPIC -fno-stack-protector -nostdlib -o "$temporary/guard.so" - 2>/dev/null; then
  mkdir "$temporary/work"
  ln -s "$PWD"/* "$temporary/work"
  command=(env -i "--chdir=$temporary/work" "PATH=$PATH" "TMPDIR=${TMPDIR:-/tmp}" "LD_PRELOAD=$temporary/guard.so"
    setarch --addr-no-randomize "${command[@]}")
fi
"${command[@]}"
grep -o "[^ \\]*" "$dependencies" | sed 's,^\./,,' | grep -vxFf - "$headers" >"$unused" || [ $? = 1 ]
