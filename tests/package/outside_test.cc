// Examples and the server, built outside of the tree by CMake from what is installed, as their CMakeLists.txt say.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/package/installation.h"

namespace bindery {
namespace {

class Outside : public Installation {
 protected:
  // Builds a folder of installed examples; the programs then are in `folder`.
  static std::string Build(const std::string& examples, const std::string& targets) {
    const std::string folder = Scratch() + "/" + std::filesystem::path(examples).filename().string();
    Sh("cmake -S '" + prefix() + "/share/doc/bindery/" + examples + "' -B '" + folder + "' -DCMAKE_PREFIX_PATH='" +
       prefix() + "' -DCMAKE_CXX_FLAGS=-O0 && cmake --build '" + folder + "' --parallel 2 --target " + targets);
    return folder;
  }
};

// CMake finds all of them; built are one that takes all headers, and one that names them.
TEST_F(Outside, Examples) {
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  const std::string folder = Build("examples", "anomalies predict");
  EXPECT_NE(Sh("./anomalies", folder).find("of the 40 oddest rows are known to be odd"), std::string::npos);
  EXPECT_NE(Sh("./predict", folder).find("of 1000 digits right"), std::string::npos);
  const Outcome missing = Shell("./anomalies missing.csv", folder);
  EXPECT_EQ(missing.status, 1) << missing;
  EXPECT_NE(missing.err.find("missing.csv"), std::string::npos) << missing;
}

// The others, with what is installed alone. They are only parsed, behind one parsing of all headers: to build all of them
// takes minutes.
TEST_F(Outside, TheOtherExamples) {
  const std::string built_by_tests = "anomalies|custom_operator|image_classifier|predict";
  const std::string compile = "g++ -std=c++20 -Wall -Wextra -I ../../../../include ", all = "'" + Scratch() + "/all.h'";
  const std::string parsed =
      Sh("echo '#include <bindery/bindery.h>' > " + all + " && " + compile + "-x c++-header " + all +
             " && ls *.cc | grep -vxE '(" + built_by_tests + ")[.]cc' | xargs -P 2 -n 2 sh -c '" + compile +
             "-fsyntax-only -Winvalid-pch -include \"$0\" \"$@\" && echo \"$@\"' " + all,
         prefix() + "/share/doc/bindery/examples");
  EXPECT_NE(parsed.find("char_gpt.cc"), std::string::npos) << parsed;
  EXPECT_NE(parsed.find("two_devices.cc"), std::string::npos) << parsed;
}

TEST_F(Outside, Server) {
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  const std::string folder = Build("examples/server", "server load_test");
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
