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

// The table of docs/cuda.md: the kernels of the tables in executor/kernels/cuda, and the functions of numbers.
TEST(Docs, NameEveryKernelForGpus) {
  static const std::regex kEntry(R"re(\{"(\w+)", Make)re"), kFunction(R"re(Function<"([A-Z]\w*)")re");
  static const std::regex kName(R"(`(\w+)`)");
  const auto add = [](const std::string& text, const std::regex& name, std::set<std::string>* names) {
    for (std::sregex_iterator at(text.begin(), text.end(), name); at != std::sregex_iterator(); ++at) {
      EXPECT_TRUE(names->insert((*at)[1]).second) << (*at)[1] << " is there twice";
    }
  };
  std::set<std::string> kernels, named;
  for (const SourceFile& file : ReadSourceTree()) {
    const bool is_table = file.path.starts_with("executor/kernels/cuda/") && file.path.ends_with(".cc");
    for (const std::string& line : file.lines) {
      if (is_table) add(line, kEntry, &kernels);
      if (file.path == "executor/kernels/functions.h") add(line, kFunction, &kernels);
    }
  }
  for (const SourceFile& file : ReadDocs()) {
    if (file.path != "docs/cuda.md") continue;
    for (const std::string& line : file.lines) {
      if (line.starts_with("| `")) add(line.substr(0, line.find(" | ")), kName, &named);
    }
  }
  EXPECT_GT(kernels.size(), 150u);
  EXPECT_EQ(named, kernels);
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
