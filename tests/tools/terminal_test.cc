// The bar on terminals of any width: it stays on its line.
#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>
#include <sstream>

#include "tests/tools/program.h"

namespace bindery {
namespace {

class TerminalTest : public ProgramTest {
 protected:
  // Runs the program on a terminal of so many columns; what it wrote there.
  std::string OnTerminal(int columns, const Words& arguments) const {
    const Words words = Command(arguments);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
    int terminal = -1;
    const int pid = ::forkpty(&terminal, nullptr, nullptr, &size);
    if (pid == 0) {
      ::setenv("TERM", "xterm", 1);
      if (::chdir(folder().c_str()) != 0) ::_exit(126);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    EXPECT_GT(pid, 0);
    std::string text;
    char bytes[4096];
    for (ssize_t n = 0; (n = ::read(terminal, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(n));
    int status = 0;
    ::waitpid(pid, &status, 0);
    ::close(terminal);
    EXPECT_EQ(status, 0) << text;
    return text;
  }

  // Each state of the bar: what follows a return to the first column that clears the line.
  static Words Bars(const std::string& text) {
    const std::string begin = "\r\x1b[K";
    Words bars;
    for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
      const size_t from = at + begin.size();
      const std::string bar = text.substr(from, text.find_first_of("\r\n", from) - from);
      // The line of an epoch, perhaps cut, has no colon behind its number.
      static const std::regex kOfEpoch("epoch( [0-9]+/[0-9]+( .*)?)?");
      if (!bar.empty() && !std::regex_match(bar, kOfEpoch)) bars.push_back(bar);
    }
    return bars;
  }
};

TEST_F(TerminalTest, TheBarFitsAnyWidth) {
  for (const int columns : {5, 12, 20, 40, 80, 200}) {
    const std::string text = OnTerminal(columns, Training(2, {"--progress", "bar", "--checkpoints="}));
    const Words bars = Bars(text);
    ASSERT_FALSE(bars.empty()) << columns << ": " << text;
    for (const std::string& bar : bars) {
      EXPECT_LT(bar.size(), static_cast<size_t>(columns)) << bar;
      EXPECT_NE(bar.find(columns >= 12 ? "%" : ""), std::string::npos) << bar;
    }
    const std::string& last = bars.back();
    if (columns >= 20) {
      EXPECT_NE(last.find("2/2"), std::string::npos) << last;
      EXPECT_NE(last.find("<"), std::string::npos) << "the time that is left: " << last;
    }
    if (columns >= 80) {
      EXPECT_NE(last.find("accuracy "), std::string::npos) << last;
    }
    if (columns == 200) {
      EXPECT_NE(last.find("|########################|"), std::string::npos) << last;
      EXPECT_NE(last.find("samples/s"), std::string::npos) << last;
      EXPECT_NE(last.find("cross-entropy "), std::string::npos) << last;
    }
  }
}

TEST_F(TerminalTest, AutomaticallyABarOnATerminalAndLinesElsewhere) {
  EXPECT_FALSE(Bars(OnTerminal(80, Training(1, {"--checkpoints="}))).empty());
  const Outcome elsewhere = Succeeds(Training(1, {"--checkpoints="}));
  EXPECT_EQ(elsewhere.err.find('\r'), std::string::npos) << elsewhere;
  EXPECT_EQ(elsewhere.err.find('\x1b'), std::string::npos) << elsewhere;
  EXPECT_NE(elsewhere.err.find("epoch 1/1"), std::string::npos) << elsewhere;
  EXPECT_TRUE(Bars(OnTerminal(80, Training(1, {"--checkpoints=", "--progress", "none"}))).empty());
}

// Colors are those of the log alone: here of a warning, as nothing is learned.
TEST_F(TerminalTest, ColorsOnATerminalUnlessTheyAreNotWanted) {
  const Words words = Training(1, {"--checkpoints=", "--progress=none", "--batch-size=2", "--optimizer=sgd(lr=0)"});
  const auto has_colors = [&] {
    const std::string text = OnTerminal(80, words);
    EXPECT_NE(text.find("the model has learned nothing"), std::string::npos) << text;
    return text.find("\x1b[") != std::string::npos;
  };
  for (const auto& [value, colors] : {std::pair("", true), std::pair("1", false)}) {
    ::setenv("NO_COLOR", value, 1);
    EXPECT_EQ(has_colors(), colors) << value;
  }
  ::unsetenv("NO_COLOR");
}

TEST_F(TerminalTest, WhatIsTrainedIsSaidOnLinesThatAreCutAtSpaces) {
  const std::string whole = Succeeds(Training(1, {"--checkpoints="})).err;
  const std::string said = whole.substr(0, whole.find('\n'));
  ASSERT_TRUE(said.starts_with("training ")) << whole;
  for (const int columns : {40, 80}) {
    std::istringstream lines(OnTerminal(columns, Training(1, {"--checkpoints=", "--progress", "none"})));
    std::string joined, line;
    for (int count = 0; joined.size() < said.size() && std::getline(lines, line); ++count) {
      if (line.ends_with('\r')) line.pop_back();
      EXPECT_LT(line.size(), static_cast<size_t>(columns)) << line;
      joined += (count > 0 ? " " : "") + line.substr(line.find_first_not_of(' '));
    }
    EXPECT_EQ(joined, said);
  }
}

TEST_F(TerminalTest, AnEpochsLineIsCutWhereTheTerminalIsNarrow) {
  EXPECT_NE(OnTerminal(200, Training(1, {"--checkpoints="})).find("lr 0.05  train: accuracy"), std::string::npos);
  const std::string narrow = OnTerminal(60, Training(1, {"--checkpoints=", "--best", "best.pb"}));
  EXPECT_NE(narrow.find("\n  train: accuracy"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("\n  test: accuracy"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("saved)"), std::string::npos) << narrow;
  for (const int columns : {24, 40, 60}) {
    std::istringstream lines(OnTerminal(columns, Training(1, {"--checkpoints=", "--best", "best.pb"})));
    bool is_of_epoch = false;
    int count = 0;
    for (std::string line;
         std::getline(lines, line) && line.find("result") == std::string::npos && !line.starts_with("bindery:");) {
      if (line.ends_with('\r')) line.pop_back();
      if (const size_t at = line.rfind("\x1b[K"); at != std::string::npos) line.erase(0, at + 3);
      is_of_epoch = is_of_epoch || line.starts_with("epoch 1/1 ");
      if (!is_of_epoch) continue;
      ++count;
      EXPECT_LT(line.size(), static_cast<size_t>(columns)) << line;
    }
    EXPECT_GE(count, 3) << columns;
  }
  const Outcome elsewhere = Succeeds(Training(1, {"--checkpoints="}));
  EXPECT_NE(elsewhere.err.find("lr 0.05  train: accuracy"), std::string::npos) << elsewhere;
  EXPECT_NE(elsewhere.err.find("(best so far)"), std::string::npos) << elsewhere;
}

}  // namespace
}  // namespace bindery
