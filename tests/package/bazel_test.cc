// What is installed as an external repository of Bazel: the files of docs/installing.md, built and run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/package/installation.h"

namespace bindery {
namespace {

class Bazel : public Installation {
 protected:
  static void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(Scratch() + "/" + path).parent_path());
    std::ofstream(Scratch() + "/" + path) << text;
  }
};

// What stands between ``` below a heading, up to the next one.
std::vector<std::string> BlocksBelow(const std::string& heading, const std::string& page) {
  std::vector<std::string> blocks;
  bool below = false, block = false;
  for (const std::string& line : LinesOf(page)) {
    if (line.starts_with("```")) {
      block = !block;
      if (block && below) blocks.emplace_back();
    } else if (line.starts_with("#") && !block) {
      below = line == heading;
    } else if (block && below) {
      blocks.back() += line + "\n";
    }
  }
  return blocks;
}

TEST_F(Bazel, AsThePageSays) {
  if (!Has("bazel") || !std::filesystem::exists("/usr/share/bazel/rules")) GTEST_SKIP() << "there is no Debian's Bazel";
  const std::vector<std::string> blocks = BlocksBelow("### By Bazel", ReadText(Root() + "/docs/installing.md"));
  ASSERT_EQ(blocks.size(), 3u);  // the repository, the program, the rules
  std::string repository = blocks[0];
  const std::string shown = "/usr/share/bindery/bazel";
  ASSERT_NE(repository.find(shown), std::string::npos);
  repository.replace(repository.find(shown), shown.size(), prefix() + "/share/bindery/bazel");
  Write("outside/WORKSPACE", repository + blocks[2]);
  std::string alone = blocks[1];
  for (const auto& [from, to] : {std::pair("\"train\"", "\"predict\""),
                                 {"train.cc", "predict.cc"},
                                 {"\"@bindery\"", "\"@bindery//:predict\""}}) {
    ASSERT_NE(alone.find(from), std::string::npos) << alone;
    alone.replace(alone.find(from), std::string(from).size(), to);
  }
  Write("outside/BUILD", blocks[1] + alone);
  Write("outside/rules_cc/WORKSPACE", "workspace(name = \"rules_cc\")\n");
  Sh("mkdir outside/rules_cc/cc && cp \"$TEST_SRCDIR\"/rules_cc/cc/* outside/rules_cc/cc/ && "
     "cp moved/share/doc/bindery/examples/outside/*.cc outside/");
  // One of its own, which leaves no server behind; in a test's sandbox there is no other.
  Sh("bazel --batch --output_user_root='" + Scratch() +
         "/root' build --spawn_strategy=local --copt=-O0 --show_progress_rate_limit=60 //:train //:predict",
     Scratch() + "/outside");
  EXPECT_NE(Sh("bazel-bin/train mlp.pb", Scratch() + "/outside").find("of 1000 digits right"), std::string::npos);
  Sh("bazel-bin/predict mlp.pb 1,28,28", Scratch() + "/outside");
  Sh("chmod -R u+w root && rm -rf root outside");  // Bazel's files may not be written
}

}  // namespace
}  // namespace bindery
