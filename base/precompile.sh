#!/bin/bash
# precompile.sh HEADERS UNUSED COMMAND...: compiles, and names in UNUSED those of the headers listed in HEADERS that were
# not read: when they change, nothing has to be compiled anew.
set -euo pipefail
headers=$1
unused=$2
shift 2

dependencies=$(mktemp)
trap 'rm -f "$dependencies"' EXIT
"$@" -MD -MF "$dependencies"
grep -o "[^ \\]*" "$dependencies" | grep -vxFf - "$headers" >"$unused" || [ $? = 1 ]
