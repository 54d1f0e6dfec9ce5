// An installation of the library, of the program and of headers, for tests of what is there; and a shell to use it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/tools/program.h"

namespace bindery {

using Names = std::set<std::string>;

std::string Root();     // the repository, with what is built
std::string Scratch();  // the test's own folder

// Runs a script in a folder.
Outcome Shell(const std::string& script, const std::string& folder = Scratch());
std::string Sh(const std::string& script, const std::string& folder = Scratch());  // what it prints; it succeeds
bool Has(const std::string& program);
std::string InstallTo(const std::string& options);  // a command: what is built, to there

std::string ReadText(const std::filesystem::path& path);
std::vector<std::string> LinesOf(const std::string& text);
Names Tree(const std::filesystem::path& folder);  // all below it, relative to it
// What pages (.md) below the folder link to is there. Returns how many links lead out of it.
int ExpectLinksLeadSomewhere(const std::filesystem::path& folder);

// Tests of one installation, in "moved" below Scratch(). It was moved there: nothing in it may know where it was.
class Installation : public testing::Test {
 protected:
  static void SetUpTestSuite() { Sh(InstallTo("--prefix first") + " && mv first moved"); }
  static void TearDownTestSuite() { std::filesystem::remove_all(Scratch() + "/moved"); }
  static std::string prefix() { return Scratch() + "/moved"; }
  // Builds installed examples by CMake, with its options; the programs then are in the folder that it returns.
  static std::string Build(const std::string& examples, const std::string& targets, const std::string& options = "");
};

}  // namespace bindery
