// Bindery's side of the comparison with PyTorch (compare.sh): trains a network of the zoo on request, so that both
// sides can take turns on one machine.
//
//   steps --model lenet --folder FOLDER
//
// First it writes into the folder, as IDX files, what the other side starts from: images and labels (batches in order,
// the same again after the last), and initial/NAME for every parameter. Then it prints "ready" and reads commands:
//   train N   prints a line "LOSS MILLISECONDS" for each of N steps: mean cross-entropy of the batch before its update
//   save      writes final/NAME for every parameter and running statistic; prints "saved"
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/data/idx.h"
#include "train/initializer.h"
#include "train/metrics/metrics.h"
#include "train/precision.h"
#include "train/updater/updater.h"
#include "train/zoo.h"

namespace bindery {
namespace {

struct Options {
  std::string model = "lenet", folder, data = "digits", devices = "cpu:0", optimizer = "sgd", dtype = "float32";
  int64_t batch_size = 64, batches = 20;
  int threads = 0;
};

bool IsSequence(const Options& o) { return ModelInputShape(o.model).rank() == 1; }

// The first samples of the data, in the model's shape. Where that is not the images' own they stand in the middle, each
// channel of each image with a contrast of its own, under noise: colours, and nothing that is the same everywhere.
ImageSet MakeData(const Options& o) {
  const int64_t count = o.batch_size * o.batches;
  ImageSet set = o.data == "digits" ? DrawDigits(count, /*seed=*/1) : MnistFolder(o.data).train;
  const int64_t have = set.labels.elements();
  if (have < count) Throw("--data: {} batches of {} need {} images, got {}", o.batches, o.batch_size, count, have);
  set = {set.images.Slice(0, 0, count), set.labels.Slice(0, 0, count)};
  const Shape from = set.images.shape(), to = ModelInputShape(o.model).Insert(0, count);
  if (from == to) return set;
  const int64_t rows = from[2], columns = from[3], top = (to[2] - rows) / 2, left = (to[3] - columns) / 2;
  if (top < 0 || left < 0) Throw("--data: images {} do not fit into {}", from.Erase(0), to.Erase(0));
  HostTensor fitted(DType::kFloat32, to);
  PhiloxStream random(1, "colours");
  for (float& v : fitted.data<float>()) v = random.Uniform(-0.5f, 0.5f);
  for (int64_t plane = 0; plane < to[0] * to[1]; ++plane) {
    const float contrast = random.Uniform(-2, 2);
    const float* image = set.images.data<float>().data() + plane / to[1] * rows * columns;
    float* out = fitted.data<float>().data() + (plane * to[2] + top) * to[3] + left;
    for (int64_t y = 0; y < rows; ++y) {
      for (int64_t x = 0; x < columns; ++x) out[y * to[3] + x] += contrast * image[y * columns + x];
    }
  }
  return {std::move(fitted), std::move(set.labels)};
}

// Windows of a text that no model knows by heart: the class after c is one of four that c says, at random.
ImageSet MakeSequences(const Options& o) {
  const Shape shape = ModelInputShape(o.model).Insert(0, o.batch_size * o.batches);
  const auto classes = static_cast<uint64_t>(ModelClasses(o.model));
  ImageSet set{HostTensor(DType::kInt32, shape), HostTensor(DType::kInt32, shape)};
  PhiloxStream random(1, "text");
  uint64_t next = 0;
  for (int64_t i = 0; i < shape.Elements(); ++i) {
    const uint64_t present = next;
    next = (5 * present + 1 + random.Below(4)) % classes;
    set.images.Set(i, static_cast<double>(present));
    set.labels.Set(i, static_cast<double>(next));
  }
  return set;
}

void Write(const HostTensorMap& tensors, const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (const auto& [name, value] : tensors) WriteIdx(value, folder + "/" + name);
}

class Training {
 public:
  explicit Training(const Options& o)
      : symbol_(ModelByName(o.model, {.sync_batch_norm = ParseDevices(o.devices).size() > 1})),
        loss_(MakeMetric(IsSequence(o) ? "cross-entropy(eps=0, axis=2)" : "cross-entropy(eps=0)")) {
    ImageSet set = IsSequence(o) ? MakeSequences(o) : MakeData(o);
    const bool is_mixed = SizeOf(ParseDType(o.dtype)) < 4;
    if (!IsSequence(o) && !is_mixed) set.images = set.images.Cast(ParseDType(o.dtype));
    Write({{"images", set.images}, {"labels", set.labels}}, o.folder);
    data_ = std::make_unique<ArrayIter>(std::move(set.images), std::move(set.labels),
                                        ArrayIterOptions{.batch_size = o.batch_size, .last_batch = LastBatch::kRepeat});
    group_ = std::make_unique<DataParallelExecutorGroup>(
        is_mixed ? InPrecision(symbol_, o.dtype, data_->ProvideData()) : symbol_,
        GroupOptions{.devices = ParseDevices(o.devices),
                     .data = data_->ProvideData(),
                     .labels = data_->ProvideLabel(),
                     .threads_per_device = o.threads});
    SetInitialParams(group_.get(), {}, Initializer("xavier"), /*seed=*/1);
    HostTensorMap args;
    group_->GetParams(&args, nullptr);
    Write(args, o.folder + "/initial");
    updater_ = std::make_unique<Updater>(group_.get(), UpdaterOptions{.optimizer = MakeOptimizer(o.optimizer)});
  }

