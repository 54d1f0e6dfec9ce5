// docs/tutorial.md, typed as it stands there, by somebody who has installed Bindery: every command succeeds, and prints
// what the page shows, but for the digits of numbers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/package/installation.h"

namespace bindery {
namespace {

class Tutorial : public Installation {};

struct Block {
  std::string kind;  // "console", "cpp", ""
  std::vector<std::string> lines;
};

std::vector<Block> BlocksOf(const std::string& page) {
  std::vector<Block> blocks;
  bool inside = false;
  for (const std::string& line : LinesOf(page)) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.push_back({line.substr(3), {}});
    } else if (inside) {
      blocks.back().lines.push_back(line);
    }
  }
  return blocks;
}

struct Step {
  std::string command;
  std::vector<std::string> printed;
};

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// What does not depend on the machine: no digits, no marks of the best epoch, one blank for many. Progress of long epochs,
// which comes when it takes long, is left out.
std::vector<std::string> Comparable(const std::vector<std::string>& lines) {
  static const std::regex kProgress(R"(epoch \d+/\d+  batch .*)"), kBest(R"(  \(best.*\)$)"),
      kNumber(R"(-?\d+([.,:]\d+)*(e[-+]?\d+)?)"), kBlanks("[ \t]+");
  std::vector<std::string> result;
  for (std::string line : lines) {
    if (std::regex_match(line, kProgress)) continue;
    line = std::regex_replace(line, kBest, "");
    line = std::regex_replace(line, kNumber, "#");
    line = std::regex_replace(line, kBlanks, " ");
    if (!line.empty()) result.push_back(line);
  }
  return result;
}

// Accuracies are about what they were.
std::vector<double> Accuracies(const std::vector<std::string>& lines) {
  static const std::regex kAccuracy(R"(test accuracy +(\d\.\d+)|samples: accuracy (\d\.\d+))");
  std::vector<double> result;
  for (const std::string& line : lines) {
    for (std::sregex_iterator at(line.begin(), line.end(), kAccuracy); at != std::sregex_iterator(); ++at) {
      result.push_back(std::stod((*at)[1].matched ? (*at)[1] : (*at)[2]));
    }
  }
  return result;
}

TEST_F(Tutorial, TypedAsItStands) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a minute of arithmetic, ten times as long under a sanitizer";
#endif
  for (const char* program : {"cmake", "curl"}) {
    if (!Has(program)) GTEST_SKIP() << "there is no " << program;
  }
  const std::string home = Scratch() + "/home", folder = home + "/tutorial";
  std::filesystem::create_directories(folder);
  std::filesystem::create_directory_symlink(prefix(), home + "/bindery");
  const std::string port = std::to_string(20000 + ::getpid() % 20000);

  std::vector<Step> steps;
  for (const Block& block : BlocksOf(Replaced(ReadText(Root() + "/docs/tutorial.md"), "/home/you", home))) {
    if (block.kind == "cpp" || block.kind == "cmake") {  // a file, called as its first line says
      std::ofstream file(folder + "/" + block.lines.at(0).substr(block.lines[0].find(' ') + 1));
      for (const std::string& line : block.lines) file << line << "\n";
      continue;
    }
    if (block.kind != "console") continue;
    for (const std::string& line : block.lines) {
      if (line.starts_with("$ ")) {
        steps.push_back({Replaced(line.substr(2), "8080", port), {}});
      } else {
        ASSERT_FALSE(steps.empty());
        steps.back().printed.push_back(Replaced(line, "8080", port));
      }
    }
  }
  ASSERT_GT(steps.size(), 15u);

  // One shell for all; each command's output in a file of its own.
  std::string script = "export HOME='" + home + "' PATH='" + home + "/bindery/bin':$PATH\n";
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string out = Scratch() + "/" + std::to_string(i) + ".out";
    script += "echo \"step " + std::to_string(i) + "\" >&2\n{ " + steps[i].command +
              (steps[i].command.ends_with('&') ? "" : ";") + " } > '" + out + "' 2>&1\n";
  }
  const Outcome outcome = Shell(script);
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string out = Scratch() + "/" + std::to_string(i) + ".out";
    if (!std::filesystem::exists(out)) {
      ADD_FAILURE() << "was not reached: " << steps[i].command;
      break;
    }
    const std::vector<std::string> lines = LinesOf(ReadText(out));
    EXPECT_EQ(Comparable(lines), Comparable(steps[i].printed)) << "$ " << steps[i].command;
    const std::vector<double> now = Accuracies(lines), then = Accuracies(steps[i].printed);
    ASSERT_EQ(now.size(), then.size()) << "$ " << steps[i].command;
    for (size_t k = 0; k < now.size(); ++k) EXPECT_NEAR(now[k], then[k], 0.25) << "$ " << steps[i].command;
  }
  EXPECT_EQ(outcome.status, 0) << outcome;
}

}  // namespace
}  // namespace bindery
