# Picks the symbols of what headers declare. First file: what declared_names.awk lists. Second: a symbol a line, as nm's
# type, mangled and demangled, with a tab between. Prints the mangled ones. Inline functions and instances of templates
# are left out where headers define them, as programs have their own.

# Signs of operators are no brackets.
function without_signs(text,    signs) {
  if (!match(text, /operator(\(\)|[^A-Za-z_ (]+)/)) return text
  signs = substr(text, RSTART + 8, RLENGTH - 8)
  gsub(/</, "l", signs)
  gsub(/>/, "g", signs)
  gsub(/[()]/, "c", signs)
  return substr(text, 1, RSTART + 7) signs substr(text, RSTART + RLENGTH)
}

# The qualified name in a demangled symbol: without what the compiler made of it, without return type and arguments.
function qualified_name(text,    i, c, level, start, n) {
  if (text ~ /^construction vtable for /) return ""
  sub(/^(vtable|VTT|typeinfo|typeinfo name|guard variable|TLS init function|TLS wrapper function) for /, "", text)
  sub(/^(non-virtual thunk|virtual thunk|covariant return thunk) to /, "", text)
  text = without_signs(text)
  sub(/::operator /, "::operator_", text)
  start = 1
  level = 0
  n = length(text)
  for (i = 1; i <= n; ++i) {
    c = substr(text, i, 1)
    if (c == ">" || c == ")") --level
    if (level == 0 && c == " ") start = i + 1
    if (level == 0 && c == "(") break
    if (c == "<" || c == "(") ++level
  }
  text = substr(text, start, i - start)
  sub(/[<[].*/, "", text)
  return text
}

BEGIN { FS = "\t" }
NR == FNR {
  instantiated = sub(/ template$/, "", $1)
  declared[without_signs($1)] += instantiated  # 0: there, but not so
  next
}
index($3, "bindery") {
  n = split(qualified_name($3), parts, "::")
  name = ""
  for (i = 1; i <= n; ++i) {
    name = i == 1 ? parts[1] : name "::" parts[i]
    if (name in declared) {
      if ($1 != "W" || declared[name]) print $2
      break
    }
  }
}
