// The images of fused kernels: the files that they are kept in, and who refuses to make them or to take them.
#include "executor/kernels/cuda/fused_image.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "executor/executor.h"
#include "executor/kernels/cuda/fused_source.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/cuda/fake/nvrtc.h"
#include "tests/executor/values.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;
using cuda::FusedProgram;

class CudaFusedImageTest : public testing::Test {
 protected:
  CudaFusedImageTest() {
    SetLogCallback([this](LogLevel level, const std::string& line) {
      if (level == LogLevel::kWarning) warnings_.push_back(line);
    });
  }
  ~CudaFusedImageTest() override {
    SetLogCallback(nullptr);
    cuda::UseNvrtc(fake::Nvrtc());
    cuda::UseFusedFolder("");
    fake::RefuseSources(false);
    fake::RefuseCapability(0);
    fake::RefuseImages(false);
    fake::SetNvrtcVersion(1);
    for (const std::string& violation : fake::TakeViolations()) ADD_FAILURE() << violation;
  }
  std::vector<std::string> warnings_;
};

// A folder of this test's own, which is not there.
std::string NewFolder() {
  static int number = 0;
  const std::string folder = testing::TempDir() + "fused" + std::to_string(++number);
  std::filesystem::remove_all(folder);
  return folder;
}

FusedProgram TwoSteps(double factor) {
  return {
      .inputs = {{DType::kFloat32, FusedProgram::Reads::kSame}},
      .steps = {{"UnaryFunctions", 0, DType::kFloat32, {0}}, {"CurveFunctions", 0, DType::kFloat32, {1}, factor, 0}}};
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

TEST_F(CudaFusedImageTest, ImagesAreKeptInFiles) {
  const std::string folder = NewFolder(), source = FusedSource(TwoSteps(0.5));
  const cuda::NvrtcPtr api = fake::Nvrtc();
  const auto compiled_by = [&](const std::string& of, int capability, bool forget = true) {
    if (forget) cuda::UseFusedFolder(folder);  // as another process
    const int64_t before = fake::FusedCompiled();
    EXPECT_NE(cuda::FusedImage(*api, of, capability), nullptr);
    return fake::FusedCompiled() - before;
  };
  EXPECT_EQ(compiled_by(source, 90), 1);
  EXPECT_EQ(compiled_by(source, 90, false), 0);
  EXPECT_EQ(compiled_by(source, 90), 0);
  EXPECT_EQ(FilesIn(folder).size(), 1u);
  EXPECT_EQ(compiled_by(source, 80), 1);
  EXPECT_EQ(compiled_by(FusedSource(TwoSteps(0.25)), 90), 1);
  fake::SetNvrtcVersion(2);
  EXPECT_EQ(compiled_by(source, 90), 1);
  EXPECT_EQ(FilesIn(folder).size(), 4u);
  fake::SetNvrtcVersion(1);
  EXPECT_EQ(compiled_by(source, 90), 0);
}

// Each is made again, and is whole then.
TEST_F(CudaFusedImageTest, DamagedFilesAreMadeAgain) {
  const std::string folder = NewFolder(), source = FusedSource(TwoSteps(0.5));
  const cuda::NvrtcPtr api = fake::Nvrtc();
  cuda::UseFusedFolder(folder);
  const unsigned long long* const first = cuda::FusedImage(*api, source, 90);
  ASSERT_EQ(FilesIn(folder).size(), 1u);
  const std::string path = FilesIn(folder)[0], whole = ReadFile(path);
  const std::string image(reinterpret_cast<const char*>(first));
  std::string flipped = whole;
  flipped[flipped.size() / 2] ^= 1;
  for (const std::string& damaged :
       {std::string(), whole.substr(0, 10), whole.substr(0, whole.size() - 1), whole + "x", flipped}) {
    WriteFileAtomically(path, damaged);
    cuda::UseFusedFolder(folder);
    const int64_t before = fake::FusedCompiled();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(cuda::FusedImage(*api, source, 90))), image);
    EXPECT_EQ(fake::FusedCompiled() - before, 1);
    EXPECT_EQ(ReadFile(path), whole);
  }
}

TEST_F(CudaFusedImageTest, AFolderThatCannotBeWritten) {
  const std::string file = NewFolder();
  WriteFileAtomically(file, "a file");
  cuda::UseFusedFolder(file + "/below");
  EXPECT_NE(cuda::FusedImage(*fake::Nvrtc(), FusedSource(TwoSteps(0.5)), 90), nullptr);
  EXPECT_EQ(ReadFile(file), "a file");
}

TEST_F(CudaFusedImageTest, TheFolderIsTheUsersOwn) {
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  const std::string cache = std::getenv("XDG_CACHE_HOME") ? std::getenv("XDG_CACHE_HOME") : "";
  setenv("HOME", "/home/me", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cuda::FusedFolder(), "/home/me/.cache/bindery/fused");
  setenv("XDG_CACHE_HOME", "beside", 1);
  EXPECT_EQ(cuda::FusedFolder(), "/home/me/.cache/bindery/fused");
  setenv("XDG_CACHE_HOME", "/fast", 1);
  EXPECT_EQ(cuda::FusedFolder(), "/fast/bindery/fused");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(cuda::FusedFolder(), "");
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
  if (!cache.empty()) setenv("XDG_CACHE_HOME", cache.c_str(), 1);
}

