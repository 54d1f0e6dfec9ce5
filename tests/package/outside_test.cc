// Examples and the server, built outside of the tree by CMake from what is installed, as their CMakeLists.txt say.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/package/installation.h"

namespace bindery {
namespace {

class Outside : public Installation {
 protected:
  // Builds a folder of installed examples; the programs then are in `folder`.
  static std::string Build(const std::string& examples, const std::string& options = "") {
    const std::string folder = Scratch() + "/" + std::filesystem::path(examples).filename().string();
    Sh("cmake -S '" + prefix() + "/share/doc/bindery/" + examples + "' -B '" + folder + "' -DCMAKE_PREFIX_PATH='" +
       prefix() + "' -DCMAKE_CXX_FLAGS=-O0 " + options + " && cmake --build '" + folder + "' --parallel 2");
    return folder;
  }
};

// CMake finds all of them, and each compiles and links with what is installed alone; behind one parsing of all headers,
// without which that takes minutes. Run are one that takes all headers, and one that names them.
TEST_F(Outside, Examples) {
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
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
  const std::string folder = Build("examples", "-DCMAKE_PROJECT_examples_INCLUDE='" + share + "'");
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(prefix() + "/share/doc/bindery/examples")) {
    if (entry.path().extension() != ".cc") continue;
    ++examples;
    EXPECT_TRUE(std::filesystem::exists(folder + "/" + entry.path().stem().string())) << entry.path();
  }
  EXPECT_GT(examples, 15);
  EXPECT_NE(Sh("./anomalies", folder).find("of the 40 oddest rows are known to be odd"), std::string::npos);
  EXPECT_NE(Sh("./predict", folder).find("of 1000 digits right"), std::string::npos);
  const Outcome missing = Shell("./anomalies missing.csv", folder);
  EXPECT_EQ(missing.status, 1) << missing;
  EXPECT_NE(missing.err.find("missing.csv"), std::string::npos) << missing;
}

TEST_F(Outside, Server) {
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  const std::string folder = Build("examples/server");
  Sh("'" + prefix() +
         "/bin/bindery' train --model mlp --train-digits 200 --test-digits 50 --epochs 1 --save mlp.pb "
         "--checkpoints= --progress none",
     folder);
  // Whatever fails, nothing is left running.
  const std::string out =
      Sh("./server --model mlp.pb --port 0 > said & server=$!\n"
         "trap 'kill $server' EXIT\n"
         "until [ -s said ]; do kill -0 $server; sleep 0.1; done\n"
         "./load_test --model mlp.pb --port $(grep -o '[0-9]*$' said) --clients 4 --seconds 1\n"
         "trap - EXIT\n"
         "kill $server\n"
         "wait $server",
         folder);
  EXPECT_NE(out.find("wrong answers: 0\n"), std::string::npos) << out;
}

}  // namespace
}  // namespace bindery
