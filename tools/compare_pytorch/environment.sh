# Sourced by scripts that compare with PyTorch: `find_python WHO PACKAGE...` sets $python to an interpreter that can import
# the packages. That is the one that the environment variable PYTHON names, or one in an environment of its own in the
# user's cache folder, where they are installed the first time. Nothing else needs it.
find_python() {
  local who=$1 environment=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bindery-pytorch
  shift
  local -a packages=("$@")
  local modules
  modules=$(IFS=,; echo "${packages[*]}")
  python=${PYTHON:-$environment/bin/python}
  usable() { "$python" -c "import $modules" 2>/dev/null; }
  if [ -z "${PYTHON:-}" ] && ! usable; then
    echo "$who: installing ${packages[*]} into $environment" >&2
    [ -x "$environment/bin/python" ] || python3 -m venv "$environment" || {
      echo "$who: python3 -m venv failed; on Debian: apt-get install python3-venv" >&2
      exit 1
    }
    # PyTorch's own index has builds without CUDA, far smaller; pip prefers them to the registry's, and takes those where
    # the index cannot be reached (which must not be tried five times for each package).
    "$python" -m pip install --quiet --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu "${packages[@]}" >&2
  fi
  usable || {
    echo "$who: $python cannot import $modules" >&2
    exit 1
  }
}
