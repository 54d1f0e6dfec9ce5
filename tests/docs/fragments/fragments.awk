# What tests include of pages: each block ```cpp or ```c as a function of the page's namespace, page_NAME::LineN, or as
# it is where it defines functions itself; page_NAME::RunAll calls the former. Lines of dots alone, and those that
# include a header, are left out. The compiler's messages name the page's lines.
function close_page() {
  if (page != "") printf "namespace page_%s {\ninline void RunAll() {%s }\n}\n", page, calls
  calls = ""
}
FNR == 1 {
  close_page()
  page = FILENAME
  sub(/.*\//, "", page)
  sub(/\.md$/, "", page)
}
!inside && /^ *```(cpp|c)$/ {
  inside = 1
  text = ""
  defines = 0
  indent = index($0, "`") - 1
  first = FNR + 1
  next
}
inside && /^ *```$/ {
  inside = 0
  printf "namespace page_%s {\n", page
  if (!defines) printf "inline void Line%d() {\n", first
  printf "#line %d \"docs/%s.md\"\n%s%s\n", first, page, text, defines ? "}" : "}}"
  if (!defines) calls = calls " Line" first "();"
  next
}
inside {
  line = substr($0, indent + 1)
  if (line ~ /^namespace|^[A-Za-z_:<>&*, ]*[A-Za-z>&*] [A-Za-z]+\([^[\]=]*\) \{/) defines = 1  # int Name(arguments) {
  text = text (line ~ /^ *\.\.\.$|^#include/ ? "" : line) "\n"
}
END { close_page() }
