#!/bin/bash
# Compares the binary interface with that of the last release: what libraries export, and how the types of public headers
# are laid out. Fails if programs built against it would not run with this one, unless BINDERY_VERSION_ABI, which the
# libraries' names end in, is another.
#
# The libraries are built without debugging information. So exported symbols are read from them, and types from a small
# library of its own, which takes a pointer to each class that the headers declare.
set -euo pipefail
export LC_ALL=C

usage() {
  cat <<'END'
usage: tools/abi.sh [--store] [--prefix DIR] [--stored DIR]

  --store        describe this one, as released; else: compare with what is described
  --prefix DIR   what is installed there; without it, it is built and installed to a temporary folder
  --stored DIR   where descriptions are; tools/package/abi without it

Wants abidw and abidiff (apt-get install abigail-tools). Exits with 1 if programs have to be built again.
END
}

fail() {
  echo "abi: $*" >&2
  exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
store= prefix= stored=$root/tools/package/abi
while [ $# -gt 0 ]; do
  case $1 in
    --store) store=yes ;;
    --prefix=*) prefix=${1#*=} ;;
    --stored=*) stored=${1#*=} ;;
    --prefix | --stored)
      [ $# -ge 2 ] || fail "$1 needs a value"
      set -- "$1=$2" "${@:3}"
      continue
      ;;
    --help | -h)
      usage
      exit
      ;;
    *)
      usage >&2
      fail "unknown option $1"
      ;;
  esac
  shift
done
for tool in abidw abidiff xz; do
  command -v "$tool" >/dev/null || fail "there is no $tool: apt-get install abigail-tools xz-utils"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$prefix" ]; then
  prefix=$work/prefix
  "$root/tools/install.sh" --prefix "$prefix" >&2
fi
headers=$prefix/include/bindery
number=$(awk '$1 == "#define" && $2 == "BINDERY_VERSION_ABI" { print $3 }' "$headers/version.h")
[ -n "$number" ] || fail "nothing is installed in $prefix"
pieces=(libbindery_predict libbindery types)

for library in libbindery_predict libbindery; do
  abidw --no-comp-dir-path --no-corpus-path --drop-undefined-syms "$prefix/lib/$library.so" |
    sed "/version='BINDERY_PRIVATE_/d" >"$work/$library.abi"
done
# Classes, but no templates, of namespaces.
find "$headers" -name '*.h' -print0 | sort -z | xargs -0 awk '
  FNR == 1 { depth = 0 }
  /^namespace [a-z]/ { ++depth; space[depth] = (depth > 1 ? space[depth - 1] "::" : "") $2; next }
  /^}  \/\/ namespace/ { --depth; next }
  /^template/ { of_template = 1; next }
  depth && /^(class|struct) / {
    gsub(/\[\[[^\]]*\]\] */, "")
    split($0, words, /[ :;{<]+/)
    if (!of_template && !/;$/) print space[depth] "::" words[2]
  }
  /^[A-Za-z]/ { of_template = 0 }' | sort -u >"$work/classes"
{
  echo '#include <bindery/bindery.h>'
  echo '#include <bindery/c_api.h>'
  sed 's/.*/void type(&*) {}/' "$work/classes"
} >"$work/types.cc"
g++ -std=c++20 -g -O0 -shared -fPIC -w -I "$prefix/include" "$work/types.cc" -o "$work/types.so"
abidw --no-comp-dir-path --no-corpus-path --no-show-locs --headers-dir "$headers" --drop-private-types "$work/types.so" \
  >"$work/types.abi"

if [ -n "$store" ]; then
  mkdir -p "$stored"
  for piece in "${pieces[@]}"; do xz -9 --stdout "$work/$piece.abi" >"$stored/$piece.abi.xz"; done
  echo "$number" >"$stored/number"
  echo "abi: described number $number, $(wc -l <"$work/classes") classes, in $stored"
  exit
fi

[ -f "$stored/number" ] || fail "nothing is described in $stored"
released=$(cat "$stored/number")
if [ "$number" != "$released" ]; then
  echo "abi: number $number, and $released is described: programs are built again anyway"
  exit
fi
broken=
for piece in "${pieces[@]}"; do
  xz --decompress --stdout "$stored/$piece.abi.xz" >"$work/released.abi"
  abidiff --no-added-syms --no-show-locs "$work/released.abi" "$work/$piece.abi" || broken+=" $piece"
done
[ -z "$broken" ] || fail "programs built against the release do not fit any more ($broken ): raise BINDERY_VERSION_ABI"
echo "abi: number $number, nothing that programs were built against has changed"
