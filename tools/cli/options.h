// Options that several commands share, and what is made of them.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "symbol/model.h"
#include "train/array_iter.h"
#include "train/idx.h"
#include "train/trainer.h"

namespace bindery::cli {

// A value of an option that makes no sense: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ModelOptions {
  std::string model;               // a name of the zoo or a file; empty: "lenet", or the checkpoint's
  std::string weights;             // a model file with parameters
  double dropout = 0;
  bool sync_batch_norm = false;

  void AddTo(CLI::App* app);
  // Throws UsageError for what is neither a name nor a file.
  Model Load() const;
  std::string Name() const { return model.empty() ? "lenet" : model; }
};

struct DeviceOptions {
  std::string devices = "cpu:0,cpu:1";
  std::vector<double> workload = {};
  int threads = 0;

  void AddTo(CLI::App* app);
  std::vector<Device> Devices() const;
};

struct DataOptions {
  std::string data = "digits";     // "digits" or a folder with IDX files
  int64_t train_digits = 12000, test_digits = 2000;
  uint64_t digits_seed = 1;
  int64_t batch_size = 64;

  void AddTo(CLI::App* app);
  ImageSet Train() const;
  ImageSet Test() const;
};

// Images in the form a model takes, (channels, rows, columns): set in the middle of a larger frame, channels repeated.
// Throws UsageError if they do not fit.
HostTensor FitImages(const HostTensor& images, const Shape& sample, const std::string& model);
// Shape of one sample of the model's input "data"; no value if the model does not say.
std::optional<Shape> SampleShape(const Model& model, const std::string& name);

// The model to test or predict with: of a file with weights, or of the newest checkpoint in a folder.
Model LoadTrained(const std::string& checkpoints, const ModelOptions& options);

}  // namespace bindery::cli
