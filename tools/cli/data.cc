#include "tools/cli/data.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "train/data/digits.h"
#include "train/data/prefetch_iter.h"

namespace bindery::cli {
namespace {

constexpr int64_t kMillion = 1'000'000;
constexpr std::string_view kText = "text:";

ImageSet ReadImages(const DataOptions& options, MnistPart part) {
  const bool train = part == MnistPart::kTrain;
  if (options.data == "digits") {
    // Test digits lie far behind any training digits of the same seed.
    return train ? DrawDigits(options.train_digits, options.digits_seed)
                 : DrawDigits(options.test_digits, options.digits_seed, int64_t{1} << 30);
  }
  std::error_code error;  // a name too long, a circle of links: no folder
  if (!std::filesystem::is_directory(options.data, error)) {
    Throw<DataError>("--data: \"{}\" is neither a folder nor \"digits\" nor text:FILE", options.data);
  }
  ImageSet set = ReadMnist(options.data, part);
  if (set.images.elements() == 0) {
    Throw<DataError>("--data: \"{}\" has no {} images, or empty ones: {}", options.data, train ? "training" : "test",
                     set.images.shape());
  }
  return set;
}

std::string NamedModel(const ModelOptions& model) { return fmt::format("model \"{}\"", model.Name()); }

// Can images (N, 1, rows, columns) be brought into the form that a model takes?
bool CanFit(const Shape& images, const Shape& sample) {
  return images.Erase(0) == sample || (sample.rank() == 3 && sample[1] >= images[2] && sample[2] >= images[3]);
}

// Images in the form a model takes, (channels, rows, columns): set in the middle of a larger frame, channels repeated.
// Throws DataError if they do not fit, or if all together would take more than 4 GiB.
HostTensor FitImages(const HostTensor& images, const Shape& sample, const std::string& model) {
  const Shape& have = images.shape();  // (N, 1, rows, columns)
  if (sample == have.Erase(0)) return images;
  if (!CanFit(have, sample)) {
    Throw<DataError>("--data: {} images of {} do not fit {}, which takes {}", have[0], have.Erase(0), model, sample);
  }
  constexpr int64_t kMaxElements = int64_t{1} << 30;  // 4 GiB
  const int64_t most = kMaxElements / std::max<int64_t>(1, sample.Elements());
  if (have[0] > most) {
    Throw<DataError>("--data: {} images, set into the {} of {}, take more than 4 GiB; at most {} do", have[0], sample,
                     model, most);
  }
  const int64_t channels = sample[0], rows = sample[1], columns = sample[2];
  HostTensor fitted(DType::kFloat32, {have[0], channels, rows, columns});
  const int64_t top = (rows - have[2]) / 2, left = (columns - have[3]) / 2;
  const float* from = images.data<float>().data();
  float* to = fitted.data<float>().data();
  for (int64_t n = 0; n < have[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t y = 0; y < have[2]; ++y) {
        std::memcpy(to + ((n * channels + c) * rows + top + y) * columns + left, from + (n * have[2] + y) * have[3],
                    static_cast<size_t>(have[3]) * sizeof(float));
      }
    }
  }
  return fitted;
}

TrainingData MakeImages(const DataOptions& options, const ModelOptions& model, uint64_t seed) {
  TrainingData made{.model = model.Load()};
  CheckArguments(made.model, /*labelled=*/true);
  if (const auto sample = SampleShape(made.model); model.IsByName() && sample && sample->rank() != 3) {
    throw UsageError(fmt::format("--model: \"{}\" takes text (--data text:FILE), not images", model.Name()));
  }
  ImageSet train = ReadImages(options, MnistPart::kTrain), test = ReadImages(options, MnistPart::kTest);
  if (const std::string& folder = options.write_digits; !folder.empty()) {
    MakeOutputFolder("--write-digits", folder);
    WriteIdxImages(train, folder + "/train-images-idx3-ubyte", folder + "/train-labels-idx1-ubyte");
    WriteIdxImages(test, folder + "/t10k-images-idx3-ubyte", folder + "/t10k-labels-idx1-ubyte");
  }
  // A model by name takes images of any shape: these as they are, if its own is too small for them.
  if (model.IsByName() && !CanFit(train.images.shape(), *SampleShape(made.model))) {
    made.model = model.Load(train.images.shape().Erase(0));
  }
  if (const auto sample = SampleShape(made.model)) {
    train.images = FitImages(train.images, *sample, NamedModel(model));
    test.images = FitImages(test.images, *sample, NamedModel(model));
  }
  SetSampleShape(&made.model, train.images.shape().Erase(0));
  for (int64_t i = 0; i < train.labels.elements(); ++i) ++made.label_counts[train.labels.At(i)];
  const ArrayIterOptions shuffled{.batch_size = options.batch_size, .shuffle = true, .seed = seed};
  made.train = std::make_unique<PrefetchIter>(
      std::make_unique<ArrayIter>(std::move(train.images), std::move(train.labels), shuffled));
  made.test = std::make_unique<ArrayIter>(std::move(test.images), std::move(test.labels),
                                          ArrayIterOptions{.batch_size = options.batch_size});
  return made;
}

TextSet ReadText(const DataOptions& options, const Model* known) {
  if (!options.write_digits.empty()) throw UsageError("--write-digits is for images");
  const std::string path = options.data.substr(kText.size());
  if (known == nullptr || VocabularySize(*known) == 0) return ReadTextSet(path, options.test_part);
  return ReadTextSet(path, options.test_part, Vocabulary(known->metadata.at(kVocabularyKey)));
}

// Windows as long as the model takes them.
std::unique_ptr<TextIter> MakeWindows(const TextPtr& text, const DataOptions& options, const Model& model,
                                      const std::string& model_name, bool random, uint64_t seed) {
  const auto sample = SampleShape(model);
  if (!sample || sample->rank() != 1) {
    throw UsageError(fmt::format("--data: {} takes {}, not windows of text as gpt and lstm do", model_name,
                                 sample ? ToString(*sample) : "samples of no declared shape"));
  }
  return std::make_unique<TextIter>(text, TextIterOptions{.batch_size = options.batch_size,
                                                          .length = (*sample)[0],
                                                          .random = random,
                                                          .seed = seed,
                                                          .time_first = BatchAxis(model) == 1});
}

TrainingData MakeText(const DataOptions& options, const ModelOptions& model, uint64_t seed) {
  TrainingData made;
  // A model by name without weights has as many classes as the text has characters.
  const bool fresh = model.IsByName() && model.weights.empty();
  if (!fresh) made.model = model.Load();
  const TextSet text = ReadText(options, fresh ? nullptr : &made.model);
  if (fresh) made.model = model.Load({}, text.vocabulary.size());
  CheckArguments(made.model, /*labelled=*/true);
  made.model.metadata[kVocabularyKey] = text.vocabulary.characters();
  for (const int32_t character : *text.train) ++made.label_counts[character];
  made.train = std::make_unique<PrefetchIter>(
      MakeWindows(text.train, options, made.model, NamedModel(model), /*random=*/true, seed));
  made.test = MakeWindows(text.validation, options, made.model, NamedModel(model), /*random=*/false, 0);
  return made;
}

}  // namespace

