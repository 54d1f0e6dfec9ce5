// What does not fit in memory: files' tensors, by the reader's own error, which names the file, and threads.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "tests/message_of.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/gunzip.h"
#include "train/data/idx.h"
#include "train/data/samples/workers.h"

namespace bindery {
namespace {

// Sanitizers need terabytes of address space themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr int64_t kMiB = 1 << 20;

// Does `f` throw an E with this text, in a process that may take only 16 MiB more?
template <class E>
void ExpectErrorInLittleMemory(const std::string& expected, const std::function<void()>& f) {
  if (kSanitized) GTEST_SKIP() << "memory cannot be limited";
  const pid_t child = ::fork();
  if (child == 0) {
    const int64_t used = std::stoll(ReadFile("/proc/self/statm")) * ::sysconf(_SC_PAGESIZE);
    const rlim_t limit = static_cast<rlim_t>(used + 16 * kMiB);
    const rlimit limits{limit, limit};
    ::setrlimit(RLIMIT_AS, &limits);
    const std::string message = MessageOf<E>(f);
    if (message.find(expected) != std::string::npos) ::_exit(0);
    fprintf(stderr, "%s\n", message.c_str());
    ::_exit(1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << expected;
}

TEST(Memory, ThreadsThatCannotBeStarted) {  // for their stacks there is no room
  ExpectErrorInLittleMemory<Error>("cannot be started", [] { Workers workers(64); });
}

TEST(Memory, AnIdxFileThatIsTooLarge) {
  // 64 MiB of elements, which these bytes could be if they were packed ones.
  std::string noise(100'000, '\0');
  PhiloxStream random(1, "noise");
  for (char& byte : noise) byte = static_cast<char>(random.Next());
  const std::string claim = Gzip(std::string("\0\0\x08\x01\x04\0\0\0", 8) + noise);
  ExpectErrorInLittleMemory<DataError>("\"f\": its elements do not fit in memory", [&] { ParseIdx(claim, "f"); });
}

TEST(Memory, ACheckpointThatIsTooLarge) {
  const std::string folder = testing::TempDir() + "/memory_test";
  std::filesystem::remove_all(folder);
  CheckpointStore store(folder);
  Checkpoint checkpoint{.step = 1};
  checkpoint.model.params["small"] = HostTensor(DType::kFloat32, {4});
  store.Save(checkpoint);
  checkpoint.step = 2;
  checkpoint.model.params["large"] = HostTensor(DType::kFloat32, {16 * kMiB});
  const std::string path = store.Save(checkpoint);
  checkpoint = {};
  ExpectErrorInLittleMemory<CheckpointError>(path + "\": it does not fit in memory", [&] { LoadCheckpoint(path); });
  // The newest that can be read is the one before.
  ExpectErrorInLittleMemory<Error>("step 1", [&] { Throw("step {}", store.LoadNewest()->step); });
}

}  // namespace
}  // namespace bindery
