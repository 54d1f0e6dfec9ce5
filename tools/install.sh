#!/bin/bash
# Builds Bindery and installs it: the program, shared libraries, headers, what pkg-config, CMake and Bazel need to find
# them, documentation and examples. Or removes all that.
set -euo pipefail
export LC_ALL=C
umask 022

usage() {
  cat <<'END'
usage: tools/install.sh [--prefix DIR] [option...]

  --prefix DIR    where it goes; /usr/local without it. What is there may be moved as a whole
  --destdir DIR   put before the prefix, for packages: files land in DIR/PREFIX
  --libdir NAME   of the libraries, below the prefix: lib64, or lib/x86_64-linux-gnu; lib without it
  --system        the loader knows the folder of the libraries: no search paths, absolute names. The tree stays there
  --built DIR     take what is built from there (bazel-bin's content) and build nothing
  --uninstall     remove what was installed with this prefix

Files are replaced one by one, each at once, the libraries before what needs them. What an older version had and this
one has not is removed.
END
}

fail() {
  echo "install: $*" >&2
  exit 1
}

root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")
prefix=/usr/local destdir= libdir=lib system= built= uninstall=
# shellcheck source=tools/options.sh
source "$root/tools/options.sh"
read_options "prefix destdir libdir built" "system uninstall" "$@"
[[ $prefix == /* ]] || prefix=$PWD/$prefix
prefix=${prefix%/}
[[ -z $destdir || $destdir == /* ]] || destdir=$PWD/$destdir
libdir=${libdir%/}
[[ $libdir != /* && $libdir != *..* ]] || fail "--libdir is a path below the prefix, not $libdir"
target=$destdir$prefix
list=share/bindery/installed_files # paths below the prefix; those that end in / are folders it made

# Removes the files and then the folders that stand in standard input, if they are empty.
remove() {
  local path
  sort -r | while IFS= read -r path; do
    case $path in
      /* | *..*) fail "$target/$list: not a path of ours: $path" ;;
      */) [ ! -d "$target/$path" ] || rmdir --ignore-fail-on-non-empty "$target/$path" ;;
      ?*) rm -f "$target/$path" ;;
    esac
  done
}

if [ -n "$uninstall" ]; then
  [ -f "$target/$list" ] || fail "nothing is installed in $target: there is no $list"
  names=$(cat "$target/$list")
  { grep -v '/$' <<<"$names" | grep -vxF "$list" || true; } | remove
  rm -f "$target/$list" # behind what it lists, so that a removal that failed can be done again
  { grep '/$' <<<"$names" || true; } | remove
  exit
fi

if [ -z "$built" ]; then
  "$root/tools/setup.sh"
  (cd "$root" && tools/bazel build --show_progress_rate_limit=30 //tools/package:link) || fail "the build failed"
  built=$root/bazel-bin
fi
parts=$built/tools/package
[ -f "$parts/libbindery.so" ] || fail "there is no $parts/libbindery.so: build //tools/package:link"

series=$(number MAJOR).$(number MINOR)
version=$series.$(number PATCH)
abi=$(number ABI)

mkdir -p "${target:-/}" || fail "cannot make $target"
stage=$(mktemp -d "$target/.bindery-XXXXXX") || fail "cannot write to $target"
trap 'rm -rf "$stage"' EXIT
put() { install -D -m "$1" "$2" "$stage/$3"; }

# --- libraries and program
for name in libbindery_predict libbindery; do
  from=$parts
  [ -z "$system" ] || [ ! -f "$parts/system/$name.so" ] || from=$parts/system
  put 644 "$from/$name.so" "$libdir/$name.so.$version"
  strip --strip-unneeded "$stage/$libdir/$name.so.$version"
  ln -s "$name.so.$version" "$stage/$libdir/$name.so.$abi"
  ln -s "$name.so.$abi" "$stage/$libdir/$name.so"
done
put 755 "$parts/${system:+system/}bindery" bin/bindery
strip "$stage/bin/bindery"
if [ -z "$system" ] && ! "$stage/bin/bindery" --version >/dev/null 2>&1; then
  fail "--libdir: the program looks for its libraries in lib, lib64 and lib/$(g++ -print-multiarch), not in $libdir;" \
    "with --system, where the loader does"
fi

# --- what man and shells look for
run() { LD_LIBRARY_PATH=$stage/$libdir "$stage/bin/bindery" "$@"; }
mkdir -p "$stage/share/man/man1" "$stage/share/bash-completion/completions" "$stage/share/zsh/site-functions" \
  "$stage/share/fish/vendor_completions.d"
run manual | gzip -9n >"$stage/share/man/man1/bindery.1.gz"
run completion --shell bash >"$stage/share/bash-completion/completions/bindery"
run completion --shell zsh >"$stage/share/zsh/site-functions/_bindery"
run completion --shell fish >"$stage/share/fish/vendor_completions.d/bindery.fish"

# --- headers. They name each other from the root of the sources, "engine/tensor.h"; as <bindery/...> they need no path
# of their own to be found by. Whatever visibility a program gives its symbols, what it shares with the library is seen.
rewrite() {
  awk '
    /^#include "(base|engine|executor|kvstore|symbol|train)\// { sub(/"/, "\"bindery/") }
    /^namespace bindery/ && !pushed && header { print "#pragma GCC visibility push(default)\n"; pushed = 1 }
    { print }
    END { if (pushed) print "\n#pragma GCC visibility pop" }' header="$1" "$2"
}
grep -v '^#' "$root/bindery/headers.txt" | while IFS= read -r header; do
  file=$stage/include/bindery/${header#bindery/}
  mkdir -p "${file%/*}"
  rewrite 1 "$root/$header" >"$file"
done

# --- for pkg-config, CMake and Bazel
up=$(sed 's|[^/]*|..|g' <<<"$libdir")
fill() { # fill TEMPLATE PLACE UP: `UP` leads from the file's folder to the prefix
  mkdir -p "$stage/${2%/*}"
  local base=$3
  sed -e "s|@PREFIX@|$base|; s|@UP@|$up/../..|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|g; s|@ABI@|$abi|g" \
    -e "s|@SERIES@|$series|" "$root/tools/package/$1" >"$stage/$2"
}
# shellcheck disable=SC2016
pc_prefix='${pcfiledir}/'$up/..
[ -z "$system" ] || pc_prefix=$prefix
fill bindery.pc.in "$libdir/pkgconfig/bindery.pc" "$pc_prefix"
fill bindery-predict.pc.in "$libdir/pkgconfig/bindery-predict.pc" "$pc_prefix"
fill BinderyConfig.cmake.in "$libdir/cmake/Bindery/BinderyConfig.cmake" ""
fill BinderyConfigVersion.cmake.in "$libdir/cmake/Bindery/BinderyConfigVersion.cmake" ""
fill bazel.BUILD.in share/bindery/bazel/BUILD.bazel ""
echo 'workspace(name = "bindery")' >"$stage/share/bindery/bazel/WORKSPACE"
mkdir "$stage/share/bindery/bazel/include"
ln -s ../../../../include/bindery "$stage/share/bindery/bazel/include/bindery"
ln -s "../../../$libdir" "$stage/share/bindery/bazel/lib"

# --- documentation, examples, models as text
put 644 "$root/LICENSE" share/doc/bindery/LICENSE
put 644 "$root/README.md" share/doc/bindery/README.md
for schema in "$root"/docs/*.json; do put 644 "$schema" "share/doc/bindery/docs/${schema##*/}"; done
for picture in "$root"/docs/pictures/*; do put 644 "$picture" "share/doc/bindery/docs/pictures/${picture##*/}"; done
for model in "$root"/models/*.prototxt; do put 644 "$model" "share/bindery/models/${model##*/}"; done
for example in "$root"/examples/*.cc; do
  mkdir -p "$stage/share/doc/bindery/examples"
  rewrite 0 "$example" >"$stage/share/doc/bindery/examples/${example##*/}"
