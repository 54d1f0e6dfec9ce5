# Sourced by what compares with systems that come as Python packages. Neither build nor tests need any of them.
#
# `find_python SYSTEM [PACKAGE...]` sets $python to an interpreter that can import NumPy, the system, and the packages:
# the one that a variable with the system's name in capitals names (PYTORCH, MXNET), or that of an environment of its
# own in the user's cache folder, where they are installed the first time. Returns 1, and has said why, if it cannot.
find_python() {
  local system=$1 named=${1^^} environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-$1
  local versions="3.13 3.12 3.11 3.10 3" modules=$1 version
  local -a packages=("$1") options=()
  shift
  case $system in
    # Its own index has builds without CUDA, far smaller; pip prefers them to the registry's, and takes those where the
    # index cannot be reached (which must not be tried five times for each package).
    pytorch)
      modules=torch packages=(torch)
      options=(--retries 1 --extra-index-url https://download.pytorch.org/whl/cpu)
      ;;
    jax) versions="3.14 $versions" ;;
    # No longer maintained.
    mxnet) versions="3.11 3.10 3.9 3.8" packages=('numpy<1.24' mxnet==1.9.1) ;;
    nnabla) versions="3.10 3.9 3.8" packages=(nnabla==1.39.0) ;;
    chainer)
      versions="3.11 3.10 3.9 3.8"
      packages=('numpy<1.24' 'setuptools<60' wheel six filelock typing_extensions 'protobuf<3.21')
      ;;
    pillow) modules=PIL ;;
    safetensors) modules=safetensors,ml_dtypes packages=(safetensors ml_dtypes) ;;
  esac
  local package
  for package in "$@"; do modules+=,$package; done
  python=${!named:-$environment/bin/python}
  usable() { "$python" -W ignore -c "import numpy, $modules" 2>/dev/null; }
  ! usable || return 0
  if [ -z "${!named:-}" ]; then
    if [ ! -x "$python" ]; then
      for version in $versions; do
        if "python$version" -c 'import ensurepip, venv' 2>/dev/null; then break; fi
      done
      "python$version" -m venv "$environment" >&2 || {
        echo "$system needs a Python of version ${versions// / or } with venv (Debian's is python3-venv), or $named" \
          "to name one that has it" >&2
        return 1
      }
    fi
    echo "installing $system into $environment" >&2
    [[ " ${packages[*]}" == *" numpy<"* ]] || packages+=(numpy)
    "$python" -m pip install --quiet "${options[@]}" "${packages[@]}" "$@" >&2 || return 1
    if [ "$system" = chainer ]; then
      "$python" -m pip install --quiet --no-build-isolation --no-deps chainer==7.8.1 >&2 || return 1
    fi
    ! usable || return 0
  fi
  echo "$python cannot import numpy, ${modules//,/, }" >&2
  return 1
}