std::string ImageOf(const std::string& source) {
  const unsigned long long* const image = cuda::FusedImage(*fake::Nvrtc(), source, 90);
  return image ? reinterpret_cast<const char*>(image) : "";
}

// Others could have put there what they like.
TEST_F(CudaFusedImageTest, AFolderThatOthersMayWriteToIsLeftAlone) {
  const std::string folder = NewFolder(), source = FusedSource(TwoSteps(0.5));
  const auto compiles = [&] {
    cuda::UseFusedFolder(folder);
    const int64_t before = fake::FusedCompiled();
    EXPECT_NE(ImageOf(source), "");
    return fake::FusedCompiled() > before;
  };
  EXPECT_TRUE(compiles());
  struct stat about = {};
  ASSERT_EQ(stat(folder.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  EXPECT_FALSE(compiles());
  for (const mode_t mode : {0770, 0707, 0722}) {
    chmod(folder.c_str(), mode);
    EXPECT_TRUE(compiles()) << "it is not read";
  }
  chmod(folder.c_str(), 0755);
  EXPECT_FALSE(compiles());
  std::filesystem::remove(FilesIn(folder).at(0));
  chmod(folder.c_str(), 0777);
  EXPECT_TRUE(compiles());
  EXPECT_TRUE(FilesIn(folder).empty()) << "it is not written";
}

// One compiles, whoever asks meanwhile waits, and others compile beside it.
TEST_F(CudaFusedImageTest, ThreadsCompileEachSourceOnce) {
  constexpr int kThreads = 8;
  const int64_t before = fake::FusedCompiled();
  std::vector<const unsigned long long*> images(kThreads);
  std::latch all(kThreads);
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::string source = FusedSource(TwoSteps(i % 2 + 0.125));
      all.arrive_and_wait();
      images[static_cast<size_t>(i)] = cuda::FusedImage(*fake::Nvrtc(), source, 90);
    });
  }
  threads.clear();
  EXPECT_EQ(fake::FusedCompiled() - before, 2);
  EXPECT_EQ(std::set(images.begin(), images.end()).size(), 2u);
  EXPECT_EQ(std::ranges::count(images, nullptr), 0);
}

// ---- refusals ----

// A prediction of a network with two chains: its value, and how many of its calls are chains.
struct Result {
  HostTensor value;
  int64_t chains;
};
Result Predicted() {
  const Symbol y = Exp(Softmax(Sin(Variable("x")) * 0.5) * 3.0) + 1.0;
  Executor executor(y, {.device = Cuda(0), .inputs = {{"x", {4, 5}}}, .for_training = false});
  executor.Forward({{"x", Uniform({4, 5})}});
  return {executor.Output(0), std::ranges::count(executor.plan().calls, "fused", &PlanCall::implementation)};
}

// What is not the source's fault is so for all sources: it is asked for one, and says one line.
TEST_F(CudaFusedImageTest, AnNvrtcThatDoesNotKnowTheGpu) {
  fake::RefuseCapability(90);
  const int64_t before = fake::FusedAsked();
  const Result refused = Predicted();
  EXPECT_EQ(refused.chains, 0);
  EXPECT_EQ(Predicted().value, refused.value);
  EXPECT_EQ(fake::FusedAsked() - before, 1);
  EXPECT_EQ(warnings_, std::vector<std::string>{"elementwise operators on GPUs are launched one by one: "
                                                "nvrtcCompileProgram for sm_90: NVRTC_ERROR_INVALID_OPTION: "
                                                "the fake refuses it"});
  EXPECT_NE(cuda::FusedImage(*fake::Nvrtc(), FusedSource(TwoSteps(0.5)), 80), nullptr) << "others are not concerned";
  fake::RefuseCapability(0);
  cuda::UseFusedFolder("");
  const Result result = Predicted();
  EXPECT_EQ(result.chains, 2);
  EXPECT_EQ(result.value, refused.value);
}

// It is found out while the operators' own kernels can be had, and is not kept for the next process.
TEST_F(CudaFusedImageTest, ADriverThatRefusesImages) {
  const std::string folder = NewFolder();
  Executor(Variable("x") + 1.0, {.device = Cuda(0), .inputs = {{"x", {2}}}, .for_training = false});
  cuda::UseFusedFolder(folder);
  fake::RefuseImages(true);
  const Result refused = Predicted();
  EXPECT_EQ(refused.chains, 0);
  EXPECT_EQ(Predicted().value, refused.value);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0].find("elementwise operators on GPUs are launched one by one: cuda:0: cuModuleLoadData: "), 0u)
      << warnings_[0];
  EXPECT_TRUE(FilesIn(folder).empty());
  fake::RefuseImages(false);
  cuda::UseFusedFolder(folder);
  EXPECT_EQ(Predicted().chains, 2);
  EXPECT_EQ(FilesIn(folder).size(), 2u);
}

// A file that an older driver could not take is made once more, should a driver come that can.
TEST_F(CudaFusedImageTest, AFileThatTheDriverRefuses) {
  const std::string folder = NewFolder();
  cuda::UseFusedFolder(folder);
  EXPECT_EQ(Predicted().chains, 2);
  cuda::UseFusedFolder(folder);
  fake::RefuseImages(true);
  EXPECT_EQ(Predicted().chains, 0);
  EXPECT_EQ(FilesIn(folder).size(), 1u) << "the one that was tried is removed";
}

}  // namespace
}  // namespace bindery
