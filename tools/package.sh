#!/bin/bash
# Builds Debian packages of Bindery:
#
#   libbindery-predict0   the shared library that loads, binds and runs networks
#   libbindery0           the one that trains them, on top of it
#   libbindery-dev        headers, examples, and what pkg-config, CMake and Bazel need
#   bindery               the program
#
# The numbers are those of the libraries' names. What the libraries of others are needed for is found by
# dpkg-shlibdeps.
set -euo pipefail
export LC_ALL=C

usage() {
  cat <<'END'
usage: tools/package.sh [--output DIR] [--built DIR]

  --output DIR   where the packages go; the current folder without it
  --built DIR    take what is built from there (bazel-bin's content) and build nothing

$DEBFULLNAME and $DEBEMAIL are the maintainer's name and address; git's without them.
END
}

fail() {
  echo "package: $*" >&2
  exit 1
}

root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")
output=. built=
# shellcheck source=tools/options.sh
source "$root/tools/options.sh"
read_options "output built" "" "$@"
[ -n "$built" ] || "$root/tools/setup.sh"
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
  command -v "$tool" >/dev/null || fail "there is no $tool: apt-get install dpkg-dev"
done
mkdir -p "$output" || fail "cannot make $output"

version=$(number MAJOR).$(number MINOR).$(number PATCH)
abi=$(number ABI)
architecture=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture --query DEB_HOST_MULTIARCH)
libdir=usr/lib/$multiarch
identity() { git -C "$root" config "user.$1" 2>/dev/null || echo "$2"; }
maintainer="${DEBFULLNAME:-$(identity name "${USER:-bindery}")} <${DEBEMAIL:-$(identity email "${USER:-bindery}@$(hostname)")}>"
when=${SOURCE_DATE_EPOCH:-$(date +%s)}

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
work=$temporary/debian # where dpkg-shlibdeps looks for packages, and for control above it
mkdir "$work"
umask 022
"$root/tools/install.sh" --destdir "$work/all" --prefix /usr --libdir "lib/$multiarch" --system \
  ${built:+--built "$built"} >&2
rm "$work/all/usr/share/bindery/installed_files"

# --- who gets what
predict=libbindery-predict$abi
library=libbindery$abi
packages=("$predict" "$library" libbindery-dev bindery)
give() { # give PACKAGE PATH...
  local to=$work/$1 path
  shift
  for path in "$@"; do
    mkdir -p "$to/${path%/*}"
    mv "$work/all/$path" "$to/$path"
  done
}
give "$predict" "$libdir"/libbindery_predict.so.{"$abi","$version"}
give "$library" "$libdir"/libbindery.so.{"$abi","$version"}
mv "$work/all/usr/share/zsh/site-functions" "$work/all/usr/share/zsh/vendor-completions" # where Debian's zsh looks
give bindery usr/bin/bindery usr/share/{bindery/models,man,bash-completion,zsh,fish}
mkdir -p "$work/libbindery-dev/usr/share/doc"
mv "$work/all/usr/share/doc/bindery" "$work/libbindery-dev/usr/share/doc/libbindery-dev"
rm "$work/libbindery-dev/usr/share/doc/libbindery-dev/LICENSE"
cp -a "$work/all/usr" "$work/libbindery-dev/"
find "$work/libbindery-dev" -type d -empty -delete
for package in "${packages[@]}"; do mkdir -p "$work/$package/DEBIAN"; done
for package in "$predict" "$library"; do
  echo activate-noawait ldconfig >"$work/$package/DEBIAN/triggers"
done
echo "libbindery_predict $abi $predict (>= $version)" >"$work/$predict/DEBIAN/shlibs"
echo "libbindery $abi $library (>= $version)" >"$work/$library/DEBIAN/shlibs"