done
put 644 "$root/examples/CMakeLists.txt" share/doc/bindery/examples/CMakeLists.txt
for file in "$root"/examples/{outside,server}/*; do
  [[ $file == */BUILD ]] || put 644 "$file" "share/doc/bindery/examples/${file#"$root"/examples/}"
done
# Links of pages to the sources lead to what is installed of these; what is not is named alone.
for page in "$root"/docs/*.md; do
  changes=
  while read -r link; do
    place=${link#../}
    if [ -e "$stage/include/bindery/${place#bindery/}" ]; then
      changes+="s|\]($link\([)#]\)|](../../../../include/bindery/${place#bindery/}\1|g;"
    elif [ ! -e "$stage/share/doc/bindery/$place" ]; then
      changes+="s|\[\([^][]*\)\]($link\(#[^)]*\)\?)|\1|g;"
    fi
  done < <(sed -n 's/\](\.\./\n&/gp' "$page" | sed -n 's/^](\(\.\.\/[^)#]*\).*/\1/p' | sort -u)
  sed -z "$changes" "$page" >"$stage/share/doc/bindery/docs/${page##*/}"
done

# --- all is there: into place
mkdir -p "$stage/${list%/*}"
folders=$(cd "$stage" && find . -mindepth 1 -type d -printf '%P\n' | sort)
files=$(cd "$stage" && find . -mindepth 1 ! -type d -printf '%P\n' | sort)$'\n'$list
chmod -R u=rwX,go=rX "$stage"
old=
[ ! -f "$target/$list" ] || old=$(cat "$target/$list")
made=$(grep '/$' <<<"$old" || true)
while IFS= read -r folder; do
  if [ ! -d "$target/$folder" ]; then
    mkdir "$target/$folder"
    made+=$'\n'$folder/
  fi
done <<<"$folders"
# The list first: whatever happens now, it names all that there may be.
{ sort -u <<<"$old"$'\n'"$files"$'\n'"$made" | sed '/^$/d'; } >"$stage/$list"
mv -f "$stage/$list" "$target/$list"
{ grep "^$libdir/lib" <<<"$files" | sort -r && grep -v "^$libdir/lib" <<<"$files"; } | while IFS= read -r file; do
  [ "$file" = "$list" ] || mv -fT "$stage/$file" "$target/$file"
done
comm -23 <(grep -v '/$' <<<"$old" | sort -u) <(sort -u <<<"$files") | remove
sort -u <<<"$files"$'\n'"$made" | sed '/^$/d' >"$stage/installed_files"
mv -f "$stage/installed_files" "$target/$list"
echo "install: $(wc -l <<<"$files") files in $target, among them, in bytes:"
(cd "$target" && stat --printf '  %-10s %n\n' "$libdir"/libbindery{_predict,}.so."$version" bin/bindery)
