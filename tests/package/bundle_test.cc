// The archive that runs on other machines: it has its libraries with it, and says what is missing for a check of a GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/package/installation.h"

namespace bindery {
namespace {

TEST(Bundle, RunsWhereverItIsUnpacked) {
  ASSERT_EQ(setenv("XZ_OPT", "-0", 1), 0);  // quick, and larger
  const std::string bundle = "'" + Root() + "/tools/bundle.sh' --built '" + Root() + "'";
  Sh(bundle + " --output all.tar.xz && mkdir elsewhere && tar -xf all.tar.xz -C elsewhere");
  const std::string folder = Scratch() + "/elsewhere";
  const std::string loaded = Sh("env -i ldd */bin/bindery */bin/bindery-device-tests */bin/bindery-bench", folder);
  for (const std::string library : {"libdnnl", "libprotobuf", "libstdc++", "libgomp"}) {
    const size_t at = loaded.find(library);
    ASSERT_NE(at, std::string::npos) << library;
    EXPECT_NE(loaded.substr(at, loaded.find('\n', at) - at).find(folder), std::string::npos) << library;
  }
  for (const char* opened : {"libcuda", "libcublas", "libcudnn", "libnccl", "libnvrtc", "libnvidia"}) {
    EXPECT_EQ(loaded.find(opened), std::string::npos) << "it is opened when a GPU is asked for";
  }
  EXPECT_EQ(Sh("cd */lib && ls *.py", folder), "jax_networks.py\njax_peer.py\nnetworks.py\npeer.py\ntorch_peer.py\n");
  EXPECT_EQ(Sh("cd */lib && ls *.sh", folder), "gpu_steps.sh\ngpu_trainings.sh\n");
  Sh("env -i */bin/bindery train --model mlp --train-digits 200 --test-digits 100 --epochs 1 --checkpoints run",
     folder);
  EXPECT_NE(Sh("BINDERY_TEST_DEVICES=cpu */bin/bindery-device-tests --gtest_filter='Losses.*'", folder).find("PASSED"),
            std::string::npos);
}

// A machine of stand-ins, with a GPU, on which everything takes as long as is said here, and $FAULT names what is
// wrong: `json` is what the check writes.
Outcome CheckWith(const std::string& options, std::string* json, const std::string& fault = {}) {
  const std::string made = R"sh(
    rm -rf machine && mkdir -p machine/{bin,lib,cuda/bin,nvidia/nccl/lib} && cd machine
    script() { printf '#!/bin/bash\n%s\n' "$2" >$1; chmod +x $1; }
    script bin/bindery 'case $1$2 in
      devices--json) echo "{\"cuda\": {\"driver\": \"13.0\"}}" ;;
      --version) [ "$FAULT" != old ] || { echo "libc.so.6: version GLIBC_2.38 not found" >&2; exit 1; } ;;
      devices) [[ $LD_LIBRARY_PATH != *nccl* ]] || nccl="      NCCL 2.29.7"
               printf "%s\n" "cpu   2 cores" "cuda:0  a GPU, 80.0 GiB" "      driver for CUDA 13.0" \
                             "      cuBLASLt not found" "      cuDNN 9.19.0" "$nccl" ;;
      train*)
        for option; do printf -v "of_${last//[^a-z]/}" %s "$option"; last=$option; done
        late=0 weights=1
        case $FAULT$of_device$BINDERY_CUDA_GRAPHS in
          lossescpu:0) late=1 ;;
          hangscpu:0) sleep 100 ;;
          graphscuda:0no) weights=2 ;;
          capturecuda:0) echo "work is not captured into graphs from now on: it is refused" >&2 ;;
          endscuda:0) echo "bindery: DeviceError: lost" >&2; exit 6 ;;
        esac
        [ -z "$of_save" ] || echo $weights >$of_save
        for step in {1..20}; do
          loss=2.$((50 - step + late))
          [ "$FAULT" != still ] || loss=2.50
          echo "{\"event\":\"epoch\",\"train\":{\"accuracy\":0.5,\"cross-entropy\":$loss}}"
        done
    esac'
    script bin/bindery-device-tests 'case $1$FAULT$BINDERY_CUDNN in
      *list*) echo "One."; echo "  Test" ;;
      *ownno)
        printf "%s\n" "[ RUN      ] One.Test" "a.cc:1: Failure" "far apart" "[  FAILED  ] One.Test (3 ms)"
        exit 1 ;;
      *crash) echo "[ RUN      ] One.Test"; exit 139 ;;
      *slow) sleep 100 ;;
      *) printf "%s\n" "[  PASSED  ] 3 tests." "[  SKIPPED ] 1 test, listed below:" "[  SKIPPED ] One.Other" ;;
    esac'
    script cuda/bin/compute-sanitizer 'echo "========= COMPUTE-SANITIZER"
      case $FAULT$2 in
        memorymemcheck) echo "========= Invalid __global__ write of size 4 bytes"; exit 9 ;;
        unablememcheck) echo "========= Error: Device not supported. Please refer to the manual"; exit 1 ;;
        endlessmemcheck)
          trap "echo \"========= Error: process did not terminate successfully\"; exit 1" TERM
          sleep 100 & wait ;;
      esac
      "${@:7}" && echo "========= ERROR SUMMARY: 0 errors"'
    script bin/bindery-bench '
      allocations=0.0 waits=1.0 captures=0.0
      [ "$FAULT" != allocates ] || allocations=0.5
      [ "$FAULT" != waits ] || waits=2.0
      [ "$FAULT" != thrashes ] || captures=1.0
      [ "$FAULT" != tardy ] || sleep 100
      [[ $* == *--resident* ]] && median=2.0 || median=2.5
      echo "{\"step_median_ms\": $median, \"gpu_allocations\": $allocations, \"gpu_synchronizations\": 0.0," \
           "\"gpu_waits\": $waits, \"gpu_waits_of_caller\": 3.0, \"gpu_captures\": $captures," \
           "\"gpu_graph_launches\": 2.0}"'
    script pytorch 'case $2 in
      "import torch") ;;
      *nvidia*) printf "%s\n" $PWD/nvidia/nccl/lib ;;
      import*) exit 1 ;;
      *) [[ $LD_LIBRARY_PATH != *nccl* ]] || exit 1
         echo "{\"peer\": \"PyTorch 9, eager\", \"step_median_ms\": 4.0}"
         echo "{\"peer\": \"PyTorch 9, compiled\", \"step_median_ms\": 3.0}" ;;
    esac'
    script jax 'case "$2 $*" in
      "import jax"*) ;;
      import*) exit 1 ;;
      *lenet*) echo "no memory" >&2; exit 1 ;;
      *) echo "{\"peer\": \"JAX 9, compiled\", \"step_median_ms\": 1.0}"
         echo "{\"peer\": \"JAX 9, graphs\", \"error\": \"none here\"}" ;;
    esac'
  )sh";
  const Outcome outcome =
      Shell(made + "cp '" + Root() + "/tools/bundle/gpu_check.sh' '" + Root() + "/LICENSE' . && cp '" + Root() +
            "'/tools/bundle/gpu_{trainings,steps}.sh lib && FAULT=" + fault + " CUDA_HOME=$PWD/cuda ./gpu_check.sh " +
            options);
  *json = Sh("cat machine/gpu_check*.json");
  return outcome;
}

