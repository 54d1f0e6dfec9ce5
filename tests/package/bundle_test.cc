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
  EXPECT_EQ(Sh("cd */lib && ls *.py", folder), "jax_networks.py\njax_peer.py\nnetworks.py\npeer.py\ntorch_peer.py\n");
  Sh("env -i */bin/bindery train --model mlp --train-digits 200 --test-digits 100 --epochs 1 --checkpoints run",
     folder);
  EXPECT_NE(Sh("BINDERY_TEST_DEVICES=cpu */bin/bindery-device-tests --gtest_filter='Losses.*'", folder).find("PASSED"),
            std::string::npos);
}

// A machine on which everything takes as long as is said here: `json` is what the check writes.
Outcome CheckWith(const std::string& options, std::string* json) {
  const std::string made = R"(
    rm -rf machine && mkdir -p machine/bin && cd machine
    script() { printf '#!/bin/sh\n%s\n' "$2" >$1; chmod +x $1; }
    script bin/bindery 'echo "cpu:0  a CPU"'
    script bin/bindery-device-tests 'case $1 in *list*) echo "One."; echo "  Test" ;; *) echo "[  PASSED  ] 3 tests." ;; esac'
    script bin/bindery-bench 'echo "{\"step_median_ms\": 2.0}"'
    script pytorch 'case $2 in
      "import torch") ;;
      import*) exit 1 ;;
      *) echo "{\"peer\": \"PyTorch 9, eager\", \"step_median_ms\": 4.0}" ;;
    esac'
    script jax 'case "$2 $*" in
      "import jax"*) ;;
      import*) exit 1 ;;
      *lenet*) echo "no memory" >&2; exit 1 ;;
      *) echo "{\"peer\": \"JAX 9, compiled\", \"step_median_ms\": 1.0}"
         echo "{\"peer\": \"JAX 9, graphs\", \"error\": \"none here\"}" ;;
    esac'
  )";
  const Outcome outcome =
      Shell(made + "cp '" + Root() + "/tools/bundle/gpu_check.sh' . && ./gpu_check.sh --device cpu " + options);
  *json = ReadText(Scratch() + "/machine/gpu_check.json");
  return outcome;
}

TEST(Bundle, ACheckComparesWithTheFastestPeer) {
  std::string json;
  const Outcome outcome = CheckWith("--python ./pytorch --python ./jax", &json);
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.out.find("2.000 ms      1.000 ms    2.00  JAX 9, compiled"), std::string::npos) << outcome;
  EXPECT_NE(outcome.out.find("2.000 ms      4.000 ms    0.50  PyTorch 9, eager"), std::string::npos) << outcome;
  EXPECT_NE(outcome.out.find("left out JAX's lenet                                  no memory"), std::string::npos)
      << outcome;
  EXPECT_NE(json.find("\"error\": \"none here\""), std::string::npos) << json;
}

TEST(Bundle, ACheckWithoutPeersSaysSo) {
  std::string json;
  const Outcome outcome = CheckWith("--python ./nowhere", &json);
  EXPECT_EQ(outcome.status, 0) << outcome;
  for (const std::string peer : {"PyTorch", "JAX"}) {
    const std::string module = peer == "JAX" ? "jax" : "torch";
    EXPECT_NE(
        json.find("{\"check\": \"" + peer + "\", \"result\": \"left out\", \"detail\": \"./nowhere cannot import " +
                  module + " (--python names another one)\"}"),
        std::string::npos)
        << json;
  }
  EXPECT_NE(outcome.out.find("mlp            64      2.000 ms\n"), std::string::npos) << outcome;
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
