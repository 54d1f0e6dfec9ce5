// The pages that are programs: what each prints is what its page says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "base/files.h"
#include "tests/tools/program.h"

namespace bindery {
namespace {

std::string Root() { return std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/"; }

// What a page shows as printed: its blocks ```text, one after the other.
std::string Printed(const std::string& page) {
  static const std::regex kBlock("\n```text\n([^`]*)```\n");
  std::string printed;
  for (std::sregex_iterator at(page.begin(), page.end(), kBlock); at != std::sregex_iterator(); ++at) {
    printed += (*at)[1];
  }
  return printed;
}

// Fractions, which depend on the machine's order of adding, apart from the rest, which does not.
struct Text {
  explicit Text(const std::string& text) {
    static const std::regex kFraction(R"(\d+\.\d+)");
    rest = std::regex_replace(text, kFraction, "#");
    for (std::sregex_iterator at(text.begin(), text.end(), kFraction); at != std::sregex_iterator(); ++at) {
      fractions.push_back(std::stod((*at)[0]));
    }
  }
  std::string rest;
  std::vector<double> fractions;
};

class Page : public testing::TestWithParam<const char*> {};

TEST_P(Page, PrintsWhatItSays) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "seconds of arithmetic, ten times as long under a sanitizer";
#endif
  const std::string name = GetParam(), folder = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::filesystem::create_directories(folder);
  const auto run = [&] { return Process({Root() + "tests/docs/" + name}, folder).Wait(std::chrono::minutes(2)); };
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 0) << outcome;
  const Outcome again = run();  // where files of the first run lie
  EXPECT_EQ(again.status, 0) << again;
  EXPECT_EQ(again.out, outcome.out);
  const Text printed(outcome.out), said(Printed(ReadFile(Root() + (name == "README" ? "" : "docs/") + name + ".md")));
  EXPECT_FALSE(said.rest.empty());
  EXPECT_EQ(printed.rest, said.rest) << outcome;
  ASSERT_EQ(printed.fractions.size(), said.fractions.size());
  for (size_t i = 0; i < said.fractions.size(); ++i)
    EXPECT_NEAR(printed.fractions[i], said.fractions[i], 0.1) << outcome;
}

INSTANTIATE_TEST_SUITE_P(Docs, Page,
                         testing::Values("README", "fine_tuning", "library", "onnx", "own_data", "own_loss_and_metric",
                                         "own_operator", "own_optimizer", "padded_sequences", "several_devices",
                                         "several_machines"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bindery
