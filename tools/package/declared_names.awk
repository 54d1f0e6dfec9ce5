# Lists what headers declare in namespaces: a line for each class and function, qualified, as "bindery::Trainer" or
# "bindery::rule::SameDType". It reads the project's own style: what a namespace declares begins in the first column.
# Of C headers it lists the functions. A template that a header only declares is marked by " template": its instances are
# the library's. With -v only=types: the classes that are defined there, but no templates.

function declare(name) {
  sub(/\[.*/, "", name)
  if (only == "types" && (of_template || !/^(class|struct|union) / || /;$/)) name = ""
  if (depth > 0 && name != "") print spaces[depth] "::" name (of_template && /;$/ ? " template" : "")
  if (depth == 0 && name ~ /^bindery_/) print name
  of_template = 0
}

# What stands before the first character of `stops` outside of <> and () and its last word, which is the name declared.
function declared_before(text, stops,    i, c, level, last) {
  level = 0
  for (i = 1; i <= length(text); ++i) {
    c = substr(text, i, 1)
    if (level == 0 && index(stops, c)) break
    if (c == "<" || c == "(") ++level
    if ((c == ">" && last != "-") || c == ")") --level
    last = c
  }
  if (i > length(text)) return ""
  text = substr(text, 1, i - 1)
  sub(/[ \t]+$/, "", text)
  sub(/.*[ *&]/, "", text)
  return text
}

FNR == 1 { depth = in_body = 0 }

/^(inline )?namespace [A-Za-z]/ {
  name = $0
  sub(/^(inline )?namespace /, "", name)
  sub(/ .*/, "", name)
  ++depth
  spaces[depth] = (depth > 1 ? spaces[depth - 1] "::" : "") name
  next
}
/^namespace \{/ { print FILENAME ": a public header has an unnamed namespace" > "/dev/stderr"; exit 1 }
# What begins in the first column and has a body ends there, too; what else ends there is a namespace.
!/^\/\// && /{[ \t]*(\/\/.*)?$/ { in_body = 1 }
/^}/ {
  if (!in_body && depth > 0) --depth
  in_body = 0
  next
}

/^  friend [^;]*\(/ && !/^  friend (class|struct) / { sub(/^  friend /, "") }
/^template/ {
  of_template = 1
  next
}
/^[^A-Za-z[]/ || /^$/ || /^(requires|using|extern "C"|typedef)/ { next }
{
  sub(/[ \t]*\/\/.*/, "")
  gsub(/\[\[[^\]]*\]\] */, "")
  sub(/decltype\(auto\)/, "auto")
  sub(/alignas\([^)]*\) /, "")
}
/^(class|struct|union) / {
  split($0, words, /[ :;{<]+/)
  declare(words[2])
  next
}
/^enum / { next }
/operator[^A-Za-z_ ]+\(/ {
  match($0, /operator(\(\)|[^A-Za-z_ (]+)/)
  declare(substr($0, RSTART, RLENGTH))
  next
}
{
  name = declared_before($0, "(")
  if (name == "") name = declared_before($0, "{=;")
  declare(name)
}
