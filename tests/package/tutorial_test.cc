// docs/tutorial.md, typed as it stands there, by somebody who has installed Bindery: every command succeeds, and prints
// what the page shows, but for the digits of numbers.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/package/installation.h"

namespace bindery {
namespace {

class Tutorial : public Installation {};

struct Step {
  std::string command;
  std::vector<std::string> printed;
};

// Commands of "console" blocks; other blocks are of what a test cannot type, or no commands.
std::vector<Step> StepsOf(const std::string& page) {
  std::vector<Step> steps;
  std::string block;
  for (const std::string& line : LinesOf(page)) {
    if (line.starts_with("```")) {
      block = block.empty() ? line : "";
    } else if (block == "```console" && !steps.empty() && steps.back().command.ends_with("\\")) {
      steps.back().command += "\n" + line;
    } else if (block == "```console" && line.starts_with("$ ")) {
      steps.push_back({line.substr(2), {}});
    } else if (block == "```console" && !steps.empty()) {
      steps.back().printed.push_back(line);
    }
  }
  return steps;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// What does not depend on the machine, nor on how wide it is shown: no digits, no marks of the best epoch, no blanks;
// lines that go on are one. Progress within an epoch is left out: it comes when that takes long.
std::vector<std::string> Comparable(const std::vector<std::string>& lines) {
  static const std::regex kProgress(R"(epoch \d+/\d+  batch .*)"), kBest(R"(  \(best.*\)$)"),
      kNumber(R"(-?\d+([.,:]\d+)*(e[-+]?\d+)?)"), kBlanks("[ \t]+"), kGoesOn("    .*|  (train|test): .*");
  std::vector<std::string> result;
  for (std::string line : lines) {
    if (std::regex_match(line, kProgress)) continue;
    const bool goes_on = !result.empty() && std::regex_match(line, kGoesOn);
    line = std::regex_replace(line, kBest, "");
    line = std::regex_replace(line, kNumber, "#");
    line = std::regex_replace(line, kBlanks, "");
    if (goes_on) {
      result.back() += line;
    } else if (!line.empty()) {
      result.push_back(line);
    }
  }
  return result;
}

// Of tests. They are about what they were: other processors add in another order.
std::vector<double> Accuracies(const std::vector<std::string>& lines) {
  static const std::regex kAccuracy(R"(test accuracy +(\d\.\d+)|samples: accuracy (\d\.\d+))");
  std::vector<double> result;
  for (const std::string& line : lines) {
    std::smatch match;
    if (std::regex_search(line, match, kAccuracy)) result.push_back(std::stod(match[1].matched ? match[1] : match[2]));
  }
  return result;
}

TEST_F(Tutorial, TypedAsItStands) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "half a minute of arithmetic, ten times as long under a sanitizer";
#endif
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  const std::string home = std::filesystem::canonical(Scratch()).string() + "/home";  // as programs print it
  std::filesystem::create_directories(home);
  std::filesystem::create_directory_symlink(prefix(), home + "/bindery");
  const std::vector<Step> steps = StepsOf(Replaced(ReadText(Root() + "/docs/tutorial.md"), "/home/you", home));
  ASSERT_GT(steps.size(), 15u);

  // One shell for all; each command's output in a file of its own.
  const auto out_of = [](size_t step) { return Scratch() + "/" + std::to_string(step) + ".out"; };
  std::string script = "export HOME='" + home + "' PATH='" + home + "/bindery/bin':$PATH\n";
  for (size_t i = 0; i < steps.size(); ++i) script += "{ " + steps[i].command + "; } > '" + out_of(i) + "' 2>&1\n";
  const Outcome outcome = Shell(script);
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_TRUE(std::filesystem::exists(out_of(i))) << "was not reached: $ " << steps[i].command << "\n" << outcome;
    const std::vector<std::string> lines = LinesOf(ReadText(out_of(i)));
    EXPECT_EQ(Comparable(lines), Comparable(steps[i].printed)) << "$ " << steps[i].command;
    const std::vector<double> now = Accuracies(lines), then = Accuracies(steps[i].printed);
    ASSERT_EQ(now.size(), then.size()) << "$ " << steps[i].command;
    for (size_t k = 0; k < now.size(); ++k) EXPECT_NEAR(now[k], then[k], 0.2) << "$ " << steps[i].command;
  }
  EXPECT_EQ(outcome.status, 0) << outcome;
}

}  // namespace
}  // namespace bindery
