// The archive that runs on other machines: it has its libraries with it, and says what is missing for a check of a GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/package/installation.h"

namespace bindery {
namespace {

TEST(Bundle, RunsWhereverItIsUnpacked) {
  ASSERT_EQ(setenv("XZ_OPT", "-0", 1), 0);  // quick, and larger
  const std::string bundle = "'" + Root() + "/tools/bundle.sh' --built '" + Root() + "'";
  Sh(bundle + " --output all.tar.xz && mkdir elsewhere && tar -xf all.tar.xz -C elsewhere");
  const std::string folder = Scratch() + "/elsewhere";
  const std::string loaded = Sh("env -i ldd */bin/bindery */bin/bindery-device-tests", folder);
  for (const std::string library : {"libdnnl", "libprotobuf", "libstdc++", "libgomp"}) {
    const size_t at = loaded.find(library);
    ASSERT_NE(at, std::string::npos) << library;
    EXPECT_NE(loaded.substr(at, loaded.find('\n', at) - at).find(folder), std::string::npos) << library;
  }
  EXPECT_EQ(loaded.find("libcuda"), std::string::npos) << "it is opened when a GPU is asked for";
  Sh("env -i */bin/bindery train --model mlp --train-digits 200 --test-digits 100 --epochs 1 --checkpoints run",
     folder);
  EXPECT_NE(Sh("BINDERY_TEST_DEVICES=cpu */bin/bindery-device-tests --gtest_filter='Losses.*'", folder).find("PASSED"),
            std::string::npos);
}

TEST(Bundle, OfTheProgramAloneIsSmaller) {
  const std::string bundle = "'" + Root() + "/tools/bundle.sh' --built '" + Root() + "'";
  Sh(bundle + " --program-only --output=program.tar.xz");
  EXPECT_EQ(Sh("tar -tf program.tar.xz | grep -c -e tests -e bench -e gpu_check || true"), "0\n");
  EXPECT_NE(Sh("tar -tf program.tar.xz").find("bin/bindery\n"), std::string::npos);
}

TEST(Bundle, WrongUseIsAnError) {
  const std::string bundle = "'" + Root() + "/tools/bundle.sh'";
  EXPECT_NE(Shell(bundle + " --output").err.find("--output needs a value"), std::string::npos);
  EXPECT_NE(Shell(bundle + " --fast").err.find("unknown option --fast"), std::string::npos);
  EXPECT_NE(Shell(bundle + " --built nowhere").err.find("nowhere/tools/bindery is not there"), std::string::npos);
}

TEST(Bundle, ACheckWithoutAGpuSaysSo) {
  const Outcome outcome =
      Shell("rm -rf gpu && mkdir gpu && cd gpu && mkdir bin && ln -s '" + Root() +
            "/tools/bindery' bin/bindery && cp '" + Root() + "/tools/bundle/gpu_check.sh' . && ./gpu_check.sh");
  if (outcome.status != 3) GTEST_SKIP() << "there is a GPU";
  EXPECT_NE(outcome.err.find("gpu_check: there is no GPU to check: cuda  none:"), std::string::npos) << outcome;
  EXPECT_EQ(Shell("cd gpu && ./gpu_check.sh --device tpu").status, 2);
}

}  // namespace
}  // namespace bindery
