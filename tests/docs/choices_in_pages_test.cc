// What pages give options as text is understood.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <string>

#include "base/files.h"
#include "train/initializer.h"
#include "train/loss_scale.h"
#include "train/metrics/metrics.h"
#include "train/optimizers/averaging.h"
#include "train/optimizers/optimizer.h"
#include "train/optimizers/schedule.h"

namespace bindery {
namespace {

// As `--optimizer "adam"`, `.schedule = "cosine(20)"`, `loss_scale: "static(8)"`.
TEST(ChoicesInPages, AreUnderstood) {
  const std::string root = std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE");
  static const std::regex kText(
      R"re((optimizer|schedule|initializer|metrics|average|loss.scale)(?: |=| = |: )"([^"]+)")re");
  const std::map<std::string, std::function<void(const std::string&)>> parse = {
      {"optimizer", [](const std::string& text) { MakeOptimizer(text); }},
      {"schedule", [](const std::string& text) { ParseSchedule(text, 0.1); }},
      {"initializer", [](const std::string& text) { Initializer{text}; }},
      {"metrics", [](const std::string& text) { MakeMetric(text); }},
      {"average", [](const std::string& text) { ParseAveraging(text); }},
      {"loss scale", [](const std::string& text) { ParseLossScaling(text); }}};
  int found = 0;
  for (const auto& page : std::filesystem::directory_iterator(root + "/docs")) {
    if (page.path().extension() != ".md") continue;
    const std::string text = ReadFile(page.path());
    for (std::sregex_iterator at(text.begin(), text.end(), kText); at != std::sregex_iterator(); ++at, ++found) {
      const std::string option = (*at)[1].str().starts_with("loss") ? "loss scale" : (*at)[1].str();
      const std::string choice = (*at)[2], name = choice.substr(0, choice.find('('));
      if (text.find("AddOptimizer({.name = \"" + name + "\"") != std::string::npos) continue;  // the page's own
      EXPECT_NO_THROW(parse.at(option)((*at)[2])) << page.path() << ": " << (*at)[0];
    }
  }
  EXPECT_GT(found, 30);
}

}  // namespace
}  // namespace bindery
