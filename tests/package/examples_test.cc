// Examples, built outside of the tree by CMake from what is installed, as their CMakeLists.txt says.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/package/installation.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class OutsideExamples : public Installation {};

// CMake finds all of them, and those that no other test builds compile and link with what is installed alone; behind
// one parsing of all headers, without which that takes minutes. Run are one that takes all headers, and one that names
// them.
TEST_F(OutsideExamples, CompileLinkAndRun) {
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  const Names built_by_others = {"custom_operator", "image_classifier"};  // package_test, tutorial_test
  std::string targets;
  int examples = 0;
  for (const auto& entry : fs::directory_iterator(prefix() + "/share/doc/bindery/examples")) {
    const std::string name = entry.path().stem();
    if (entry.path().extension() != ".cc" || built_by_others.contains(name)) continue;
    targets += name + " ";
    ++examples;
  }
  EXPECT_GE(examples, 13);
  const std::string share = Scratch() + "/share_headers.cmake";
  std::ofstream(share) << "function(share_headers)\n"
                          "  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)\n"
                          "  list(POP_FRONT targets first)\n"
                          "  target_precompile_headers(${first} PRIVATE <bindery/bindery.h>)\n"
                          "  foreach(target ${targets})\n"
                          "    target_precompile_headers(${target} REUSE_FROM ${first})\n"
                          "  endforeach()\n"
                          "endfunction()\n"
                          "cmake_language(DEFER CALL share_headers)\n";
  const std::string folder = Build("examples", targets, "-DCMAKE_PROJECT_examples_INCLUDE='" + share + "'");
  EXPECT_NE(Sh("./anomalies", folder).find("of the 40 oddest rows are known to be odd"), std::string::npos);
  EXPECT_NE(Sh("./predict", folder).find("of 1000 digits right"), std::string::npos);
  const Outcome missing = Shell("./anomalies missing.csv", folder);
  EXPECT_EQ(missing.status, 1) << missing;
  EXPECT_NE(missing.err.find("missing.csv"), std::string::npos) << missing;
}

}  // namespace
}  // namespace bindery
