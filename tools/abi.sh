#!/bin/bash
# Compares the binary interface with that of the last release: what libraries export, and how the types of public headers
# are laid out. Fails if programs built against it would not run with this one, unless BINDERY_VERSION_ABI, which the
# libraries' names end in, is another.
#
# The libraries are built without debugging information. So exported symbols are read from them, and types from small
# libraries of their own: one takes a pointer to each class that the headers declare, the other has the functions of the
# C interface, which do nothing.
set -euo pipefail
export LC_ALL=C

usage() {
  cat <<'END'
usage: tools/abi.sh [--store] [--c-interface] [--prefix DIR] [--stored DIR]

  --store        describe this one, as released; else: compare with what is described
  --c-interface  only bindery/c_api.h, which takes no installation
  --prefix DIR   what is installed there; without it, it is built and installed to a temporary folder
  --stored DIR   where descriptions are; tools/package/abi without it

Wants abidw and abidiff (apt-get install abigail-tools). Exits with 1 if programs have to be built again.
END
}

fail() {
  echo "abi: $*" >&2
  exit 1
}

root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")
store= prefix= c_interface= stored=$root/tools/package/abi
# shellcheck source=tools/options.sh
source "$root/tools/options.sh"
read_options "prefix stored" "store c-interface" "$@"
[ -n "$prefix$c_interface" ] || "$root/tools/setup.sh"
for tool in abidw abidiff xz; do
  command -v "$tool" >/dev/null || fail "there is no $tool: apt-get install abigail-tools xz-utils"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$prefix" ] && [ -n "$c_interface" ]; then
  mkdir -p "$work/prefix/include"
  ln -s "$root/bindery" "$work/prefix/include/bindery"
  prefix=$work/prefix
elif [ -z "$prefix" ]; then
  prefix=$work/prefix
  "$root/tools/install.sh" --prefix "$prefix" >&2
fi
headers=$prefix/include/bindery
number=$(number ABI "$headers/version.h")
[ -n "$number" ] || fail "nothing is installed in $prefix"
if [ -z "$store" ]; then
  [ -f "$stored/number" ] || fail "nothing is described in $stored"
  released=$(cat "$stored/number")
  if [ "$number" != "$released" ]; then
    echo "abi: number $number, and $released is described: programs are built again anyway"
    exit
  fi
fi
abidw=(abidw --no-comp-dir-path --no-corpus-path)

# What the C interface declares, defined: a declaration that names parameters ends in a body.
gcc -E -P -x c -I "$prefix/include" - <<<'#include <bindery/c_api.h>' | tr '\n' ' ' | sed 's/;/;\n/g' |
  sed '/^[^{}]*bindery_[a-z_]*(.*);$/{/typedef/!s/;$/ { __builtin_trap(); }/}' >"$work/c_api.c"
gcc -g -O0 -shared -fPIC -w "$work/c_api.c" -o "$work/c_api.so"
"${abidw[@]}" --no-show-locs "$work/c_api.so" >"$work/c_api.abi"
grep -q 'bindery_last_error' "$work/c_api.abi" || fail "no functions were found in $headers/c_api.h"
pieces=(c_api)

describe_cpp() {
  for library in libbindery_predict libbindery; do
    "${abidw[@]}" --drop-undefined-syms "$prefix/lib/$library.so" |
      sed "/version='BINDERY_PRIVATE_/d" >"$work/$library.abi"
  done
  find "$headers" -name '*.h' -print0 | sort -z |
    xargs -0 awk -v only=types -f "$root/tools/package/declared_names.awk" | sort -u >"$work/classes"
  {
    echo '#include <bindery/bindery.h>'
    echo '#include <bindery/c_api.h>'
    sed 's/.*/void type(&*) {}/' "$work/classes"
  } >"$work/types.cc"
  g++ -std=c++20 -g -O0 -shared -fPIC -w -I "$prefix/include" "$work/types.cc" -o "$work/types.so"
  "${abidw[@]}" --no-show-locs --headers-dir "$headers" --drop-private-types "$work/types.so" \
    >"$work/types.abi"
}
if [ -z "$c_interface" ]; then
  describe_cpp
  pieces+=(libbindery_predict libbindery types)
fi

if [ -n "$store" ]; then
  mkdir -p "$stored"
  for piece in "${pieces[@]}"; do
    # The C interface is small, and a change of it is to be seen in a review.
    if [ "$piece" = c_api ]; then
      cp "$work/c_api.abi" "$stored"
    else
      xz -9 --stdout "$work/$piece.abi" >"$stored/$piece.abi.xz"
    fi
  done
  echo "$number" >"$stored/number"
  echo "abi: described number $number in $stored: ${pieces[*]}"
  exit
fi

broken= compared=
for piece in "${pieces[@]}"; do
  if [ -f "$stored/$piece.abi" ]; then
    cp "$stored/$piece.abi" "$work/released.abi"
  elif [ -f "$stored/$piece.abi.xz" ]; then
    xz --decompress --stdout "$stored/$piece.abi.xz" >"$work/released.abi"
  else
    echo "abi: $piece is not described: there is no release of it yet"
    continue
  fi
  compared+=" $piece"
  abidiff --no-added-syms --no-show-locs "$work/released.abi" "$work/$piece.abi" || broken+=" $piece"
done
[ -z "$broken" ] || fail "programs built against the release do not fit any more ($broken ): raise BINDERY_VERSION_ABI"
echo "abi: number $number, nothing that programs were built against has changed:$compared"
