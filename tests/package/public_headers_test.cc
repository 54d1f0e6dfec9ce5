// The public headers: which they are, and that they need nothing that is not installed with them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "tests/package/installation.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class PublicHeaders : public Installation {};

Names HeadersIn(const std::string& text, const std::regex& include) {
  Names headers;
  for (std::sregex_iterator at(text.begin(), text.end(), include); at != std::sregex_iterator(); ++at) {
    headers.insert((*at)[1]);
  }
  return headers;
}

Names ListedHeaders() {
  Names listed;
  for (const std::string& line : LinesOf(ReadText(Root() + "/bindery/headers.txt"))) {
    if (line.starts_with("#")) continue;
    EXPECT_TRUE(listed.insert(line).second) << line;
  }
  return listed;
}

TEST_F(PublicHeaders, AreListed) {
  static const std::regex kInclude("\n#include \"([^\"]+)\"");
  Names reached, next = {"bindery/bindery.h", "bindery/predict.h", "bindery/c_api.h"};
  while (!next.empty()) {
    const std::string header = *next.begin();
    next.erase(next.begin());
    if (!reached.insert(header).second) continue;
    next.merge(HeadersIn(ReadText(Root() + "/" + header), kInclude));
  }
  EXPECT_EQ(reached, ListedHeaders());
}

TEST_F(PublicHeaders, NameNothingThatIsNotThere) {
  static const std::regex kQuoted("\n#include \"([^\"]+)\""), kAngled("\n *#include <([^>]+)>");
  static const std::regex kStandard("[a-z_]+|std(int|def)\\.h|fmt/core\\.h");
  const fs::path include = prefix() + "/include";
  int headers = 0;
  for (const std::string& name : Tree(include)) {
    if (!name.ends_with(".h")) continue;
    ++headers;
    const std::string text = ReadText(include / name);
    for (const std::string& other : HeadersIn(text, kQuoted)) {
      EXPECT_TRUE(other.starts_with("bindery/") && fs::exists(include / other)) << name << " includes " << other;
    }
    for (const std::string& other : HeadersIn(text, kAngled)) {
      EXPECT_TRUE(std::regex_match(other, kStandard)) << name << " includes " << other;
    }
  }
  EXPECT_EQ(headers, static_cast<int>(ListedHeaders().size()));
}

// A header whose source file includes it first is compiled alone with every build; the others are here.
TEST_F(PublicHeaders, CompileAlone) {
  static const std::regex kFirst("(^|\n)#include ([\"<])([^\">]+)");
  Names alone = ListedHeaders();
  for (const std::string& name : Tree(Root())) {
    if (!name.ends_with(".cc") || name.starts_with("examples/")) continue;
    const std::string text = ReadText(Root() + "/" + name);
    std::smatch match;
    if (std::regex_search(text, match, kFirst) && match[2] == "\"") alone.erase(match[3]);
  }
  EXPECT_TRUE(alone.contains("bindery/bindery.h"));
  std::string files;
  for (const std::string& name : alone) {
    files += (name.starts_with("bindery/") ? "" : "bindery/") + name + "\n";
  }
  std::ofstream(Scratch() + "/alone") << files;
  Sh("xargs -P 2 -I {} sh -c \"echo '#include <{}>' | g++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only "
     "-I moved/include -x c++ - || { echo {}; exit 255; }\" < alone");
  for (const char* header : {"c_api.h", "dlpack.h"}) {
    Sh("echo '#include <bindery/" + std::string(header) +
       ">' | gcc -std=c99 -pedantic -Wall -Wextra -Werror -fsyntax-only -I moved/include -x c -");
  }
}

}  // namespace
}  // namespace bindery