void DataOptions::AddTo(CLI::App* app) {
  app->add_option("--data", data,
                  "a folder with IDX files as MNIST has them (plain or .gz), \"digits\": drawn by the program, or "
                  "text:FILE")
      ->capture_default_str();
  AddNumber(app, "--train-digits", &train_digits, 1, 10 * kMillion, "drawn digits to train on");
  AddNumber(app, "--test-digits", &test_digits, 1, 10 * kMillion,
            "drawn digits to test on, others than those trained on");
  AddNumber(app, "--digits-seed", &digits_seed, 0, UINT64_MAX, "seed of the drawing");
  AddNumber(app, "--test-part", &test_part, 0, 1, "part of a text, its end, to test on and not to train on");
  AddNumber(app, "--batch-size", &batch_size, 1, kMillion, "samples per step, on all devices together");
}

std::string DataOptions::MetricsOr(const std::optional<std::string>& metrics) const {
  // A text's classes are along the last of three axes.
  return metrics.value_or(IsText() ? "accuracy(axis=2),cross-entropy(axis=2)" : "accuracy,cross-entropy");
}

std::string DataOptions::UnitOf(const std::string& metric) const {
  return IsText() && metric == "cross-entropy" ? " nats per character" : "";
}

TrainingData MakeTrainingData(const DataOptions& options, const ModelOptions& model, uint64_t seed) {
  return options.IsText() ? MakeText(options, model, seed) : MakeImages(options, model, seed);
}

TestData MakeTestData(const DataOptions& options, const Model& trained, const std::string& name) {
  if (options.IsText()) {
    const TextSet text = ReadText(options, &trained);
    return {.iter = MakeWindows(text.validation, options, trained, name, /*random=*/false, 0)};
  }
  if (VocabularySize(trained) > 0) throw UsageError(fmt::format("--data: {} takes text, text:FILE, not images", name));
  ImageSet images = ReadImages(options, MnistPart::kTest);
  if (const auto sample = SampleShape(trained)) images.images = FitImages(images.images, *sample, name);
  TestData made{.labels = images.labels};
  made.iter = std::make_unique<ArrayIter>(std::move(images.images), std::move(images.labels),
                                          ArrayIterOptions{.batch_size = options.batch_size});
  return made;
}

}  // namespace bindery::cli
