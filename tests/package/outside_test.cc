// The server, built outside of the tree by CMake from what is installed, as its CMakeLists.txt says.
#include <gtest/gtest.h>

#include <string>

#include "tests/package/installation.h"

namespace bindery {
namespace {

class Outside : public Installation {};

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