// A row of the table.
std::string Row(const std::string& result, const std::string& what, const std::string& detail) {
  std::string row = result;
  row.resize(9, ' ');
  row += what;
  row.resize(54, ' ');
  return row + detail + "\n";
}

TEST(Bundle, ACheckSaysWhatMachineItWas) {
  std::string json;
  const Outcome outcome = CheckWith("--python ./nowhere", &json);
  EXPECT_EQ(outcome.status, 0) << outcome;
  for (const std::string& row : {
           Row("machine", "cuda:0", "a GPU, 80.0 GiB"),
           Row("machine", "driver", "for CUDA 13.0"),
           Row("left out", "cuBLASLt", "it is not found"),
           Row("machine", "cuDNN", "9.19.0"),
           Row("passed", "operators by cuDNN 9.19.0", "3 passed, 1 skipped"),
           Row("passed", "compute-sanitizer racecheck", "27 passed, 9 skipped"),
           Row("passed", "gpt: graphs give the same bits", "of all parameters after 20 steps"),
           Row("passed", "losses of resnet50 beside a CPU's", "2.4900 to 2.3000; at most 0.0e+00 apart, in step 0"),
           Row("passed", "steps of gpt: memory and waits",
               "0.0 allocations, 0.0 synchronizations, 0.0 graphs made, 2.0 launched, 1.0 waits; 3.0 of the benchmark"),
       }) {
    EXPECT_NE(outcome.out.find(row), std::string::npos) << row << outcome;
  }
  EXPECT_NE(json.find("{\"cuda\": {\"driver\": \"13.0\"}}"), std::string::npos) << json;
  EXPECT_NE(json.find("{\"training\": \"lstm\", \"cuda:0\": [2.49,2.48,"), std::string::npos) << json;
}

