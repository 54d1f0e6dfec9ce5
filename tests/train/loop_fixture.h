// A learner that does nothing but count, and a folder for what a loop of it writes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "tests/log_lines.h"
#include "tests/test_folder.h"
#include "train/loop/loop.h"

namespace bindery {

// Four iterations are an epoch. Its parameter is the iteration; "loss" 1 / iteration, of two samples.
class Counter final : public Learner {
 public:
  void Update() override {
    ++iteration_;
    if (iteration_ == fails_at) Throw<DataError>("iteration {}", iteration_);
  }
  Moment now() const override {
    return {.iteration = iteration_,
            .epoch = iteration_ / 4,
            .epoch_detail = static_cast<double>(iteration_) / 4,
            .is_new_epoch = iteration_ % 4 == 0};
  }
  void Observe(Observation* observation) override {
    observation->Report("loss", 1.0 / static_cast<double>(iteration_), 2);
  }
  Checkpoint ToCheckpoint() override {
    const HostTensor value = HostTensor::Full(DType::kFloat32, {1}, iteration_ == bad_at ? NAN : 1);
    return {.model = {.params = {{"w", value}}}, .step = iteration_, .epoch = iteration_ / 4};
  }
  void Restore(const Checkpoint& checkpoint) override {
    EXPECT_TRUE(checkpoint.numbers.empty()) << "what is the loop's is not the learner's";
    if (checkpoint.step == refused) Throw<CheckpointError>("refused");
    iteration_ = checkpoint.step;
  }
  std::vector<std::string> model_names() const override { return {}; }
  Model ToModel(const std::string&) const override {
    return {.params = {{"w", HostTensor::Full(DType::kFloat32, {1}, static_cast<double>(iteration_))}}};
  }
  Updater& updater(const std::string&) override { throw Error("none"); }
  void Connect(Loop*) override { log += "connect "; }
  void Finalize() override { log += "finalize "; }

  int64_t fails_at = -1, bad_at = -1, refused = -1;
  std::string log;

 private:
  int64_t iteration_ = 0;
};

class LoopTest : public testing::Test {
 protected:
  std::string Read(const std::string& name) const { return ReadFile(folder_ + "/" + name); }
  // Lines of a log without their times.
  std::vector<std::string> Lines(const std::string& name) const {
    std::istringstream text(Read(name));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
      const size_t begin = line.find("\"seconds\""), end = line.find(',', begin);
      lines.push_back(line.erase(begin, end + 1 - begin));
    }
    return lines;
  }
  std::vector<std::string> Checkpoints() const {
    std::vector<std::string> names;
    for (const std::string& path : CheckpointStore(folder_).List())
      names.push_back(std::filesystem::path(path).filename());
    return names;
  }

  const TestFolder made_;
  const std::string& folder_ = made_.path();
  LogLines log_;
};

}  // namespace bindery
