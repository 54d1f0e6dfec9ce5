// Every option of every command is used by a test of this folder, and every exit status is reached by one. Which there
// are, the program says itself; what tests do is read from their sources: an option counts where one test, with what
// stands before the first of its file, names both the command and the option, other than in commands that are refused.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/tools/program.h"

namespace bindery {
namespace {

// A test's source, or a part of the manual page without its escapes.
class EveryOptionTest : public ProgramTest {
 protected:
  static std::vector<std::filesystem::path> Sources() {
    const std::string folder =
        std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/tests/tools";
    std::vector<std::filesystem::path> sources;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (name.ends_with("_test.cc") && name != "every_option_test.cc") sources.push_back(entry.path());
    }
    return sources;
  }
  static std::string Text(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // Each test with what its file has before the first.
  static Words TestsOf(const std::string& text) {
    static const std::regex kTest("\nTEST(_F)?\\(");
    std::vector<size_t> begins;
    for (std::sregex_iterator at(text.begin(), text.end(), kTest), end; at != end; ++at) {
      begins.push_back(static_cast<size_t>(at->position()));
    }
    Words tests;
    for (size_t i = 0; i < begins.size(); ++i) {
      const size_t end = i + 1 < begins.size() ? begins[i + 1] : text.size();
      tests.push_back(text.substr(0, begins[0]) + text.substr(begins[i], end - begins[i]));
    }
    return tests;
  }
  // Behind the literal that begins at `at`, or behind that character, if none does.
  static size_t BehindLiteral(const std::string& text, size_t at) {
    if (text.compare(at, 2, "R\"") == 0) {
      const std::string end = ")" + text.substr(at + 2, text.find('(', at) - at - 2) + "\"";
      return text.find(end, at) + end.size();
    }
    const char quote = text[at];
    if (quote != '"' && quote != '\'') return at + 1;
    for (++at; at < text.size() && text[at] != quote; ++at) at += text[at] == '\\';
    return at + 1;
  }
  // Without the calls that expect a command to be refused: what they name is not used. A run that ends by values that
  // are not finite (7), below a bound (9) or by a signal (75) has used its options.
  static std::string WithoutRefused(const std::string& text) {
    static const std::regex kCall(R"(\bFails(With)?\([1-6],)");
    std::string kept;
    size_t from = 0;
    for (std::smatch match;
         std::regex_search(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), match, kCall);) {
      const size_t begin = from + static_cast<size_t>(match.position());
      kept += text.substr(from, begin - from);
      int depth = 0;
      from = text.find('(', begin);
      do {
        depth += text[from] == '(' ? 1 : text[from] == ')' ? -1 : 0;
        from = BehindLiteral(text, from);
      } while (depth > 0 && from < text.size());
    }
    return kept + text.substr(std::min(from, text.size()));
  }
  std::string Manual() const {
    const std::string page = std::regex_replace(Succeeds({"manual"}).out, std::regex(R"(\\f[BRI])"), "*");
    return std::regex_replace(page, std::regex(R"(\\([-&]))"), "$1");
  }
};

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(EveryOptionTest, IsUsedByATest) {
  // Those of wrong command lines do not count.
  Words tests;
  for (const auto& source : Sources()) {
    if (source.filename() == "usage_test.cc") continue;
    for (std::string& test : TestsOf(WithoutRefused(Text(source)))) tests.push_back(std::move(test));
  }
  ASSERT_GT(tests.size(), 50u);

  std::istringstream lines(Manual());
  const std::regex section("^\\.SS \"bindery ([a-z]+)"), option("--[a-z][-a-z0-9]*");
  std::string command;
  int options = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, section)) command = match[1];
    if (line.starts_with(".SH")) command.clear();
    if (command.empty() || !line.starts_with("*") || !Has(line, "--")) continue;
    Words names;
    for (std::sregex_iterator at(line.begin(), line.end(), option), end; at != end; ++at) {
      names.push_back(at->str());
    }
    ++options;
    // Every command has these three.
    const bool of_all = names[0] == "--help" || names[0] == "--config" || names[0] == "--log-level";
    const bool used = std::ranges::any_of(tests, [&](const std::string& test) {
      if (!of_all && !Has(test, "\"" + command + "\"") && !(command == "train" && Has(test, "Training("))) return false;
      return std::ranges::any_of(names, [&](const std::string& name) {
        return Has(test, "\"" + name + "\"") || Has(test, "\"" + name + "=");
      });
    });
    EXPECT_TRUE(used) << "no test uses " << names[0] << " of bindery " << command;
  }
  EXPECT_GT(options, 100);
}

TEST_F(EveryOptionTest, RefusedCommandsDoNotCount) {
  EXPECT_EQ(WithoutRefused(
                R"x(a; Fails(2, "\")", {f("--b"), ')', R"(")"}); c; Fails(0, "", {"--d"}); FailsWith(4, "--e");)x"),
            R"x(a; ; c; Fails(0, "", {"--d"}); ;)x");
}

TEST_F(EveryOptionTest, EveryExitStatusIsReachedByATest) {
  std::set<std::string> reached;
  for (const auto& source : Sources()) {
    const std::string text = Text(source);
    const std::regex expected(R"((Fails\(|status, |FailsWith\()([0-9]+)[,)])");
    for (std::sregex_iterator at(text.begin(), text.end(), expected), end; at != end; ++at) {
      reached.insert((*at)[2].str());
    }
    if (Has(text, "Succeeds(")) reached.insert("0");
  }
  const std::string manual = Manual();
  const std::string statuses = manual.substr(manual.find("Exit status:"));
  const std::regex number("[ \n]([0-9]+) [a-z]");
  int count = 0;
  for (std::sregex_iterator at(statuses.begin(), statuses.end(), number), end; at != end; ++at, ++count) {
    EXPECT_TRUE(reached.contains((*at)[1].str())) << "no test ends with status " << (*at)[1];
  }
  EXPECT_GE(count, 10);
}

}  // namespace
}  // namespace bindery
