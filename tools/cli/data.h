// Where data come from, and batches of them in the form that a model takes.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tools/cli/options.h"
#include "train/data/idx.h"
#include "train/data/open.h"
#include "train/data/text.h"

namespace bindery::cli {

struct DataOptions {
  std::string data = "digits";  // "digits", a folder with IDX files, text:FILE, or as train/data/open.h has it
  std::string test_data = {};   // likewise; empty: a part of data
  int64_t train_digits = 12000, test_digits = 2000;
  uint64_t digits_seed = 1;
  double test_part = 0.1;      // of a text, and of samples
  double validation_part = 0;  // of what is left to train on
  bool on_validation = false;  // of test and predict: that part in place of the test data
  std::string shard = {};      // of all data, I/N; empty: as their texts say
  int64_t batch_size = 64;
  std::string last_batch = "short";
  int workers = 1;  // that decode
  bool skip_damaged = false;
  std::string write_digits = {};  // where images are written, too
  bool from_file = false;         // it was a .prototxt that said what they are
  bool says_part = false;         // and test_part
  int64_t part = 0, parts = 1;    // of several processes, this one's: no options

  void AddTo(CLI::App* app);
  void ReadFile(const std::string& path);  // a .prototxt; throws DataError
  DataOptions WithShards() const;          // the same, with --shard as a setting of the data
  bool IsText() const { return data.starts_with("text:"); }
  bool IsSamples() const { return IsDataText(data); }  // of train/data/open.h
  const std::string& Tested() const { return test_data.empty() ? data : test_data; }
  // What test and predict are of, for people.
  std::string TestedText() const { return on_validation ? "the validation part of " + data : Tested(); }
  LastBatch LastBatchKind() const;  // throws UsageError for none of them
  // What a training is judged by: "validation" or "test".
  const char* JudgedOn() const { return validation_part > 0 ? "validation" : "test"; }
  // What a metric's value is measured in, for people: nats per character, or nothing.
  std::string UnitOf(const std::string& metric) const;
};

std::string NamedModel(const ModelOptions& model);  // as errors call it

// This process's part of it (DataOptions::part).
std::unique_ptr<DataIter> PartOf(std::unique_ptr<DataIter> iter, const DataOptions& options);

// How many samples --skip-damaged has left out, each time that they came: of every epoch.
int64_t SkippedBy(const DataIter& iter);

using LabelCounts = std::map<double, int64_t>;  // how often a class was seen
using LabelCounter = std::function<LabelCounts()>;

// What a model is trained on, and judged by after each epoch.
struct TrainingData {
  Model model = {};  // that of the options, in the form that takes these data
  std::unique_ptr<DataIter> train = {};
  std::unique_ptr<DataIter> test = {};  // the validation part, where there is one
  std::shared_ptr<LabelCounts> label_counts = std::make_shared<LabelCounts>();  // of what was trained on so far
  LabelCounter count_labels = {};  // of all that is to be trained on; of text none
  int64_t num_classes = 0;         // that the data have; 0: their labels are none
};
// All of these throw DataError for data that cannot be read, have no sample or do not fit the model; UsageError for a
// model by name that is not for such data.
TrainingData MakeTrainingData(const DataOptions& options, const ModelOptions& model, uint64_t seed);
// The samples that an iterator has handed out.
struct SeenSamples {
  int64_t count = 0;
  std::vector<double> labels = {};        // of each sample, one after the other; none, where there are none
  std::vector<std::string> records = {};  // what their records are called; none, where they have no names
};
// What trained models are tested with; `name` is how errors call the model.
struct TestData {
  std::unique_ptr<DataIter> iter = {};
  std::shared_ptr<const SeenSamples> seen = {};  // not of text
  std::vector<std::string> classes = {};         // their names, where they have any
};
// `predicting`: the samples need no labels.
TestData MakeTestData(const DataOptions& options, const Model& trained, const std::string& name, bool predicting);

}  // namespace bindery::cli
