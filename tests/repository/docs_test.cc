// The tests that docs/ names as proofs are there, and docs/group.md names each published expectation.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "tests/repository/source_tree.h"

namespace bindery {
namespace {

// Suite.Test and Suite.* of all tests, and folder/file_test of all their files.
const std::set<std::string>& Tests() {
  static const std::set<std::string> kTests = [] {
    static const std::regex kTest(R"(^TEST(_[FP])?\((\w+), (\w+)\).*)"), kFile(R"(tests/(.*_test)\.cc)");
    std::set<std::string> tests;
    std::smatch match;
    for (const SourceFile& file : ReadSourceTree()) {
      if (!std::regex_match(file.path, match, kFile)) continue;
      tests.insert(match[1]);
      tests.insert(match[1].str().substr(match[1].str().rfind('/') + 1));
      for (const std::string& line : file.lines) {
        if (!std::regex_match(line, match, kTest)) continue;
        tests.insert(match[2].str() + "." + match[3].str());
        tests.insert(match[2].str() + ".*");
      }
    }
    return tests;
  }();
  return kTests;
}

TEST(Docs, NameTestsThatExist) {
  static const std::regex kName(R"(`(?:tests/)?([A-Z]\w*\.(?:\w+|\*)|[a-z_/]+_test)(?:\.cc)?`)");
  int named = 0;
  for (const SourceFile& file : ReadDocs()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      for (std::sregex_iterator at(line.begin(), line.end(), kName); at != std::sregex_iterator(); ++at) {
        EXPECT_TRUE(Tests().contains((*at)[1])) << file.path << ":" << i + 1 << " names a test " << (*at)[0];
        ++named;
      }
    }
  }
  EXPECT_GT(named, 100);
}

TEST(Docs, AnswerEveryPublishedExpectation) {
  static const std::regex kRow(R"(^\| ((E\d+)(, (E\d+))?) \| .+ \| .+ \|$)");
  std::set<std::string> answered;
  for (const SourceFile& file : ReadDocs()) {
    if (file.path != "docs/group.md") continue;
    std::smatch match;
    for (const std::string& line : file.lines) {
      if (!std::regex_match(line, match, kRow)) continue;
      answered.insert(match[2]);
      if (match[4].matched) answered.insert(match[4]);
    }
  }
  for (int i = 1; i <= 48; ++i) EXPECT_TRUE(answered.contains("E" + std::to_string(i))) << "E" << i;
}

}  // namespace
}  // namespace bindery
