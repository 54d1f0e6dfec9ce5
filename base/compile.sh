#!/bin/bash
# compile.sh HEADERS UNUSED COMMAND...: compiles, and names in UNUSED those of the headers listed in HEADERS that were
# not read: when they change, nothing has to be compiled anew. %root% in the command is the working folder.
set -euo pipefail
headers=$1
unused=$2
shift 2

command -v "$1" >/dev/null || {
  echo "there is no $1, which compiles tests: tools/setup.sh --tests installs it, --define=compiler=one does without" >&2
  exit 1
}
dependencies=$(mktemp)
trap 'rm -f "$dependencies"' EXIT
"${@//%root%/$PWD}" -MD -MF "$dependencies"
grep -o "[^ \\]*" "$dependencies" | sed 's,^\./,,' | grep -vxFf - "$headers" >"$unused" || [ $? = 1 ]
