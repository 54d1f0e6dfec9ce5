// Links in docs/ lead somewhere, every page is in the book, and lines are no longer than a terminal shows. The tests that
// docs/ names as proofs are there, docs/group.md names each published expectation, and docs/features.md each row of what
// training rules are, and excerpts are of the files that they name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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
  static const std::regex kName(R"(`(?:tests/|//tests/)?([A-Z]\w*\.(?:\w+|\*)|[a-z_/:]+_test)(?:\.cc)?`)");
  int named = 0;
  for (const SourceFile& file : ReadDocs()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      for (std::sregex_iterator at(line.begin(), line.end(), kName); at != std::sregex_iterator(); ++at) {
        std::string name = (*at)[1];
        std::ranges::replace(name, ':', '/');  // //tests/train/loop:loop_test
        EXPECT_TRUE(Tests().contains(name)) << file.path << ":" << i + 1 << " names a test " << (*at)[0];
        ++named;
      }
    }
  }
  EXPECT_GT(named, 100);
}

// Where a heading is found: lower case, no punctuation, blanks as hyphens.
std::string AnchorOf(const std::string& heading) {
  std::string anchor;
  for (const char c : heading.substr(heading.find_first_not_of("# "))) {
    if (c == ' ') anchor += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') {
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return anchor;
}

std::set<std::string> Anchors(const SourceFile& file) {
  std::set<std::string> anchors;
  for (const std::string& line : file.lines) {
    if (line.starts_with("#")) anchors.insert(AnchorOf(line));
  }
  return anchors;
}

TEST(Docs, LinksLeadSomewhere) {
  namespace fs = std::filesystem;
  static const std::regex kLink(R"(\]\(([^)#:]*)(#([^)]*))?\))");
  const fs::path root = fs::path(std::getenv("TEST_SRCDIR")) / std::getenv("TEST_WORKSPACE");
  const std::vector<SourceFile> docs = ReadDocs();
  std::map<std::string, std::set<std::string>> anchors;
  for (const SourceFile& file : docs) anchors[file.path] = Anchors(file);
  int links = 0;
  for (const SourceFile& file : docs) {
    bool code = false;
    for (const std::string& line : file.lines) {
      if (line.starts_with("```")) code = !code;
      if (code) continue;
      for (std::sregex_iterator at(line.begin(), line.end(), kLink); at != std::sregex_iterator(); ++at, ++links) {
        const fs::path folder = fs::path(file.path).parent_path();
        const std::string to =
            (*at)[1].length() == 0 ? file.path : (folder / (*at)[1].str()).lexically_normal().string();
        EXPECT_TRUE(fs::exists(root / to)) << file.path << " leads to " << to;
        if ((*at)[3].length() > 0) {
          EXPECT_TRUE(anchors[to].contains((*at)[3])) << file.path << " leads to " << to << ", " << (*at)[3];
        }
      }
    }
  }
  EXPECT_GT(links, 150);
}

// docs/README.md is the table of contents.
TEST(Docs, EveryPageIsInTheBook) {
  std::string contents;
  for (const SourceFile& file : ReadDocs()) {
    if (file.path != "docs/README.md") continue;
    for (const std::string& line : file.lines) contents += line + "\n";
  }
  for (const SourceFile& file : ReadDocs()) {
    if (!file.path.starts_with("docs/") || file.path == "docs/README.md") continue;
    EXPECT_NE(contents.find("(" + file.path.substr(5) + ")"), std::string::npos) << file.path;
  }
}

std::string WithoutBlanks(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

std::string TextOf(const std::string& path) {
  std::string text;
  for (const SourceFile& file : ReadSourceTree()) {
    if (file.path != path) continue;
    for (const std::string& line : file.lines) text += line;
  }
  return text;
}

// Blocks ```cpp excerpt: what is there below a line `// FILE` or `// FILE: words` is in that file. (Other blocks ```cpp
// are compiled by tests/docs.)
TEST(Docs, ExcerptsAreOfTheirFiles) {
  static const std::regex kFile(R"(// ([\w/]+\.(?:h|cc))(:.*)?)");
  int found = 0;
  for (const SourceFile& page : ReadDocs()) {
    bool excerpt = false;
    std::string file, part;
    const auto check = [&] {
      if (part.empty()) return;
      EXPECT_NE(WithoutBlanks(TextOf(file)).find(part), std::string::npos)
          << page.path << ": not in " << file << ": " << part;
      part.clear();
      ++found;
    };
    for (const std::string& line : page.lines) {
      std::smatch match;
      if (line.starts_with("```")) {
        check();
        excerpt = line == "```cpp excerpt";
      } else if (excerpt && std::regex_match(line, match, kFile)) {
        check();
        file = match[1];
      } else if (excerpt) {
        part += WithoutBlanks(line);
      }
    }
  }
  EXPECT_EQ(found, 5);
}

// Characters of UTF-8.
size_t Columns(const std::string& line) {
  return static_cast<size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; }));
}

