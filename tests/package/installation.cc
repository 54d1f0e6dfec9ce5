#include "tests/package/installation.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace bindery {

namespace fs = std::filesystem;

std::string Root() {
  const char *sources = std::getenv("TEST_SRCDIR"), *workspace = std::getenv("TEST_WORKSPACE");
  if (!sources || !workspace) throw std::runtime_error("run this test with bazel");
  return std::string(sources) + "/" + workspace;
}

std::string Scratch() { return std::getenv("TEST_TMPDIR"); }

Outcome Shell(const std::string& script, const std::string& folder) {
  return Process({"/bin/bash", "-euo", "pipefail", "-c", script}, folder).Wait(std::chrono::minutes(4));
}

std::string Sh(const std::string& script, const std::string& folder) {
  const Outcome outcome = Shell(script, folder);
  EXPECT_EQ(outcome.status, 0) << script << "\n" << outcome;
  return outcome.out;
}

bool Has(const std::string& program) { return Shell("command -v " + program).status == 0; }

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string InstallTo(const std::string& options) {
  return "'" + Root() + "/tools/install.sh' --built '" + Root() + "' " + options;
}

std::string Installation::Build(const std::string& examples, const std::string& targets, const std::string& options) {
  const std::string folder = Scratch() + "/" + fs::path(examples).filename().string();
  Sh("cmake -S '" + prefix() + "/share/doc/bindery/" + examples + "' -B '" + folder + "' -DCMAKE_PREFIX_PATH='" +
     prefix() + "' -DCMAKE_CXX_FLAGS=-O0 " + options + " && cmake --build '" + folder + "' --parallel 2 --target " +
     targets);
  return folder;
}

Names Tree(const fs::path& folder) {
  Names names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    names.insert(entry.path().lexically_relative(folder));
  }
  return names;
}

int ExpectLinksLeadSomewhere(const fs::path& folder) {
  static const std::regex kLink(R"(\]\(([^)#:]+)(#[^)]*)?\))");
  int outside = 0;
  for (const std::string& name : Tree(folder)) {
    if (!name.ends_with(".md")) continue;
    bool code = false;
    for (const std::string& line : LinesOf(ReadText(folder / name))) {
      if (line.starts_with("```")) code = !code;
      if (code) continue;
      for (std::sregex_iterator at(line.begin(), line.end(), kLink); at != std::sregex_iterator(); ++at) {
        const fs::path to = (folder / name).parent_path() / (*at)[1].str();
        EXPECT_TRUE(fs::exists(to)) << name << " leads to " << (*at)[1];
        outside += to.lexically_relative(folder).lexically_normal().string().starts_with("..");
      }
    }
  }
  return outside;
}

}  // namespace bindery
