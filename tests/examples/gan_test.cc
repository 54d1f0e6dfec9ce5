// examples/gan: what its first lines promise, and that a run that is killed ends as one that is not.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "symbol/model.h"
#include "tests/tools/program.h"
#include "train/checkpoint/checkpoint.h"

namespace bindery {
namespace {

std::vector<std::string> Gan(const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return {std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/examples/gan", folder};
}

TEST(GanExample, KilledAndResumedItEndsInTheSameBits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "seconds of arithmetic, ten times as long under a sanitizer";
#endif
  const std::string temporary = std::getenv("TEST_TMPDIR");
  const std::vector<std::string> whole = Gan(temporary + "/whole"), cut = Gan(temporary + "/cut");
  const Outcome outcome = Process(whole, temporary).Wait(std::chrono::minutes(2));
  ASSERT_EQ(outcome.status, 0) << outcome;

  std::vector<double> distances;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    int epoch = 0, iteration = 0;
    double accuracy = 0, distance = 0;
    if (std::sscanf(line.c_str(), "%d %d %lf %lf", &epoch, &iteration, &accuracy, &distance) != 4) continue;
    EXPECT_EQ(iteration, 40 * epoch);
    EXPECT_TRUE(accuracy > 0 && accuracy <= 1) << line;
    distances.push_back(distance);
  }
  ASSERT_EQ(distances.size(), 12u) << outcome;
  EXPECT_GT(distances.front(), 0.25);
  EXPECT_LT(distances.back(), 0.2);

  for (const size_t checkpoints : {1, 2}) {  // each time it gets further
    Process killed(cut, temporary);
    const size_t before = CheckpointStore(cut[1]).List().size();
    while (killed.Running() && CheckpointStore(cut[1]).List().size() < std::min<size_t>(before + checkpoints, 3)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    killed.Signal(SIGKILL);
    EXPECT_NE(killed.Wait().status, 0);
  }
  const std::optional<Checkpoint> left = CheckpointStore(cut[1]).LoadNewest();
  ASSERT_TRUE(left);
  EXPECT_LT(left->step, 12 * 40);
  const Outcome resumed = Process(cut, temporary).Wait(std::chrono::minutes(2));
  ASSERT_EQ(resumed.status, 0) << resumed;
  EXPECT_EQ(LoadModel(cut[1] + "/generator.pb").params, LoadModel(whole[1] + "/generator.pb").params);
  const std::optional<Checkpoint> end = CheckpointStore(cut[1]).LoadNewest(),
                                  expected = CheckpointStore(whole[1]).LoadNewest();
  EXPECT_EQ(end->model.params, expected->model.params);
  EXPECT_EQ(end->optimizer_state, expected->optimizer_state);
  EXPECT_EQ(end->iterator, expected->iterator);
}

}  // namespace
}  // namespace bindery
