// The checkpoint of the best epoch, which a store spares and a resume can go back to.
#include "train/checkpoint/best_checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

#include "base/philox.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

Checkpoint At(int64_t step, bool is_best, int64_t elements = 3) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.model.params["w"] = HostTensor::Full(DType::kFloat32, {elements}, static_cast<double>(step));
  SayWhetherBest(is_best, &checkpoint.info);
  return checkpoint;
}

std::string FileOf(int64_t step) { return fmt::format("step-{:010}.ckpt", step); }

class BestCheckpointTest : public testing::Test {
 protected:
  Names Files() const {
    Names names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string Best() const {
    const auto path = FindBest(CheckpointStore(folder_));
    return path ? fs::path(*path).filename().string() : "";
  }
  void Damage(const std::string& name, std::streamoff from_end) const {
    std::fstream file(folder_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-from_end, std::ios::end);
    file.put('!');
  }

  const TestFolder made_;
  const std::string folder_ = made_.path();
  LogLines warnings_{LogLevel::kWarning};
};

TEST_F(BestCheckpointTest, IsKeptBesideTheNewest) {
  CheckpointStore store(folder_, 2);
  EXPECT_EQ(Best(), "");
  for (int64_t step = 1; step <= 5; ++step) store.Save(At(step, step == 1));
  EXPECT_EQ(Files(), (Names{FileOf(1), FileOf(4), FileOf(5)}));
  EXPECT_EQ(Best(), FileOf(1));
  store.Save(At(6, true));  // a better one: the last one is of no use any more
  EXPECT_EQ(Files(), (Names{FileOf(5), FileOf(6)}));
  for (int64_t step = 7; step <= 9; ++step) store.Save(At(step, false));
  EXPECT_EQ(Files(), (Names{FileOf(6), FileOf(8), FileOf(9)}));
  EXPECT_EQ(LoadBest(store)->step, 6);
  EXPECT_EQ(store.LoadNewest()->step, 9);

  Checkpoint plain = At(10, false);
  plain.info.clear();  // a run that does not keep the best one
  store.Save(plain);
  EXPECT_EQ(Files(), (Names{FileOf(9), FileOf(10)}));
  EXPECT_EQ(Best(), "");
}

TEST_F(BestCheckpointTest, GoingBackSetsLaterOnesAside) {
  const CheckpointStore store(folder_, 3);
  EXPECT_FALSE(GoBackToBest(store).has_value());
  CheckpointStore(folder_, 3).Save(At(1, false));
  EXPECT_FALSE(GoBackToBest(store).has_value());
  for (int64_t step = 2; step <= 6; ++step) CheckpointStore(folder_, 3).Save(At(step, step == 3));
  ASSERT_EQ(Files(), (Names{FileOf(3), FileOf(4), FileOf(5), FileOf(6)}));
  EXPECT_EQ(GoBackToBest(store), folder_ + "/" + FileOf(3));
  EXPECT_EQ(Files(), (Names{FileOf(3), FileOf(4) + ".old", FileOf(5) + ".old", FileOf(6) + ".old"}));
  EXPECT_EQ(store.LoadNewest()->step, 3);
  EXPECT_EQ(GoBackToBest(store), folder_ + "/" + FileOf(3));  // once more: nothing is left to do
}

// What was set aside before is kept, too.
TEST_F(BestCheckpointTest, GoingBackAgainKeepsAll) {
  for (const double value : {1, 2, 3}) {
    CheckpointStore(folder_, 3).Save(At(1, true));
    Checkpoint later = At(2, false);
    later.model.params["w"] = HostTensor::Full(DType::kFloat32, {3}, value);
    CheckpointStore(folder_, 3).Save(later);
    GoBackToBest(CheckpointStore(folder_));
  }
  const std::string later = FileOf(2) + ".old";
  EXPECT_EQ(Files(), (Names{FileOf(1), later, later + "2", later + "3"}));
  EXPECT_EQ(LoadCheckpoint(folder_ + "/" + later).model.params.at("w").At(0), 1);
  EXPECT_EQ(LoadCheckpoint(folder_ + "/" + later + "3").model.params.at("w").At(0), 3);
}

TEST_F(BestCheckpointTest, GoingBackTakesNamesThatAreFree) {
  for (int64_t step = 1; step <= 3; ++step) CheckpointStore(folder_, 3).Save(At(step, step == 1));
  fs::create_symlink("nowhere", folder_ + "/" + FileOf(2) + ".old");  // is there all the same
  GoBackToBest(CheckpointStore(folder_));
  EXPECT_EQ(Files(), (Names{FileOf(1), FileOf(2) + ".old", FileOf(2) + ".old2", FileOf(3) + ".old"}));
}

// One that cannot be read is perhaps the best: it is not removed for it.
TEST_F(BestCheckpointTest, OneThatCannotBeReadIsSpared) {
  CheckpointStore store(folder_, 1);
  for (int64_t step = 1; step <= 3; ++step) store.Save(At(step, step == 2));
  const std::string best = folder_ + "/" + FileOf(2), aside = folder_ + "/aside";
  fs::rename(best, aside);
  fs::create_directory(best);  // cannot be read
  std::ofstream(best + "/file");
  for (int64_t step = 4; step <= 5; ++step) store.Save(At(step, false));
  EXPECT_EQ(warnings_.text(), "");  // nobody has tried to remove it
  fs::remove_all(best);
  std::ofstream(best) << "cut";
  store.Save(At(6, false));
  fs::rename(aside, best);
  store.Save(At(7, false));
  EXPECT_EQ(Files(), (Names{FileOf(2), FileOf(7)}));
  EXPECT_EQ(Best(), FileOf(2));
  fs::resize_file(best, 10);
  store.Save(At(8, true));  // a better one: now it can go, whatever it was
  EXPECT_EQ(Files(), (Names{FileOf(8)}));
}

// As where the folder that it led to is not mounted: that is not one which a run has just removed.
TEST_F(BestCheckpointTest, ALinkToNothingIsPassedOver) {
  CheckpointStore(folder_, 2).Save(At(1, false));
  fs::create_symlink("nowhere", folder_ + "/" + FileOf(9999));
  EXPECT_EQ(FindBest(CheckpointStore(folder_)), std::nullopt);
  EXPECT_EQ(LoadBest(CheckpointStore(folder_)), std::nullopt);
  CheckpointStore(folder_, 2).Save(At(2, true));
  EXPECT_EQ(Best(), FileOf(2));
}

TEST_F(BestCheckpointTest, DamagedOnes) {
  CheckpointStore store(folder_, 2);
  for (int64_t step = 1; step <= 4; ++step) store.Save(At(step, step == 2));
  const Names all = Files();
  ASSERT_EQ(all, (Names{FileOf(2), FileOf(3), FileOf(4)}));
  fs::resize_file(folder_ + "/" + FileOf(4), 10);  // others are found all the same
  EXPECT_EQ(Best(), FileOf(2));
  Damage(FileOf(2), 1);  // its last number
  EXPECT_NE(MessageOf<CheckpointError>([&] { LoadBest(store); }).find("the checksum is wrong"), std::string::npos);
  EXPECT_NE(MessageOf<CheckpointError>([&] { GoBackToBest(store); }).find(FileOf(2)), std::string::npos);
  EXPECT_EQ(Files(), all);  // nothing was set aside for it
}

// A process that saves without end, every fifth time the best so far, is killed at any moment.
TEST_F(BestCheckpointTest, KilledWhileSaving) {
  PhiloxStream random(2, "kill");
  int64_t saved = 0;
  // More rounds where so little is done in one that no second one has been the best.
  for (int round = 0; round < 25 || (saved <= 5 && round < 500); ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        CheckpointStore store(folder_, 1 + round % 2);
        for (int64_t step = saved + 1;; ++step) store.Save(At(step, step % 5 == 1, 100000));
      } catch (...) {  // the parent sees that nothing more was saved
      }
      ::_exit(1);
    }
    while (round == 0 && Best().empty()) ::usleep(1000);  // let there be one
    ::usleep(static_cast<useconds_t>(random.Below(20000)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ::waitpid(child, nullptr, 0);
    const CheckpointStore store(folder_);
    const std::optional<Checkpoint> newest = store.LoadNewest(), best = LoadBest(store);
    ASSERT_TRUE(newest.has_value() && best.has_value());
    EXPECT_EQ(best->step, (newest->step - 1) / 5 * 5 + 1);
    EXPECT_EQ(best->model.params.at("w"), HostTensor::Full(DType::kFloat32, {100000}, static_cast<double>(best->step)));
    saved = newest->step;
  }
  EXPECT_GT(saved, 5);
  EXPECT_EQ(warnings_.text(), "");
  saved = (saved / 5 + 1) * 5 + 2;  // behind one that was the best
  CheckpointStore(folder_, 1).Save(At(saved - 1, true));
  CheckpointStore(folder_, 1).Save(At(saved, false));
  EXPECT_EQ(Files(), (Names{FileOf(saved - 1), FileOf(saved)}));  // neither older ones nor temporaries
}

// Whatever the run beside them does, readers find the newest and the best: each is there whole before the last one goes.
TEST_F(BestCheckpointTest, ReadersFindThemBesideARunThatGoesOn) {
  SetLogCallback(nullptr);
  const auto save = [this](int64_t step) {
    Checkpoint checkpoint = At(step, step % 2 == 0);
    checkpoint.info["much"] = std::string(2 << 20, 'x');  // to be read before the best one is looked at
    CheckpointStore(folder_, 1).Save(checkpoint);
  };
  save(0);
  const std::jthread run([&](const std::stop_token& stop) {
    for (int64_t step = 1; !stop.stop_requested(); ++step) save(step);
  });
  const CheckpointStore store(folder_);
  int64_t newest = 0, best = 0;
  for (int i = 0; i < 40; ++i) {
    const std::optional<Checkpoint> read = store.LoadNewest(), kept = LoadBest(store);
    ASSERT_TRUE(read && kept) << i;
    EXPECT_GE(read->step, newest);
    EXPECT_GE(kept->step, best);
    std::tie(newest, best) = std::pair(read->step, kept->step);
  }
}

}  // namespace
}  // namespace bindery