TEST(Bundle, ACheckSaysWhatFailed) {
  for (const auto& [fault, row] : std::vector<std::pair<std::string, std::string>>{
           {"losses",
            Row("FAILED", "losses of lenet beside a CPU's", "2.4900 to 2.3000; at most 4.3e-03 apart, in step 20")},
           {"still", Row("FAILED", "losses of lstm beside a CPU's",
                         "2.5000 to 2.5000; at most 0.0e+00 apart, in step 0; it hardly moved, which proves nothing")},
           {"graphs", Row("FAILED", "lstm: graphs give the same bits", "the models differ after 20 steps")},
           {"capture", Row("FAILED", "lenet: graphs give the same bits", "the driver captures none")},
           {"ends", Row("FAILED", "training of gpt", "bindery: DeviceError: lost")},
           {"own", Row("FAILED", "the same of those by own kernels",
                       "0 passed; failed: One.Test One.Test One.Test One.Test One.Test: a.cc:1: Failure far apart "
                       "[  FAILED  ] One.Test (3 ms)")},
           {"crash",
            Row("FAILED", "devices, groups, stores, training", "0 passed; failed: One.Test: ended by signal 11")},
           {"allocates", Row("FAILED", "steps of mlp: memory and waits",
                             "0.5 allocations, 0.0 synchronizations, 0.0 graphs made, 2.0 launched, 1.0 waits; 3.0 of "
                             "the benchmark")},
           {"waits", Row("FAILED", "steps of lstm: memory and waits",
                         "0.0 allocations, 0.0 synchronizations, 0.0 graphs made, 2.0 launched, 2.0 waits; 3.0 of the "
                         "benchmark")},
           {"thrashes",
            Row("FAILED", "steps of gpt: memory and waits",
                "0.0 allocations, 0.0 synchronizations, 1.0 graphs made, 2.0 launched, 1.0 waits; 3.0 of the "
                "benchmark")},
           {"memory",
            "0 passed; failed: One One One One One One One One One: ========= Invalid __global__ write of "
            "size 4 bytes\n"},
       }) {
    std::string json;
    const Outcome outcome = CheckWith("--python ./nowhere", &json, fault);
    EXPECT_EQ(outcome.status, 1) << fault << outcome;
    EXPECT_NE(outcome.out.find(row), std::string::npos) << row << outcome;
    EXPECT_NE(json.find("\"result\": \"FAILED\""), std::string::npos) << json;
  }
}

// What ends late for want of time, or cannot look at this machine, has not failed.
TEST(Bundle, ACheckSaysWhatDidNotRun) {
  for (const auto& [options, fault, row] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"--only devices --seconds 2", "slow",
            Row("partly", "devices, groups, stores, training", "0 passed; no time was left for One")},
           {"--only trainings --seconds 2", "hangs",
            Row("left out", "losses of lenet beside a CPU's", "on the CPU: not ended after 1 s")},
           {"--device cpu --only steps --seconds 8", "tardy",
            Row("left out", "training steps of mlp", "not measured after 1 s")},
           {"--only sanitizer", "unable",
            Row("left out", "compute-sanitizer memcheck",
                "========= Error: Device not supported. Please refer to the manual")},
           {"--only sanitizer --seconds 3", "endless",
            Row("partly", "compute-sanitizer memcheck",
                "0 passed; no time was left for One One One One One One One One One")},
       }) {
    std::string json;
    const Outcome outcome = CheckWith(options + " --python ./nowhere", &json, fault);
    EXPECT_EQ(outcome.status, 0) << options << outcome;
    EXPECT_NE(outcome.out.find(row), std::string::npos) << row << outcome;
    EXPECT_NE(outcome.out.find("Nothing failed, but not all of it ran"), std::string::npos) << outcome;
  }
}

