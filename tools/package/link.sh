#!/bin/bash
# Links the archives of the library's folders into what is installed:
#
#   libbindery_predict.so   all that loads, binds and runs networks
#   libbindery.so           what trains them, on top of it
#   bindery                 the program, on both
#
# All symbols are hidden but those of what public headers declare; they have the version BINDERY_<soname's number>. What
# the upper ones use of the lower besides has the version BINDERY_PRIVATE_<version>, so that the loader refuses a mix.
# There is one copy of everything in a process, whichever of the libraries it came by: protobuf ends a program in which
# two have the same messages.
#
# usage: link.sh FOLDER INPUT...   (archives, bindery/version.h and bindery/headers.txt, in any order)
set -euo pipefail
export LC_ALL=C

here=$(dirname "${BASH_SOURCE[0]}")
out=$1
shift
lower=() upper=() program=() version_header= list=
for input in "$@"; do
  case $input in
    */libcheckpoint.a | */libdata.a | */libevents.a | */libkvstore.a | */libmodule.a | */libplot.a | */libtape.a | \
      */libtrace.a | */libtrain.a | */libweights.a)
      upper+=("$input")
      ;;
    */libcli.a | */libpages.a | */librate.a | */libsolver.a) program+=("$input") ;;
    *.a) lower+=("$input") ;;
    */version.h) version_header=$input ;;
    */headers.txt) list=$input ;;
  esac
done
root=${list%bindery/headers.txt}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

number() { awk -v name="BINDERY_VERSION_$1" '$1 == "#define" && $2 == name { print $3 }' "$version_header"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
soname=$(number ABI)

# What is declared, and what is there: lines of nm's type, mangled name, demangled name.
mapfile -t headers < <(sed "/^#/d; s|^|${root:-./}|" "$list")
awk -f "$here/declared_names.awk" "${headers[@]}" | sort -u >"$work/names"
symbols() { nm --extern-only "$@" 2>/dev/null | awk 'NF == 3 { print $2 "\t" $3 }' | sort -u; }
defined() {
  symbols --defined-only "$@" >"$work/symbols"
  paste "$work/symbols" <(cut -f 2 "$work/symbols" | c++filt)
}
undefined() { nm --extern-only --undefined-only "$@" 2>/dev/null | awk 'NF == 2 { print $2 }' | sort -u; }
public() { awk -f "$here/public_symbols.awk" "$work/names" "$1" | sort -u; }

defined "${lower[@]}" >"$work/lower"
defined "${upper[@]}" >"$work/upper"
cut -f 2 "$work/lower" | sort -u >"$work/lower.names"
cut -f 2 "$work/upper" | sort -u >"$work/upper.names"
# Objects of which a process has one, though both define them: variables of inline functions and templates.
unique() { awk -F '\t' '$1 == "u" && $3 ~ /bindery::/ { print $2 }' "$1" | sort -u; }
comm -12 <(unique "$work/lower") <(unique "$work/upper") >"$work/unique"

public "$work/lower" >"$work/lower.api"
public "$work/upper" | comm -23 - <(comm -23 "$work/lower.names" "$work/unique") >"$work/upper.api"
# exported USED DEFINED API: what others use, or have too, and headers do not declare.
exported() { sort -u "$1" "$work/unique" | comm -12 - "$2" | comm -23 - "$3"; }
undefined "${upper[@]}" "${program[@]}" >"$work/used"
exported "$work/used" "$work/lower.names" "$work/lower.api" >"$work/lower.private"
undefined "${program[@]}" | comm -23 - "$work/lower.names" >"$work/used"
exported "$work/used" "$work/upper.names" "$work/upper.api" >"$work/upper.private"

# Only what exported symbols reach is linked, and nothing may be missing.
flags=(-fopenmp -Wl,--as-needed -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,-O1 -Wl,--build-id)
shared() { # shared FILE NAME lower|upper INPUT...
  local file=$1 name=$2 part=$3
  shift 3
  {
    printf 'BINDERY_%s {\nglobal:\n' "$soname"
    sed 's/$/;/' "$work/$part.api"
    printf 'local: *;\n};\nBINDERY_PRIVATE_%s {\nglobal:\n' "$version"
    sed 's/$/;/' "$work/$part.private"
    printf '};\n'
  } >"$work/$part.map"
  g++ -shared -o "$file" -Wl,-soname,"$name.so.$soname" -Wl,--version-script="$work/$part.map" \
    -Wl,-Bsymbolic-functions -Wl,-z,defs "${flags[@]}" "$@"
}
shared "$out/libbindery_predict.so" libbindery_predict lower -Wl,--whole-archive "${lower[@]}" -Wl,--no-whole-archive \
  -ldnnl -lfmt -lprotobuf -lxxhash -ldl -lpthread

# What needs the library below finds it where it lies: beside it, or in ../lib, ../lib64 or ../lib/MULTIARCH. In system/
# are the same without a path, for folders that the loader knows.
upper() { # upper FOLDER LIBRARY'S-FLAG PROGRAM'S-FLAG
  shared "$1/libbindery.so" libbindery upper "$2" -Wl,--whole-archive "${upper[@]}" -Wl,--no-whole-archive \
    "$out/libbindery_predict.so" -lfmt -lpng -lprotobuf -lturbojpeg -lxxhash -lz -ldl -lpthread
  g++ -o "$1/bindery" "$3" "${program[@]}" "$1/libbindery.so" "$out/libbindery_predict.so" "${flags[@]}" \
    -lspdlog -lfmt -lprotobuf -ldl -lpthread
}
upper "$out" "-Wl,-rpath,\$ORIGIN" \
  "-Wl,-rpath,\$ORIGIN/../lib:\$ORIGIN/../lib64:\$ORIGIN/../lib/$(g++ -print-multiarch)"
mkdir -p "$out/system"
upper "$out/system" -Wl,--build-id -Wl,--build-id
