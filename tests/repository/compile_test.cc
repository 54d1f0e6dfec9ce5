// base/compile.sh: what g++ writes into a precompiled header, which whatever includes it depends on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace bindery {
namespace {

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// With the little that Bazel gives it: not even where programs are.
TEST(Compile, WritesAPrecompiledHeaderTheSameEachTime) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the compiler is not what sanitizers look at";
#endif
  if (std::system("setarch --addr-no-randomize true 2>/dev/null") != 0) {
    GTEST_SKIP() << "programs may not choose their addresses here";
  }
  const std::string tmpdir = std::getenv("TEST_TMPDIR");
  const std::string script =
      std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/base/compile.sh";
  const auto compile = [&](const std::string& folder) {
    std::filesystem::create_directories(folder + "/out");
    std::ofstream(folder + "/some.h") << "#include <map>\n#include <string>\n";
    std::ofstream(folder + "/headers.txt");
    const std::string command = "cd '" + folder + "' && env -i /bin/bash '" + script +
                                "' --same headers.txt unused.txt /usr/bin/g++ -std=c++20 -O2 -x c++-header -c some.h"
                                " -o out/some.gch";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return ReadFile(folder + "/out/some.gch");
  };
  // Sandboxes are counted: as often as not, their names are of other lengths.
  const std::string first = compile(tmpdir + "/9");
  const std::string second = compile(tmpdir + "/1000");
  EXPECT_GT(first.size(), 1000000u);
  EXPECT_TRUE(first == second) << "other bytes each time";
}

}  // namespace
}  // namespace bindery
