// The options that say where data come from.
#include <optional>

#include "tools/cli/data.h"
#include "train/data/data_description.h"
#include "train/data/samples/numbers.h"
#include "train/data/settings.h"

namespace bindery::cli {
namespace {

constexpr int64_t kMillion = 1'000'000;

// The same with --shard as a setting of the data.
std::string WithShard(const std::string& data, const std::string& shard) {
  if (data.empty() || shard.empty()) return data;
  std::optional<Shard> said;
  if (!IsDataText(data)) {
    said = CutShard(data).shard;
  } else if (DataSettings settings(data); settings.IsSaid("shard")) {
    said = ParseShard(settings.Text("shard"));
  }
  if (said && *said != ParseShard(shard)) {
    throw UsageError(fmt::format("--shard {}: \"{}\" is another one", shard, data));
  }
  if (said) return data;
  return fmt::format("{}{}shard={}", data, IsDataText(data) && data.find('?') != std::string::npos ? "&" : "?", shard);
}

}  // namespace

DataOptions DataOptions::WithShards() const {
  DataOptions options = *this;
  options.data = WithShard(data, shard);
  options.test_data = WithShard(test_data, shard);
  return options;
}

void DataOptions::ReadFile(const std::string& path) {
  const DataDescription file = ReadDataDescription(path);
  from_file = true;
  data = file.train;
  test_data = file.test;
  test_part = file.test_part.value_or(test_part);
  says_part = file.test_part.has_value();
  validation_part = file.validation_part.value_or(validation_part);
  last_batch = file.last_batch.value_or(last_batch);
  workers = file.workers.value_or(workers);
  skip_damaged = file.skip_damaged.value_or(skip_damaged);
}

void DataOptions::AddTo(CLI::App* app) {
  // First, so that what else is on the command line counts more than a file.
  app->add_option_function<std::string>(
         "--data",
         [this](const std::string& text) {
           if (text.ends_with(".prototxt")) return ReadFile(text);
           data = text;
         },
         "a folder with IDX files as MNIST has them (plain or .gz), \"digits\": drawn by the program, or text:FILE; or "
         "csv:FILE, npy:FILE, npz:FILE, images:FOLDER, tar:FILES, tfrecord:FILES with settings behind \"?\"; or a "
         ".prototxt that says so (docs/data.md)")
      ->default_str(data);
  app->add_option("--test-data", test_data, "samples to test on, as --data; default: a part of those");
  app->add_option("--last-batch", last_batch,
                  "what becomes of samples that do not fill a batch, in training: short, pad, discard or roll-over")
      ->capture_default_str();
  AddNumber(app, "--workers", &workers, 1, 1024, "threads that read and decode samples");
  app->add_flag("--skip-damaged", skip_damaged, "skip samples that cannot be read, with a warning for each");
  AddNumber(app, "--train-digits", &train_digits, 1, 10 * kMillion, "drawn digits to train on");
  AddNumber(app, "--test-digits", &test_digits, 1, 10 * kMillion,
            "drawn digits to test on, others than those trained on");
  AddNumber(app, "--digits-seed", &digits_seed, 0, UINT64_MAX, "seed of the drawing");
  AddNumber(
      app, "--test-part", &test_part, 0, 1,
      "part of a text, its end, or of samples, drawn, to test on and not to train on; predict takes all of its --data");
  AddNumber(
      app, "--validation-part", &validation_part, 0, 0.99,
      "part of what is left to train on, drawn, of a text its end: not trained on but judged by after each epoch, "
      "in place of the test data, which stay unseen; 0: none");
  app->add_option_function<std::string>(
         "--shard",
         [this](const std::string& text) {
           try {
             ParseShard(text);
           } catch (const DataError& e) {
             throw UsageError("--shard: " + e.message());
           }
           shard = text;
         },
         "every N-th sample from number I on, from 0, of all data, as \"?shard=I/N\"; of a text, a stretch "
         "(docs/data.md)")
      ->type_name("I/N");
  AddNumber(app, "--batch-size", &batch_size, 1, kMillion, "samples per step, on all devices together");
}

LastBatch DataOptions::LastBatchKind() const {
  try {
    return ParseLastBatch(last_batch);
  } catch (const DataError& e) {
    throw UsageError("--last-batch: " + e.message());
  }
}

std::string DataOptions::UnitOf(const std::string& metric) const {
  return IsText() && metric == "cross-entropy" ? " nats per character" : "";
}

}  // namespace bindery::cli