// Of prose and of code. A row of a table is one line, and nothing can be broken of a link; docs/operators.md is printed
// by the program (CommandsTest.DescribesOperatorsAsTheDocumentationHasThem).
TEST(Docs, LinesAreNoLongerThan100Columns) {
  static const std::regex kLink(R"(\s*([*-] )?!?\[[^\]]*\]\([^)]*\)[.,;:]?)");
  int pages = 0;
  for (const SourceFile& file : ReadDocs()) {
    if (file.path != "README.md" && !file.path.starts_with("docs/")) continue;
    if (file.path == "docs/operators.md") continue;
    ++pages;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      if (line.starts_with("|") || std::regex_match(line, kLink)) continue;
      EXPECT_LE(Columns(line), 100u) << file.path << ":" << i + 1 << ": " << line;
    }
  }
  EXPECT_GT(pages, 30);
}

// The cells of a table's row.
std::vector<std::string> CellsOf(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t at = 2, end = 0; (end = line.find(" |", at)) != std::string::npos; at = std::min(end + 3, line.size())) {
    cells.push_back(line.substr(at, end - at));
  }
  return cells;
}

// The rows of the table of docs/cuda.md.
std::vector<std::vector<std::string>> KernelsForGpus() {
  std::vector<std::vector<std::string>> rows;
  for (const SourceFile& file : ReadDocs()) {
    if (file.path != "docs/cuda.md") continue;
    bool is_table = false;
    for (const std::string& line : file.lines) {
      if (is_table && line.starts_with("| ")) rows.push_back(CellsOf(line));
      is_table = line.starts_with("| operators | kernels |") || (is_table && line.starts_with("|"));
    }
  }
  return rows;
}

void AddNames(const std::string& text, const std::regex& name, std::set<std::string>* names) {
  for (std::sregex_iterator at(text.begin(), text.end(), name); at != std::sregex_iterator(); ++at) {
    EXPECT_TRUE(names->insert((*at)[1]).second) << (*at)[1] << " is there twice";
  }
}

// Operators: the kernels of the tables in executor/kernels/cuda, and the functions of numbers; in chains are those that
// NVRTC's kernels are made of. In the rows of what is no operator: the engine's kernels, and that of chains.
TEST(Docs, NameEveryKernelForGpus) {
  static const std::regex kEntry(R"re(\{"(\w+)", (?:OfFloats<)?Make)re"), kFunction(R"re(Function<"([A-Z]\w*)")re"),
      kLink(R"re(op == "(\w+)")re"), kKernel(R"re( kName = "(\w+)")re"), kName(R"(`(\w+)`)");
  std::set<std::string> kernels, links, others;
  for (const SourceFile& file : ReadSourceTree()) {
    const bool is_table = file.path.starts_with("executor/kernels/cuda/") && file.path.ends_with(".cc");
    const bool is_other = file.path.starts_with("engine/cuda/") || file.path == "executor/kernels/cuda/fused_args.h";
    for (const std::string& line : file.lines) {
      if (is_table) AddNames(line, kEntry, &kernels);
      if (is_other) AddNames(line, kKernel, &others);
      if (file.path == "executor/kernels/cuda/fused.cc") AddNames(line, kLink, &links);
      if (file.path != "executor/kernels/functions.h") continue;
      AddNames(line, kFunction, &kernels);
      if (line.find("kTruth") == std::string::npos && line.find("kIntegersOnly") == std::string::npos) {
        AddNames(line, kFunction, &links);
      }
    }
  }
  std::set<std::string> named, chained, named_others;
  for (const std::vector<std::string>& row : KernelsForGpus()) {
    ASSERT_EQ(row.size(), 7u) << row[0];
    const bool is_operator = row[0].starts_with("`");
    if (is_operator) AddNames(row[0], kName, &named);
    if (is_operator && row[4].find("in chains") != std::string::npos) AddNames(row[0], kName, &chained);
    if (!is_operator) AddNames(row[1], kName, &named_others);
  }
  EXPECT_GT(kernels.size(), 150u);
  EXPECT_EQ(named, kernels);
  EXPECT_EQ(chained, links);
  EXPECT_EQ(named_others, others);
}

