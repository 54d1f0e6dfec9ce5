#!/bin/bash
# Installs the Debian packages on a bare system as a user would, builds programs on them, and removes them: in a tree of
# its own (chroot), as root. Fails if a dependency is missing, a program does not build or run, or a file stays behind.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

usage() {
  cat <<'END'
usage: tools/package_check.sh [--packages DIR] [--base DIR] [--suite NAME]

  --packages DIR   the packages (.deb); tools/package.sh makes them without it
  --base DIR       a tree of a bare system, which is copied; debootstrap makes one without it, of the variant minbase
  --suite NAME     which one; bookworm, which is Debian 12, without it

What the packages depend on, and compilers, come from the archive that the tree's apt is set up for.
END
}

fail() {
  echo "package_check: $*" >&2
  exit 1
}
say() { echo "package_check: $*"; }

root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")
packages='' base='' suite=bookworm
# shellcheck source=tools/options.sh
source "$root/tools/options.sh"
read_options "packages base suite" "" "$@"
[ "$(id -u)" = 0 ] || fail "only root may chroot"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
if [ -z "$packages" ]; then
  packages=$work/packages
  "$root/tools/package.sh" --output "$packages" >&2
fi
mkdir "$tree"
if [ -n "$base" ]; then
  [ -x "$base/usr/bin/apt-get" ] || fail "no tree of a system: $base"
  # Without what is mounted in it, and what was downloaded.
  tar -C "$base" --one-file-system --exclude='./var/cache/apt/archives/*.deb' -cf - . | tar -C "$tree" -xpf -
else
  command -v debootstrap >/dev/null || fail "there is no debootstrap: apt-get install debootstrap"
  debootstrap --variant=minbase "$suite" "$tree" >&2
fi
cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
mkdir -p "$tree/tmp/packages"
cp "$packages"/*.deb "$tree/tmp/packages/"
chmod -R a+rX "$tree/tmp/packages"

inside() { chroot "$tree" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash -euo pipefail -c "$1"; }
# Quietly, unless it fails.
apt() {
  inside "apt-get --quiet --yes -o APT::Sandbox::User=root -o Acquire::Retries=3 $*" >"$work/log" 2>&1 ||
    fail "apt-get $*: $(tail -n 20 "$work/log")"
}
ours() {
  inside "dpkg-query --show --showformat='\${Package} \${db:Status-Status}\n' '*bindery*'" 2>/dev/null |
    awk '$2 == "installed" { print $1 }'
}
# All files, links and folders with type, size and target; but for what apt and dpkg keep for themselves.
snapshot() {
  (cd "$tree" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log \
    -o -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp -o -path ./etc/ld.so.cache \) -prune \
    -o -printf '/%P\t%y\t%l\n' -type f -printf '/%P\t%s\n') | sort
}

say "a bare system: $(. "$tree/etc/os-release" && echo "$PRETTY_NAME"), $(inside 'dpkg-query --show' | wc -l) packages"
apt update
apt install --no-install-recommends /tmp/packages/*.deb
installed=$(ours | paste -sd ' ')
say "installed: $installed"

# --- the program, with nothing there but what the packages depend on
inside 'cd /tmp && bindery train --model mlp --train-digits 1000 --test-digits 200 --epochs 2 --checkpoints run \
  --progress none --save mlp.pb && bindery verify mlp.pb && bindery test --checkpoints run' >"$work/log" 2>&1 ||
  fail "the program: $(tail -n 20 "$work/log")"
say "the program trains: $(tail -n 1 "$work/log")"

# --- programs outside
apt install --no-install-recommends cmake g++ make pkg-config
inside 'cp -r /usr/share/doc/libbindery-dev/examples/outside /tmp/'
try() { # try WHAT: in its folder are the programs train, predict and predict_c
  inside "cd $2 && ./train own.pb && ./predict own.pb 1,28,28 && ./predict_c own.pb 1,28,28" >"$work/log" 2>&1 ||
    fail "programs built by $1: $(tail -n 20 "$work/log")"
  say "programs built by $1 run: $(grep right "$work/log")"
}
inside 'cd /tmp/outside && cmake -S . -B build && cmake --build build' >"$work/log" 2>&1 ||
  fail "CMake: $(tail -n 20 "$work/log")"
try CMake /tmp/outside/build
inside 'cd /tmp/outside && mkdir by_hand &&
  g++ -O2 -std=c++20 train.cc -o by_hand/train $(pkg-config --cflags --libs bindery) &&
  g++ -O2 -std=c++20 predict.cc -o by_hand/predict $(pkg-config --cflags --libs bindery-predict) &&
  gcc -O2 predict_c.c -o by_hand/predict_c $(pkg-config --cflags --libs bindery-predict) -lm' >"$work/log" 2>&1 ||
  fail "g++ with pkg-config: $(tail -n 20 "$work/log")"
try "g++ with pkg-config" /tmp/outside/by_hand

# --- away again: what they had goes, and nothing else
# shellcheck disable=SC2086
inside "dpkg -L $installed" | grep '^/' | sort -u >"$work/listed"
snapshot >"$work/with"
apt remove libbindery-predict0
[ -z "$(ours)" ] || fail "still there: $(ours | paste -sd ' ')"
snapshot >"$work/without"
comm -13 "$work/with" "$work/without" >"$work/came"
[ ! -s "$work/came" ] || fail "the removal makes or changes: $(head -n 5 "$work/came")"
comm -23 "$work/with" "$work/without" | cut -f 1 | sort -u >"$work/gone"
others=$(comm -23 "$work/gone" "$work/listed" | head -n 5)
[ -z "$others" ] || fail "the removal takes away what the packages do not have: $others"
left=$(cut -f 1 "$work/without" | grep -i bindery | head -n 5) || true
[ -z "$left" ] || fail "left behind: $left"
say "removed without a trace: $(wc -l <"$work/gone") files, links and folders"
