# shellcheck shell=bash
# Prints a number of the version in a file: MAJOR, MINOR, PATCH, or ABI, which libraries' names end in.
number() { awk -v name="BINDERY_VERSION_$1" '$1 == "#define" && $2 == name { print $3 }' "${2:-$root/bindery/version.h}"; }

# Reads the options of a script, which sources it and has two functions: usage prints its help, and fail prints what is
# wrong, as its last act.
#
#   root=... output=. program_only=
#   source "$root/tools/options.sh"
#   read_options "output built" "program-only" "$@"
#
# The first list is of options with a value, --output FILE or --output=FILE, which is given to the variable $output; the
# second of those without, for which $program_only becomes yes. Variables of what is not said stay as they are. --help
# prints the help and ends the script.
read_options() {
  local values=" $1 " flags=" $2 " name
  shift 2
  while [ $# -gt 0 ]; do
    name=${1%%=*}
    name=${name#--}
    if [[ $1 == --help || $1 == -h ]]; then
      usage
      exit
    elif [[ $1 == --?* && $values == *" $name "* ]]; then
      [[ $1 != *=* ]] || set -- "--$name" "${1#*=}" "${@:2}"
      [ -n "${2-}" ] || fail "$1 needs a value"
      printf -v "${name//-/_}" %s "${2/#~\//~/}" # no shell expands ~/ behind a =
      shift 2
    elif [[ $1 == --?* && $1 != *=* && $flags == *" $name "* ]]; then
      printf -v "${name//-/_}" %s yes
      shift
    else
      usage >&2
      fail "unknown option $1"
    fi
  done
}