// Each row says whose code it is, how it is tested and whether it has run. Tests of operators without a suite are
// CudaOperatorsTest's; those with one are looked for as everywhere.
TEST(Docs, SayHowEveryKernelForGpusIsTested) {
  static const std::regex kBy("own (kernels?|code)|driver's copy|cuBLASLt|cuDNN|NCCL");
  for (const std::vector<std::string>& row : KernelsForGpus()) {
    ASSERT_EQ(row.size(), 7u) << row[0];
    for (const std::string& cell : row) EXPECT_FALSE(cell.empty()) << row[0];
    EXPECT_TRUE(std::regex_search(row[2], kBy)) << row[2];
    int of_operators = 0;
    std::istringstream tests(row[5]);
    for (std::string test; std::getline(tests >> std::ws, test, ',');) {
      if (test.starts_with("`")) continue;
      EXPECT_TRUE(Tests().contains("CudaOperatorsTest." + test)) << row[0] << ": " << test;
      ++of_operators;
    }
    EXPECT_EQ(of_operators > 0, row[0].starts_with("`")) << row[0];
    EXPECT_TRUE(row[6] == "yes" || row[6] == "no") << row[6];
  }
}

// The list of variables of the environment is what the sources read, and the page names all of it.
TEST(Docs, NameEveryVariableOfTheEnvironment) {
  static const std::regex kName(R"re("(BINDERY_[A-Z0-9_]*[A-Z0-9])")re");
  std::set<std::string> read, listed;
  for (const SourceFile& file : ReadSourceTree()) {
    if (file.path.starts_with("tests/") || !(file.path.ends_with(".cc") || file.path.ends_with(".h"))) continue;
    std::set<std::string>& names = file.path == "tools/cli/environment.cc" ? listed : read;
    for (const std::string& whole : file.lines) {
      const std::string line = whole.substr(0, whole.find("//"));  // comments have examples
      for (std::sregex_iterator at(line.begin(), line.end(), kName); at != std::sregex_iterator(); ++at) {
        names.insert((*at)[1]);
      }
    }
  }
  EXPECT_EQ(listed, read);
  EXPECT_GE(read.size(), 6u);
  std::string page;
  for (const SourceFile& file : ReadDocs()) {
    if (file.path != "docs/command_line.md") continue;
    for (const std::string& line : file.lines) page += line + "\n";
  }
  for (const std::string& name : listed) EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << name;
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

// Rows of docs/features.md: numbers, some of them ranges, requirements and expectations, each in a row with a test.
TEST(Docs, AnswerEveryRowOfTrainingRules) {
  static const std::regex kRow(R"(^\| ([A-Z0-9., -]+) \| (.+) \| (.+) \| (.+) \| (.+) \|$)"), kRange(R"((\d+)-(\d+))");
  std::set<std::string> answered;
  for (const SourceFile& file : ReadDocs()) {
    if (file.path != "docs/features.md") continue;
    std::smatch match, range;
    for (const std::string& line : file.lines) {
      if (!std::regex_match(line, match, kRow)) continue;
      EXPECT_NE(match[5].str().find('`'), std::string::npos) << "no test in " << line;
      EXPECT_EQ(match[4].str().find("not yet"), std::string::npos) << line;
      std::istringstream keys(match[1]);
      for (std::string key; std::getline(keys >> std::ws, key, ',');) {
        if (!std::regex_match(key, range, kRange)) {
          answered.insert(key);
          continue;
        }
        for (int i = std::stoi(range[1]); i <= std::stoi(range[2]); ++i) answered.insert(std::to_string(i));
      }
    }
  }
  const auto expect = [&](const std::string& kind, const std::set<int>& numbers) {
    for (const int number : numbers) {
      EXPECT_TRUE(answered.contains(kind + std::to_string(number))) << kind << number << " has no row";
    }
  };
  const auto numbers = [](int last) {
    std::set<int> all;
    for (int i = 1; i <= last; ++i) all.insert(i);
    return all;
  };
  expect("", numbers(85));
  expect("R", numbers(26));
  expect("A", {1});
  expect("C", {1, 2, 3, 4, 5});
  expect("D", {1, 2});
  expect("T", {1, 2, 3, 4, 5});
  expect("E", {37, 38, 39});
}

}  // namespace
}  // namespace bindery
