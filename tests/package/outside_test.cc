// Examples, built outside of the tree by CMake from what is installed, as their folder's CMakeLists.txt says.
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
  static std::string Build(const std::string& examples, const std::string& targets) {
    const std::string folder = Scratch() + "/" + std::filesystem::path(examples).filename().string();
    Sh("cmake -S '" + prefix() + "/share/doc/bindery/" + examples + "' -B '" + folder + "' -DCMAKE_PREFIX_PATH='" +
       prefix() + "' -DCMAKE_CXX_FLAGS=-O0 && cmake --build '" + folder + "' --parallel 2 --target " + targets);
    return folder;
  }
};

TEST_F(Outside, Examples) {
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  const std::string folder = Build("examples", "anomalies char_gpt image_classifier lstm predict gan");
  EXPECT_NE(Sh("./anomalies", folder).find("of the 40 oddest rows are known to be odd"), std::string::npos);

  std::ofstream text(folder + "/input.txt");
  for (int i = 0; i < 200; ++i) text << "the quick brown fox jumps over the lazy dog\n";
  text.close();
  EXPECT_NE(Sh("./char_gpt input.txt 1", folder).find("saved: input.txt.pb"), std::string::npos);
  const Outcome missing = Shell("./char_gpt missing.txt", folder);
  EXPECT_EQ(missing.status, 1) << missing;
  EXPECT_NE(missing.err.find("missing.txt"), std::string::npos) << missing;

  EXPECT_EQ(Shell("./image_classifier train", folder).status, 2);
  EXPECT_EQ(Shell("./image_classifier predict input.txt.pb input.txt", folder).status, 1);  // neither JPEG nor PNG

  std::ofstream series(folder + "/series.csv");
  series << "load\n";
  for (int i = 0; i < 400; ++i) series << i % 24 << "\n";
  series.close();
  EXPECT_NE(Sh("./lstm series.csv", folder).find("the next hour: "), std::string::npos);
}

TEST_F(Outside, Server) {
  if (!Has("cmake")) GTEST_SKIP() << "there is no cmake";
  const std::string folder = Build("examples/server", "server load_test");
  Sh("'" + prefix() +
         "/bin/bindery' train --model mlp --train-digits 200 --test-digits 50 --epochs 1 --save mlp.pb "
         "--checkpoints= --progress none",
     folder);
  const std::string out =
      Sh("./server --model mlp.pb --port 0 > said & server=$!\n"
         "until [ -s said ]; do sleep 0.1; done\n"
         "./load_test --model mlp.pb --port $(grep -o '[0-9]*$' said | head -1) --clients 4 --seconds 1\n"
         "kill $server && wait $server",
         folder);
  EXPECT_NE(out.find("requests"), std::string::npos) << out;
}

}  // namespace
}  // namespace bindery
