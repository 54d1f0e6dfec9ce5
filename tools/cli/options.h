// Options that several commands share, and what is made of them.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symbol/infer.h"
#include "symbol/model.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "train/checkpoint/folder_lock.h"
#include "train/data/data_iter.h"
#include "train/data/samples/sample_source.h"
#include "train/trainer.h"
#include "train/weights/weights.h"

namespace bindery::cli {

// Of a model's file, of a checkpoint (.ckpt), or of the newest one in a folder. Throws what reading them does.
Model LoadAnyModel(const std::string& path);

struct ModelOptions {
  std::string model;    // a name of the zoo, or what LoadAnyModel reads
  std::string weights;  // what LoadAnyModel reads, or a file of weights (train/weights)
  std::string map;      // rules for the names in it, with ";" between
  double dropout = 0;
  bool sync_batch_norm = false;

  void AddTo(CLI::App* app);          // --model, --weights, --map
  void AddVariantsTo(CLI::App* app);  // --dropout, --sync-batch-norm
  std::string Name() const;           // the model, else the weights' file, else "lenet"
  // The graph by Name(), with the parameters of the weights if given, else of the model's own file, if any. Throws
  // UsageError for what is neither a name nor a file. `input`, of one sample, and `classes` are for a model by name,
  // these where it states none; empty or 0: its own, or the weights'. Names of classes belong to the last layer: where
  // the weights leave some parameters out, to be trained anew, there are none.
  Model Load(const Shape& input = {}, int64_t classes = 0) const;
  int64_t StatedClasses() const;  // by the name's settings, "mlp(classes=20)"; 0: none
  bool IsByName() const;          // of the zoo
  bool IsTuned() const;           // the graph is not that of the weights
  // Throws CheckpointError if the model, as it is made for its data, is not of the shapes of weights from elsewhere.
  void CheckWeightsFit(const Model& loaded) const;
  // Throws UsageError if an output (option, path) would take the place of the model's files.
  void CheckKept(const std::vector<std::pair<std::string, std::string>>& outputs) const;
};

struct DeviceOptions {
  std::string devices = "cpu:0,cpu:1";
  std::vector<double> workload = {};
  int threads = 0;

  int timeout = 600;

  void AddTo(CLI::App* app);
  void AddTimeoutTo(CLI::App* app);
  std::vector<Device> Devices() const;
  // Ends the program if a device hangs.
  std::shared_ptr<Engine> MakeEngine() const;
};

// Shape of one sample of an input of the model, and which of its axes the batch is, as declared in its graph; no value
// if it is not.
std::optional<Shape> SampleShape(const Model& model, const std::string& input = "data");
// The same, or, where the graph leaves it open, that of the training.
std::optional<Shape> LikelySample(const Model& model);
int BatchAxis(const Model& model, const std::string& input = "data");
// Of all inputs that declare it, with so many samples.
ShapeMap SampleShapes(const Model& model, int64_t samples);
// How many classes, or numbers, the model's only output has; 0 if that does not tell.
int64_t AnswersOf(const Model& model);
// How many characters the model's vocabulary has; 0: it has none.
int64_t VocabularySize(const Model& model);
// Declares it, unless it is declared already.
void SetSampleShape(Model* model, const Shape& sample, const std::string& input = "data");
// Of a model's arguments those that may be inputs: no labels, and without values. Their types as declared, or trained
// with; their shapes are left out.
std::vector<SampleArray> MayBeInputs(const Model& model);

// A model from elsewhere in the form of ours: its input, if it has one, called "data", and where its only output has
// classes and no loss, a softmax with the label "softmax_label" (in the place of its own softmax, if it ends in one). Of
// one column, a LogisticRegressionOutput in the place of its sigmoid. Where that ends in no sigmoid, or the model was
// saved as one that gives numbers, a regression.
Model AsClassifier(Model model);

// Has every parameter a value?
bool IsComplete(const Model& model);

// Throws ModelError unless the model takes samples by these arguments and, if `labelled`, their classes by
// "softmax_label".
void CheckArguments(const Model& model, bool labelled, const std::vector<std::string>& given = {"data"});
// The same of other arguments that are given, and that it takes nothing else from outside, a second input say.
void CheckInputs(const Model& model, bool labelled, const std::vector<std::string>& given = {"data"});

// Throws unless the model tells as many classes apart as the data have; 0: their labels are none. UsageError if its name
// states them, else DataError.
void CheckClasses(const Model& model, int64_t classes, const ModelOptions& options);

// Has it an argument for the labels? One that only predicts may have none.
bool TakesLabels(const Model& model);

// Does it answer with numbers, by a head as LinearRegressionOutput, and not with classes? No, if its input declares no
// shape.
bool GivesNumbers(const Model& model);
// What the numbers of such a model are called, as its metadata keep it, one for each output: as the data have it, or
// "value", "value_1", "value_2" ...; where the data have a name twice, the second is "name_2".
std::vector<std::string> NamesOfNumbers(const Model& model, int64_t outputs);
void SetNamesOfNumbers(const std::vector<std::string>& names, Model* model);
void ForgetNamesOfNumbers(Model* model);  // of what it was tuned from

// The names of the values that the metrics give. Throws UsageError.
std::vector<std::string> ParseMetrics(const std::string& metrics);
// Throws UsageError unless the metrics can be taken of the model's outputs and labels for such data.
void CheckMetrics(const std::string& metrics, const Model& model, const DataIter& data);

// Throws NumericError if one of the metrics' values is infinite, and warns of those that have none, which is NaN: those
// of no sample that counts, and correlations where all answers are alike. `set` is what they were measured on. (Outputs
// that are not finite were an error when they were computed.)
void CheckValues(const char* set, const NamedValues& values);

// Of a run's folder, the checkpoint to test or predict with.
struct CheckpointOptions {
  std::string folder = kDefaultCheckpoints, which = "newest";  // or "best"

  void AddTo(CLI::App* app);
};

// The model to test or predict with. Parameters: of --weights, of a model file, of the folder's checkpoint, whichever
// comes first, which `source` then names; the graph is that of --model if given. `info`: that checkpoint's, if it is
// one. Throws CheckpointError if a parameter is missing or too many, NumericError if one is not finite.
struct LoadedModel {
  Model model = {};
  std::string source = {};
  std::map<std::string, std::string> info = {};
};
LoadedModel LoadTrained(const CheckpointOptions& checkpoints, const ModelOptions& options);

// By the rules of --map. Throws UsageError for a rule that is none, and what MapNames does.
Weights RenamedBy(const std::string& map, Weights weights);

// Throws UsageError if two of these are one file or folder: an option and its path, which may be empty.
void CheckDifferent(const std::vector<std::pair<std::string, std::string>>& outputs);
// That a file can be written later, or a folder (which is made). Better to know before the work than after it: throw
// DataError.
void CheckOutputFile(const std::string& option, const std::string& path);
void MakeOutputFolder(const std::string& option, const std::string& path);
// A FolderLock, whose error names the option.
FolderLock LockFolder(const std::string& option, const std::string& path);

}  // namespace bindery::cli
