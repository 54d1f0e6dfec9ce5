// Iterators with threads, in a fork that has none of these.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "tests/message_of.h"
#include "train/data/array_iter.h"
#include "train/data/prefetch_iter.h"
#include "train/data/samples/workers.h"

namespace bindery {
namespace {

class Forked {
 public:
  Forked() {
    const HostTensor values(DType::kFloat32, {8, 1});
    iterator_ = std::make_unique<PrefetchIter>(
        std::make_unique<ArrayIter>(values, values, ArrayIterOptions{.batch_size = 2}), 1);
    iterator_->Next();
    workers_.ForEach(10, [](int64_t) {});
  }

  // In the fork: 0 if all is as it should be. What waited for a thread that is not there, the alarm would end.
  int Use() {
    alarm(60);
    const std::string expected = "Error: the iterator was made before this process was forked";
    const auto refused = [&](const auto& call) { return MessageOf(call).starts_with(expected); };
    if (!refused([&] { iterator_->Next(); })) return 1;
    if (!refused([&] { iterator_->Reset(); })) return 2;
    if (!refused([&] { iterator_->LoadState(iterator_->SaveState()); })) return 3;
    if (!refused([&] { workers_.ForEach(10, [](int64_t) {}); })) return 4;
    int64_t sum = 0;
    alone_.ForEach(10, [&](int64_t i) { sum += i; });  // it has no threads to miss
    return sum == 45 ? 0 : 5;
  }

 private:
  std::unique_ptr<PrefetchIter> iterator_;
  Workers workers_{3}, alone_{1};
};

TEST(DataForkDeathTest, AForkIsToldThatItHasNoThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends forks of processes with threads";
#endif
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer ends forks of processes with threads";
#endif
#endif
  auto forked = std::make_unique<Forked>();
  EXPECT_EXIT(
      {
        const int result = forked->Use();
        forked.reset();  // waits for nobody either
        _exit(result);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace bindery
