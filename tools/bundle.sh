#!/bin/bash
# Makes an archive of the program that runs on other machines: any Linux on x86-64 whose C library is not older than
# this one's. It holds the programs and the shared libraries they need, which they find beside themselves; what belongs
# to the machine stays there: the C library, and the driver and libraries of GPUs, which are opened when a GPU is asked
# for. With it go the tests of devices, the benchmarks, and gpu_check.sh, which runs them on a machine with a GPU.
set -euo pipefail
export LC_ALL=C
umask 022

usage() {
  cat <<'END'
usage: tools/bundle.sh [--output FILE] [--program-only] [--built DIR]

  --output FILE     default: bindery-VERSION-linux-x86_64.tar.xz, in the current folder
  --program-only    without tests and benchmarks: to deploy it
  --built DIR       take what is built from there (bazel-bin's content) and build nothing
END
}

fail() {
  echo "bundle: $*" >&2
  exit 1
}

root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/..")
output= program_only= built=
# shellcheck source=tools/options.sh
source "$root/tools/options.sh"
read_options "output built" "program-only" "$@"

programs=(tools/bindery)
[ -n "$program_only" ] || programs+=(tools/bench tests/gpu/device_tests)
if [ -z "$built" ]; then
  if [ -n "$program_only" ]; then "$root/tools/setup.sh"; else "$root/tools/setup.sh" --tests; fi
  targets=()
  for program in "${programs[@]}"; do targets+=("//${program%/*}:${program##*/}"); done
  (cd "$root" && tools/bazel build "${targets[@]}")
  built=$root/bazel-bin
fi
for tool in ldd patchelf strip xz; do
  command -v "$tool" >/dev/null || fail "there is no $tool; tools/setup.sh installs what is needed"
done
for program in "${programs[@]}"; do [ -x "$built/$program" ] || fail "$built/$program is not there"; done

version=$("$built/tools/bindery" --version) || fail "the program does not run here"
name=bindery-${version##* }-linux-x86_64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/$name
mkdir -p "$bundle/bin" "$bundle/lib"

# Libraries of the machine: the C library and the loader, which go together, and whatever a driver brings.
of_the_machine='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libcuda|libnvidia.*)[.]so'

for program in "${programs[@]}"; do
  install -m 755 "$built/$program" "$bundle/bin/"
done
mv "$bundle/bin/bench" "$bundle/bin/bindery-bench" 2>/dev/null || true
mv "$bundle/bin/device_tests" "$bundle/bin/bindery-device-tests" 2>/dev/null || true
needed=$(ldd "$bundle"/bin/*)
! grep 'not found' <<<"$needed" >&2 || fail "libraries are missing"
awk '$2 == "=>" { print $1, $3 }' <<<"$needed" | sort -u | while read -r library path; do
  [[ $library =~ $of_the_machine ]] || install -m 644 "$path" "$bundle/lib/$library"
done
strip --strip-unneeded "$bundle"/bin/* "$bundle"/lib/*
# The old form of a search path holds for the libraries of libraries, too.
for file in "$bundle"/bin/* "$bundle"/lib/*; do
  patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$file"
done

if [ -z "$program_only" ]; then
  install -m 755 "$root/tools/bundle/gpu_check.sh" "$bundle/"
  install -m 644 "$root"/tools/bundle/{gpu_trainings.sh,gpu_steps.sh,*.py} "$root/tools/compare_pytorch/networks.py" \
    "$root/tools/compare_peers/jax_networks.py" "$bundle/lib/"
fi
install -m 644 "$root/LICENSE" "$bundle/"

# Moved to another folder, with nothing of this one's environment, it finds its libraries in the bundle.
foreign=$(env -i ldd "$bundle"/bin/* | awk '$2 == "=>" { print $1, $3 }' | sort -u | while read -r library path; do
  [[ $library =~ $of_the_machine || $path == "$bundle"/* ]] || echo "$library ($path)"
done)
[ -z "$foreign" ] || fail "libraries from outside the bundle: $foreign"
env -i "$bundle/bin/bindery" --version >/dev/null || fail "the bundled program does not run"

libc=$(objdump -T "$bundle"/bin/* "$bundle"/lib/*.so* | grep -o 'GLIBC_[0-9.]*[0-9]' | sort -uV | tail -n 1)
output=${output:-$name.tar.xz}
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 "$name" |
  xz --threads=0 >"$work/archive"
most=$((50 * 1024 * 1024))
bytes=$(stat --format=%s "$work/archive")
[ "$bytes" -le "$most" ] || fail "the archive has $bytes bytes, more than $most"
install -m 644 "$work/archive" "$output"
echo "$output: $((bytes / 1024)) KiB; needs Linux on x86-64 with the C library ${libc/GLIBC_/glibc } or a newer one"
