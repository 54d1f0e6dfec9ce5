#!/usr/bin/awk -f
# Comments of a header as Doxygen wants them. In ours every comment is documentation: the first is about the file, one
# behind code is about that line, all others are about what follows.
BEGIN { first = 1 }

function indent(text) {
  match(text, /^ */)
  return RLENGTH
}

# Lines set in by more than one blank are programs and tables: Markdown's code is set in by four more.
function body(text) {
  sub(/^\/\/ ?/, "", text)
  if (text ~ /^  +[^ ]/) return "    " text
  gsub(/</, "\\&lt;", text)
  return text
}

{
  line = $0
  at = indent(line)
  text = substr(line, at + 1)
  if (text ~ /^\/\//) {
    if (first) print "/// \\file"
    first = 0
    # Below a comment behind code, and in line with it: its next line.
    if (behind && at + 1 == behind) {
      print substr(line, 1, at) "///< " body(text)
    } else {
      behind = 0
      print substr(line, 1, at) "/// " body(text)
    }
    next
  }
  if (match(line, / \/\/ /) && line !~ /^#/) {
    behind = RSTART + 1
    print substr(line, 1, RSTART) "///< " body(substr(line, behind))
    next
  }
  behind = 0
  print line
}
