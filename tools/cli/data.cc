#include "tools/cli/data.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tools/cli/noted.h"
#include "train/data/data_description.h"
#include "train/data/digits.h"
#include "train/data/label_names.h"
#include "train/data/prefetch_iter.h"
#include "train/data/preprocessing.h"
#include "train/data/records/image_folder.h"
#include "train/data/samples/sample_iter.h"
#include "train/zoo.h"

namespace bindery::cli {
namespace {

constexpr int64_t kMillion = 1'000'000;
constexpr std::string_view kText = "text:";
constexpr int64_t kByteClasses = 256, kDigits = 10;

// `classes`: labels are below; those of bytes may be anything until the training labels have told.
ImageSet ReadImages(const DataOptions& options, MnistPart part, int64_t classes = kByteClasses) {
  const bool train = part == MnistPart::kTrain;
  if (options.data == "digits") {
    // Test digits lie far behind any training digits of the same seed.
    return train ? DrawDigits(options.train_digits, options.digits_seed)
                 : DrawDigits(options.test_digits, options.digits_seed, int64_t{1} << 30);
  }
  std::error_code error;  // a name too long, a circle of links: no folder
  if (!std::filesystem::is_directory(options.data, error)) {
    Throw<DataError>("--data: \"{}\" is neither a folder nor \"digits\" nor text:FILE, nor of {}", options.data,
                     "csv:, images:, npy:, npz:, tar: or tfrecord:");
  }
  ImageSet set = ReadMnist(options.data, part, classes);
  if (set.images.elements() == 0) {
    Throw<DataError>("--data: \"{}\" has no {} images, or empty ones: {}", options.data, train ? "training" : "test",
                     set.images.shape());
  }
  return set;
}

int64_t ClassesOf(const ImageSet& set) {
  double most = 0;
  for (int64_t i = 0; i < set.labels.elements(); ++i) most = std::max(most, set.labels.At(i));
  return static_cast<int64_t>(most) + 1;
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
  if (GivesNumbers(made.model)) {
    throw UsageError(fmt::format("--data: {} gives numbers, but these images have classes", NamedModel(model)));
  }
  if (const auto sample = SampleShape(made.model); model.IsByName() && sample && sample->rank() != 3) {
    throw UsageError(fmt::format("--model: \"{}\" takes text (--data text:FILE), not images", model.Name()));
  }
  ImageSet train = ReadImages(options, MnistPart::kTrain);
  const int64_t classes = options.data == "digits" ? kDigits : std::max<int64_t>(2, ClassesOf(train));
  ImageSet test = ReadImages(options, MnistPart::kTest, classes);
  constexpr std::string_view kFolders = "images:";
  if (std::string folder = options.write_digits; folder.starts_with(kFolders)) {
    MakeOutputFolder("--write-digits", folder = folder.substr(kFolders.size()));
    WriteImageFolder(train, folder + "/train");
    WriteImageFolder(test, folder + "/test");
  } else if (!folder.empty()) {
    MakeOutputFolder("--write-digits", folder);
    WriteIdxImages(train, folder + "/train-images-idx3-ubyte", folder + "/train-labels-idx1-ubyte");
    WriteIdxImages(test, folder + "/t10k-images-idx3-ubyte", folder + "/t10k-labels-idx1-ubyte");
  }
  // A model by name takes images of any shape, these as they are if its own is too small for them; and has as many
  // classes as there are labels, unless its weights know better.
  if (model.IsByName()) {
    const Shape own = *SampleShape(made.model);
    made.model = model.Load(CanFit(train.images.shape(), own) ? own : train.images.shape().Erase(0),
                            model.weights.empty() ? classes : 0);
  }
  if (const auto sample = SampleShape(made.model)) {
    train.images = FitImages(train.images, *sample, NamedModel(model));
    test.images = FitImages(test.images, *sample, NamedModel(model));
  }
  SetSampleShape(&made.model, train.images.shape().Erase(0));
  NoteOtherPreprocessing(options.data, /*settings=*/nullptr, ParsePreprocessing(Preprocessing(made.model)), {});
  SetPreprocessing("", &made.model);
  for (int64_t i = 0; i < train.labels.elements(); ++i) ++made.label_counts[train.labels.At(i)];
  const ArrayIterOptions shuffled{
      .batch_size = options.batch_size, .shuffle = true, .seed = seed, .last_batch = options.LastBatchKind()};
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

std::unique_ptr<DataIter> IterOf(SampleSourcePtr samples, const DataOptions& options, bool training, uint64_t seed) {
  if (samples->samples() == 0) {
    Throw<DataError>("--data: no samples are left to {}; --test-part or --test-data says which are tested on",
                     training ? "train on" : "test on");
  }
  return std::make_unique<SampleIter>(
      std::move(samples), SampleIterOptions{.batch_size = options.batch_size,
                                            .shuffle = training,
                                            .seed = seed,
                                            .last_batch = training ? options.LastBatchKind() : LastBatch::kShort,
                                            .workers = options.workers,
                                            .skip_damaged = options.skip_damaged});
}

// The samples to test with: those of --test-data, else the part of --data that is not trained on.
OpenedData OpenToTest(const DataOptions& options, OpenOptions open) {
  open.training = false;
  OpenedData opened = OpenData(options.Tested(), open);
  if (options.test_data.empty()) opened.samples = SplitSource(opened.samples, options.test_part).part;
  return opened;
}

void CheckSampleShape(const SampleSource& samples, const Model& model, const std::string& name) {
  const Shape& have = samples.data()[0].shape;
  const auto wanted = SampleShape(model);
  if (wanted && *wanted != have)
    Throw<DataError>("--data: samples of {} do not fit {}, which takes {}", have, name, *wanted);
}

// What another training called its classes, they are called here. But a model that is tuned, with weights of another,
// takes their names from data that call them otherwise.
OpenedData OpenToTrain(const DataOptions& options, const ModelOptions& model, const OpenOptions& open) {
  const bool has_names = options.data.starts_with("csv:") || options.data.starts_with("images:");
  if (has_names && model.IsTuned() && !open.classes.empty()) {
    OpenOptions unnamed = open;
    unnamed.classes.clear();
    OpenedData opened = OpenData(options.data, unnamed);
    unnamed.preprocessing = opened.preprocessing;  // what differs is said once
    const auto is_known = [&](const std::string& name) {
      return std::ranges::find(open.classes, name) != open.classes.end();
    };
    if (!std::ranges::all_of(opened.classes, is_known)) return opened;
    unnamed.classes = open.classes;
    return OpenData(options.data, unnamed);
  }
  return OpenData(options.data, open);
}

// As a model that gives numbers takes them.
DataOptions WithNumbers(DataOptions options) {
  options.data = WithNumbersAsLabels(options.data);
  options.test_data = WithNumbersAsLabels(options.test_data);
  return options;
}

// How many numbers a model by name is to give for such labels.
int64_t CountNumbers(const SampleSource& samples, const ModelOptions& model) {
  const int64_t labels = samples.labels()[0].shape.Elements();
  const bool says = model.Name().find("outputs") != std::string::npos;
  if (const int64_t own = ModelClasses(model.Name()); says && own != labels) {
    throw UsageError(
        fmt::format("--data: {} gives {} numbers, but a sample has {} as labels", NamedModel(model), own, labels));
  }
  return labels;
}

TrainingData MakeSamples(const DataOptions& given, const ModelOptions& model, uint64_t seed) {
  if (!given.write_digits.empty()) throw UsageError("--write-digits is for images");
  TrainingData made{.model = model.Load()};
  CheckArguments(made.model, /*labelled=*/true);
  const bool numbers = GivesNumbers(made.model);
  const DataOptions options = numbers ? WithNumbers(given) : given;
  OpenOptions open{.sample = SampleShape(made.model).value_or(Shape()),
                   .classes = ClassNames(made.model),
                   .training = true,
                   .seed = seed,
                   .preprocessing = Preprocessing(made.model)};
  const OpenedData opened = OpenToTrain(options, model, open);
  if (opened.samples->labels().empty()) throw UsageError("--data: a training needs labels");
  if (numbers && opened.num_classes > 0) {
    throw UsageError(
        fmt::format("--data: {} gives numbers, but the labels are classes; those of csv:, npy: and npz: may be numbers",
                    NamedModel(model)));
  }
  if (model.IsByName()) {
    if (!numbers && opened.num_classes == 0) {
      throw UsageError(fmt::format(
          "--data: {} tells classes apart, but the labels are numbers; with the setting head=regression, as in "
          "\"mlp(head=regression)\", it gives numbers",
          NamedModel(model)));
    }
    const int64_t answers = numbers ? CountNumbers(*opened.samples, model) : std::max<int64_t>(2, opened.num_classes);
    const Shape& shape = opened.samples->data()[0].shape;
    if (shape.rank() != open.sample.rank()) CheckSampleShape(*opened.samples, made.model, NamedModel(model));
    made.model = model.Load(shape, model.weights.empty() ? answers : 0);
  }
  CheckSampleShape(*opened.samples, made.model, NamedModel(model));
  SetSampleShape(&made.model, opened.samples->data()[0].shape);
  if (!opened.classes.empty()) SetClassNames(opened.classes, &made.model);
  if (GivesNumbers(made.model)) SetNamesOfNumbers(LabelNames(options.data), &made.model);
  // The model is applied to samples that are made as those of its test, which are those of its training unless said.
  open.sample = opened.samples->data()[0].shape;
  open.classes = opened.classes;
  open.preprocessing = opened.preprocessing;
  OpenedData test = OpenToTest(options, open);
  SetPreprocessing(test.preprocessing.empty() ? opened.preprocessing : test.preprocessing, &made.model);
  const bool split = options.test_data.empty();
  made.train = std::make_unique<PrefetchIter>(
      IterOf(split ? SplitSource(opened.samples, options.test_part).rest : opened.samples, options,
             /*training=*/true, seed));
  made.test = IterOf(std::move(test.samples), options, /*training=*/false, 0);
  return made;
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

void DataOptions::ReadFile(const std::string& path) {
  const DataDescription file = ReadDataDescription(path);
  from_file = true;
  data = file.train;
  test_data = file.test;
  test_part = file.test_part.value_or(test_part);
  says_part = file.test_part.has_value();
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
  AddNumber(app, "--batch-size", &batch_size, 1, kMillion, "samples per step, on all devices together");
}

LastBatch DataOptions::LastBatchKind() const {
  try {
    return ParseLastBatch(last_batch);
  } catch (const DataError& e) {
    throw UsageError("--last-batch: " + e.message());
  }
}

std::string DataOptions::MetricsOr(const std::optional<std::string>& metrics) const {
  // A text's classes are along the last of three axes.
  return metrics.value_or(IsText() ? "accuracy(axis=2),cross-entropy(axis=2)" : "accuracy,cross-entropy");
}

std::string DataOptions::UnitOf(const std::string& metric) const {
  return IsText() && metric == "cross-entropy" ? " nats per character" : "";
}

int64_t SkippedBy(const DataIter& iter) {
  const IterState state = iter.SaveState();
  const auto skipped = state.find("skipped");
  return skipped == state.end() ? 0 : skipped->second;
}

TrainingData MakeTrainingData(const DataOptions& options, const ModelOptions& model, uint64_t seed) {
  if (!options.IsSamples() && !options.test_data.empty()) {
    throw UsageError(fmt::format("--test-data: \"{}\" has its own", options.data));
  }
  TrainingData made = options.IsSamples() ? MakeSamples(options, model, seed)
                      : options.IsText()  ? MakeText(options, model, seed)
                                          : MakeImages(options, model, seed);
  model.CheckWeightsFit(made.model);
  return made;
}

TestData MakeTestData(const DataOptions& given, const Model& trained, const std::string& name, bool predicting) {
  const bool numbers = GivesNumbers(trained);
  const DataOptions options = numbers ? WithNumbers(given) : given;
  if (numbers && !options.IsSamples()) {
    throw UsageError(
        fmt::format("--data: {} gives numbers: it takes csv:, npy: or npz:, got \"{}\"", name, given.data));
  }
  if (options.IsText()) {
    const TextSet text = ReadText(options, &trained);
    return {.iter = MakeWindows(text.validation, options, trained, name, /*random=*/false, 0)};
  }
  if (options.IsSamples()) {
    const std::vector<std::string> classes = ClassNames(trained);
    const SampleSourcePtr samples = OpenToTest(options, {.sample = SampleShape(trained).value_or(Shape()),
                                                         .classes = classes,
                                                         .predicting = predicting,
                                                         .preprocessing = Preprocessing(trained)})
                                        .samples;
    CheckSampleShape(*samples, trained, name);
    const int64_t labels = numbers && !samples->labels().empty() ? samples->labels()[0].shape.Elements() : 1;
    TestData made = Noted(IterOf(samples, options, /*training=*/false, 0), samples, labels);
    made.classes = classes;
    return made;
  }
  if (VocabularySize(trained) > 0) throw UsageError(fmt::format("--data: {} takes text, text:FILE, not images", name));
  NoteOtherPreprocessing(options.data, /*settings=*/nullptr, ParsePreprocessing(Preprocessing(trained)), {});
  ImageSet images = ReadImages(options, MnistPart::kTest);
  if (const auto sample = SampleShape(trained)) images.images = FitImages(images.images, *sample, name);
  return Noted(std::make_unique<ArrayIter>(std::move(images.images), std::move(images.labels),
                                           ArrayIterOptions{.batch_size = options.batch_size}));
}

}  // namespace bindery::cli
