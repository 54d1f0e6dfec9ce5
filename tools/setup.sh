#!/bin/bash
# Installs what the build needs on Debian 12, with apt-get; with --tests what compiles tests, too. Does nothing,
# quickly, when everything is there. With --versions installs nothing: prints which versions there are of compilers and
# of what they read (tools/bazel).
set -euo pipefail

versions=no
if [ "${1:-}" = --versions ]; then
  versions=yes
  shift
fi

# Package and what it is for.
packages='
abigail-tools       tests: the binary interface
bazel-bootstrap     the build system
bazel-platforms     rules that the build system would otherwise download
bazel-rules-java    rules that the build system would otherwise download
bazel-rules-proto   rules that the build system would otherwise download
cmake               tests: programs outside the tree
dpkg-dev            Debian packages
g++                 the compiler
libcli11-dev        command line options
libcpp-httplib-dev  examples: the server
libdnnl-dev         oneDNN: the kernels for CPUs
libfmt-dev          formatted messages
libgmock-dev        tests
libgtest-dev        tests
libonnx-testdata    tests: expected results of operators
libpng-dev          PNG images
libprotobuf-dev     model files
libspdlog-dev       the log of the command line program
libturbojpeg0-dev   JPEG images
libxxhash-dev       checksums
make                tests: programs outside the tree
nlohmann-json3-dev  JSON
patchelf            bundles: programs that find their libraries beside themselves
pkg-config          tests: programs outside the tree
protobuf-compiler   model files
strace              tests: system calls that fail
xz-utils            bundles: archives
zlib1g-dev          compressed data sets
'
if [ "${1:-}" = --tests ]; then
  packages+='clang-16            the compiler of tests, and of all under sanitizers
libclang-rt-16-dev  what runs with sanitizers
lld-16              its linker
openmpi-bin         tests: several processes
'
fi

if [ $versions = yes ]; then
  read_by_compilers='g++-12 libc6-dev libstdc++-12-dev linux-libc-dev protobuf-compiler'
  pattern='^(lib.*|zlib1g|nlohmann-json3)-dev$'
  if [ "${1:-}" = --tests ]; then
    read_by_compilers+=' clang-16'
  else
    packages=$(awk '$2 !~ /^tests/' <<<"$packages")
  fi
  # shellcheck disable=SC2046,SC2086
  dpkg-query --show --showformat='${Package} ${Version}\n' $read_by_compilers \
    $(awk -v pattern="$pattern" '$1 ~ pattern { print $1 }' <<<"$packages") 2>/dev/null || true
  exit
fi

fail() {
  echo "setup: $*" >&2
  exit 1
}

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  fail "this is not a Debian system (no apt-get). Install the equivalents of these packages yourself:$packages"

names=$(awk '{ print $1 }' <<<"$packages")
# dpkg-query fails when it does not know a package; the list of installed ones is what counts.
# shellcheck disable=SC2086
installed=$(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' $names 2>/dev/null |
  awk '$2 == "installed" { print $1 }') || true
missing=$(awk 'NR == FNR { have[$1] = 1; next } NF && !($1 in have)' <(echo "$installed") <(echo "$packages"))
[ -n "$missing" ] || exit 0

id=$(. /etc/os-release && echo "$ID $VERSION_ID") 2>/dev/null || id=unknown
[ "$id" = "debian 12" ] || echo "setup: made for Debian 12, this is $id; trying all the same" >&2

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || fail "neither root nor sudo. Ask an administrator to install:
$missing"
  as_root=(sudo)
fi

echo "setup: installing with ${as_root[*]:+${as_root[*]} }apt-get:" >&2
echo "$missing" >&2
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes
  -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
"${apt[@]}" update >&2 </dev/null || fail "apt-get update failed"
# shellcheck disable=SC2046
"${apt[@]}" install --no-install-recommends $(awk '{ print $1 }' <<<"$missing") >&2 </dev/null ||
  fail "apt-get install failed; its messages are above"