TEST(Bundle, ACheckOfOnePartLeavesOutTheOthers) {
  std::string json;
  const Outcome outcome = CheckWith("--only graphs --python ./nowhere", &json);
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.out.find(Row("passed", "lenet: graphs give the same bits", "of all parameters after 20 steps")),
            std::string::npos)
      << outcome;
  for (const std::string other : {"operators", "devices", "sanitizer", "beside a CPU's", "steps of"}) {
    EXPECT_EQ(outcome.out.find(other), std::string::npos) << other << outcome;
  }
  EXPECT_EQ(Sh("cd machine && ls *.json"), "gpu_check-graphs.json\n");
  EXPECT_EQ(Shell("cd machine && ./gpu_check.sh --only everything").status, 2);
  EXPECT_EQ(Shell("cd machine && ./gpu_check.sh --seconds soon").status, 2);
  EXPECT_EQ(Shell("cd machine && ./gpu_check.sh --device cpu --only graphs").status, 2);  // which CPUs have not
}

TEST(Bundle, ACheckUsesTheLibrariesThatAPythonHas) {
  std::string json;
  const Outcome outcome = CheckWith("--only devices --python ./pytorch", &json);
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.out.find(Row("machine", "NVIDIA's packages of a Python",
                                 "./pytorch, searched for libraries: " + Scratch() + "/machine/nvidia/nccl/lib")),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.out.find(Row("machine", "NCCL", "2.29.7")), std::string::npos) << outcome;
}

TEST(Bundle, ACheckSaysThatTheProgramDoesNotStart) {
  std::string json;
  const Outcome outcome = CheckWith("", &json, "old");
  EXPECT_EQ(outcome.status, 1) << outcome;
  EXPECT_NE(outcome.err.find("gpu_check: the program does not start here: libc.so.6: version GLIBC_2.38 not found"),
            std::string::npos)
      << outcome;
}

TEST(Bundle, ACheckComparesWithTheFastestPeer) {
  std::string json;
  const Outcome outcome = CheckWith("--only steps --python ./pytorch --python ./jax", &json);
  EXPECT_EQ(outcome.status, 0) << outcome;
  for (const std::string& row : {
           std::string("mlp            64      2.500      2.000      1.000           0.50  JAX 9, compiled\n"),
           std::string("lenet          64      2.500      2.000      3.000           1.50  PyTorch 9, compiled\n"),
           Row("left out", "JAX's lenet", "no memory"),
           Row("left out", "gpt by JAX 9, graphs", "none here"),
           Row("missed", "goal: lenet, 2.0 times as fast", "1.50 times as fast as PyTorch 9, compiled"),
           Row("goal met", "goal: gpt, 1.0 times as fast", "1.50 times as fast as PyTorch 9, compiled"),
       }) {
    EXPECT_NE(outcome.out.find(row), std::string::npos) << row << outcome;
  }
  EXPECT_NE(json.find("\"error\": \"none here\""), std::string::npos) << json;
}

TEST(Bundle, ACheckOfCpusWithoutPeersSaysSo) {
  std::string json;
  const Outcome outcome = CheckWith("--device cpu --python ./nowhere", &json);
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.out.find(Row("passed", "operators", "3 passed, 1 skipped")), std::string::npos) << outcome;
  for (const std::string of_gpus : {"graphs", "own kernels", "sanitizer", "resnet50", "memory and waits", "goal:"}) {
    EXPECT_EQ(outcome.out.find(of_gpus), std::string::npos) << outcome;
  }
  for (const std::string peer : {"PyTorch", "JAX"}) {
    const std::string module = peer == "JAX" ? "jax" : "torch";
    EXPECT_NE(
        json.find("{\"check\": \"" + peer + "\", \"result\": \"left out\", \"detail\": \"./nowhere cannot import " +
                  module + " (--python names another one)\"}"),
        std::string::npos)
        << json;
  }
  EXPECT_NE(outcome.out.find("mlp            64      2.500      2.000          -\n"), std::string::npos) << outcome;
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