# --- what they need: of others by the symbols they use, of each other this very version
{
  printf 'Source: bindery\nMaintainer: %s\n' "$maintainer"
  printf '\nPackage: %s\nArchitecture: any\n' "${packages[@]}"
} >"$work/control"
cat "$work/$predict/DEBIAN/shlibs" "$work/$library/DEBIAN/shlibs" >"$work/shlibs.local"
needs() { # needs FILE: of all but our own
  (cd "$temporary" && dpkg-shlibdeps -O -l"$work/$predict/$libdir" -l"$work/$library/$libdir" "debian/$1") |
    sed -n 's/^shlibs:Depends=//p' | sed 's/, /\n/g' | grep -v "^libbindery" | paste -sd , | sed 's/,/, /g'
}
exactly() { printf '%s (= %s)' "$1" "$version"; }

describe() { # describe PACKAGE SECTION DEPENDS RECOMMENDS MULTI-ARCH SUMMARY; the long description from standard input
  local folder=$work/$1 doc=$work/$1/usr/share/doc/$1
  mkdir -p "$doc"
  {
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Bindery

Files: *
Copyright: $(date -u -d "@$when" +%Y), the authors of Bindery
License: Apache-2.0
 On Debian systems the licence's text is in /usr/share/common-licenses/Apache-2.0.
END
  } >"$doc/copyright"
  printf 'bindery (%s) unstable; urgency=medium\n\n  * Version %s.\n\n -- %s  %s\n' "$version" "$version" \
    "$maintainer" "$(date -R -u -d "@$when")" | gzip -9n >"$doc/changelog.gz"
  {
    printf 'Package: %s\nSource: bindery\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$1" "$version" \
      "$architecture" "$maintainer"
    printf 'Installed-Size: %s\nDepends: %s\n' "$(du -sk --apparent-size "$folder/usr" | cut -f 1)" "$3"
    [ -z "$4" ] || printf 'Recommends: %s\n' "$4"
    [ -z "$5" ] || printf 'Multi-Arch: %s\n' "$5"
    printf 'Section: %s\nPriority: optional\nDescription: %s\n' "$2" "$6"
    fmt -w 78 | sed 's/^/ /; s/^ $/ ./'
  } >"$folder/DEBIAN/control"
  (cd "$folder" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$folder/DEBIAN/md5sums"
  chmod -R u=rwX,go=rX "$folder"
  dpkg-deb --root-owner-group --build "$folder" "$output/$1_${version}_$architecture.deb" >&2
  echo "$output/$1_${version}_$architecture.deb"
}

# Assigned first: a failure inside an argument would go unseen.
predict_needs=$(needs "$predict/$libdir/libbindery_predict.so.$version")
library_needs=$(needs "$library/$libdir/libbindery.so.$version")
program_needs=$(needs bindery/usr/bin/bindery)
describe "$predict" libs "$predict_needs" "" same \
  "inference of neural networks in C++ programs" <<'END'
Bindery binds a network, described in C++ or read from a file, to the shapes it will see, and then runs it from any
number of threads on one set of weights. ONNX models are read, too.

This is the shared library without training. It has a C interface, which exchanges arrays by DLPack.
END
describe "$library" libs "$(exactly "$predict"), $library_needs" "" same \
  "training of neural networks in C++ programs" <<'END'
Bindery trains neural networks inside C++ programs, without Python: on one or several devices, resumed after a stop to
the bit, with the data, optimizers and metrics that users expect.

This is the shared library.
END
describe libbindery-dev libdevel "$(exactly "$library"), $(exactly "$predict"), libfmt-dev" "g++, pkg-config" "" \
  "training and inference of neural networks in C++ programs: headers" <<'END'
Bindery trains and runs neural networks inside C++ programs, without Python.

These are the headers of both libraries, what pkg-config, CMake (find_package(Bindery)) and Bazel need to find them,
documentation, and examples to begin with.
END
describe bindery science "$(exactly "$library"), $(exactly "$predict"), $program_needs" "" "" \
  "training and inference of neural networks on the command line" <<'END'
Bindery trains, tests and asks neural networks without Python: models by name, as text or as ONNX, data from files of
many kinds, checkpoints that a stopped run is resumed from.
END