  // One step, until every device has the new parameters. The loss is read afterwards, outside the time.
  void Step() {
    const BatchPtr batch = data_->Next();
    const auto start = std::chrono::steady_clock::now();
    updater_->Update(batch);
    for (const auto& block : group_->store().blocks()) {
      for (const Tensor& values : block.values) values.Wait();
    }
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    loss_->Reset();
    group_->UpdateMetric(loss_.get(), batch->label);
    fmt::print("{} {}\n", loss_->Get()[0].second, elapsed.count());
  }

  void Save(const std::string& folder) const {
    HostTensorMap args, aux;
    group_->GetParams(&args, &aux);
    args.merge(aux);
    Write(args, folder);
  }

 private:
  const Symbol symbol_;
  const std::unique_ptr<Metric> loss_;
  std::unique_ptr<ArrayIter> data_;
  std::unique_ptr<DataParallelExecutorGroup> group_;
  std::unique_ptr<Updater> updater_;
};

int Main(int argc, char** argv) {
  KeepFreedMemory();
  CLI::App app("Bindery's side of compare.sh: trains on request; commands on standard input.", "steps");
  Options o;
  app.add_option("--folder", o.folder, "where tensors are written")->required();
  app.add_option("--model", o.model, "by name")->check(CLI::IsMember(ModelNames()))->capture_default_str();
  app.add_option("--data", o.data, "\"digits\", or a folder with the files of MNIST")->capture_default_str();
  app.add_option("--batch-size", o.batch_size)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batches", o.batches, "different ones")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--device", o.devices, "on several, batch-norm is synchronised")->capture_default_str();
  app.add_option("--threads", o.threads, "per device; 0: the cores, shared out")->capture_default_str();
  app.add_option("--optimizer", o.optimizer)->capture_default_str();
  app.add_option("--dtype", o.dtype, "of everything; bfloat16: mixed precision")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Training training(o);
  fmt::print("ready\n");
  std::fflush(stdout);
  for (std::string command; std::cin >> command; std::fflush(stdout)) {
    int64_t steps = 0;
    if (command == "save") {
      training.Save(o.folder + "/final");
      fmt::print("saved\n");
    } else if (command == "train" && std::cin >> steps) {
      for (int64_t i = 0; i < steps; ++i) training.Step();
    } else {
      Throw("unknown command \"{}\"; there are: train N, save", command);
    }
  }
  return 0;
}

}  // namespace
}  // namespace bindery

int main(int argc, char** argv) {
  try {
    return bindery::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "steps: {}\n", e.what());
    return 1;
  }
}
