// The extension: what a run reports, in files that say the same after a resume.
#include "train/events/tensorboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "symbol/ops.h"
#include "tests/train/events/read_events.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

ArrayIter Data() {
  HostTensor data(DType::kFloat32, {8, 3}), label(DType::kFloat32, {8});
  for (int64_t i = 0; i < data.elements(); ++i) data.Set(i, static_cast<double>(i % 5));
  for (int64_t i = 0; i < 8; ++i) label.Set(i, static_cast<double>(i % 2));
  return ArrayIter(std::move(data), std::move(label), {.batch_size = 2});
}
Symbol Net() { return SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), {}, "softmax"); }

struct RunFile {
  std::map<std::string, std::map<int64_t, float>> scalars;  // by tag and step
  std::map<std::string, std::vector<int64_t>> histograms;   // steps, by tag
  std::vector<int64_t> restarts;
  bool ended = false;
};
RunFile ReadRun(const std::string& path) {
  RunFile run;
  for (const events::Event& event : ReadEvents(path)) {
    if (event.has_session_log()) run.restarts.push_back(event.step());
    for (const auto& value : event.summary().value()) {
      if (value.has_histo()) run.histograms[value.tag()].push_back(event.step());
      if (value.value_case() == events::Summary::Value::kSimpleValue) {
        run.scalars[value.tag()][event.step()] = value.simple_value();
      }
      run.ended |= value.tag() == "_hparams_/session_end_info";
    }
  }
  return run;
}

TEST(TensorBoard, WritesWhatIsReported) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/tensorboard";
  fs::remove_all(folder);
  std::vector<EpochReport> reports;
  Model trained;
  const auto fit = [&](int64_t epochs, bool resume) {
    ArrayIter train = Data(), test = Data();
    Trainer trainer(Net(), {.threads_per_device = 1});
    trainer.Fit(train, {.epochs = epochs,
                        .validation = &test,
                        .checkpoints = folder + "/checkpoints",
                        .resume = resume,
                        .on_epoch = [&](const EpochReport& report) { reports.push_back(report); },
                        .extensions = {TensorBoard({.folder = folder + "/run",
                                                    .trigger = EveryIterations(3),
                                                    .settings = {{"lr", 0.01}},
                                                    .compared = {"validation/accuracy"},
                                                    .begin = [](EventWriter& events) { events.Graph(Net()); }})}});
    trained = trainer.ToModel();
  };
  fit(2, false);
  fit(3, true);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder + "/run")) files.push_back(entry.path());
  std::ranges::sort(files, {}, [](const std::string& f) { return fs::path(f).extension().string(); });
  ASSERT_EQ(files.size(), 2u);  // one for each run; the number behind the last point tells which was first
  const RunFile first = ReadRun(files[0]), second = ReadRun(files[1]);
  EXPECT_TRUE(first.restarts.empty());
  EXPECT_EQ(second.restarts, std::vector<int64_t>{9});
  EXPECT_TRUE(first.ended);
  const auto steps = [](const std::map<int64_t, float>& values) {
    std::vector<int64_t> list;
    for (const auto& [step, value] : values) list.push_back(step);
    return list;
  };
  EXPECT_EQ(steps(first.scalars.at("train/learning-rate")), (std::vector<int64_t>{3, 4, 6, 8}));
  EXPECT_EQ(steps(second.scalars.at("train/learning-rate")), (std::vector<int64_t>{9, 12}));
  ASSERT_EQ(reports.size(), 3u);
  for (size_t e = 0; e < 3; ++e) {
    const RunFile& run = e < 2 ? first : second;
    const int64_t step = 4 * static_cast<int64_t>(e + 1);
    EXPECT_EQ(run.scalars.at("validation/accuracy").at(step), static_cast<float>(reports[e].validation[0].second));
    EXPECT_EQ(run.scalars.at("train/cross-entropy").at(step), static_cast<float>(reports[e].train[1].second));
    EXPECT_EQ(run.scalars.at("run/epoch").at(step), static_cast<float>(e + 1));
  }
  EXPECT_EQ(first.histograms.at("main/fc_weight"), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(second.histograms.at("main/fc_bias"), std::vector<int64_t>{12});
}

TEST(TensorBoard, ARunThatFailsSaysSo) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/failed";
  fs::remove_all(folder);
  ArrayIter train = Data();
  Trainer trainer(Net(), {.threads_per_device = 1});
  EXPECT_THROW(trainer.Fit(train, {.extensions = {TensorBoard({.folder = folder}),
                                                  {.name = "break",
                                                   .trigger = AtIterations({2}),
                                                   .run = [](Loop&) { throw Error("broken"); }}}}),
               Error);
  const std::vector<events::Event> all = ReadEventsIn(folder);
  events::HParamsPluginData data;
  ASSERT_TRUE(data.ParseFromString(all.back().summary().value(0).metadata().plugin_data().content()));
  EXPECT_EQ(data.session_end_info().status(), events::SessionEndInfo::FAILURE);
  EXPECT_THROW(trainer.Fit(train, {.extensions = {TensorBoard({.folder = "/proc/none"})}}), DataError);
}

}  // namespace
}  // namespace bindery
