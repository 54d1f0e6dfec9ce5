#include "tools/cli/image_data.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "train/data/digits.h"
#include "train/data/feed.h"
#include "train/data/prefetch_iter.h"
#include "train/data/preprocessing.h"
#include "train/data/records/image_folder.h"
#include "train/data/samples/numbers.h"

namespace bindery::cli {
namespace {

constexpr int64_t kByteClasses = 256, kDigits = 10;

// "did you mean csv:a.csv?", where a path is given without the kind that it seems to be of.
std::string KindHint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto is_image = [](const fs::path& file) {
    const std::string extension = file.extension();
    return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
  };
  std::string kind;
  if (fs::is_regular_file(path, error)) {
    kind = is_image(path) ? "images" : "text";
    for (const char* known : {"csv", "npy", "npz", "tar", "tfrecord"}) {
      if (fs::path(path).extension() == std::string(".") + known) kind = known;
    }
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().filename().string().find("-ubyte") != std::string::npos) return "";  // those of MNIST
    if (entry.is_directory(error) || is_image(entry.path())) kind = "images";
  }
  return kind.empty() ? "" : fmt::format("; did you mean {}:{}?", kind, path);
}

// `classes`: labels are below; those of bytes may be anything until the training labels have told.
ImageSet ReadImages(const DataOptions& options, MnistPart part, int64_t classes = kByteClasses) {
  const bool train = part == MnistPart::kTrain;
  const std::string data = CutShard(options.data).data;
  if (data == "digits") {
    // Test digits lie far behind any training digits of the same seed.
    return train ? DrawDigits(options.train_digits, options.digits_seed)
                 : DrawDigits(options.test_digits, options.digits_seed, int64_t{1} << 30);
  }
  std::error_code error;  // a name too long, a circle of links: no folder
  if (!std::filesystem::is_directory(data, error)) {
    Throw<DataError>("--data: \"{}\" is neither a folder nor \"digits\" nor text:FILE, nor of {}{}", data,
                     "csv:, images:, npy:, npz:, tar: or tfrecord:", KindHint(data));
  }
  if (const std::string hint = KindHint(data); !hint.empty()) {
    Throw<DataError>("--data: folder \"{}\" has no IDX files as MNIST has them{}", data, hint);
  }
  ImageSet set = ReadMnist(data, part, classes);
  if (set.images.elements() == 0) {
    Throw<DataError>("--data: \"{}\" has no {} images, or empty ones: {}", data, train ? "training" : "test",
                     set.images.shape());
  }
  return set;
}

int64_t ClassesOf(const ImageSet& set) {
  double most = 0;
  for (int64_t i = 0; i < set.labels.elements(); ++i) most = std::max(most, set.labels.At(i));
  return static_cast<int64_t>(most) + 1;
}

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
    const bool has_channels_last = sample.rank() == 3 && (sample[2] == 1 || sample[2] == 3);  // TensorFlow's
    Throw<DataError>("--data: {} images of {} do not fit {}, which takes {}{}", have[0], have.Erase(0), model, sample,
                     has_channels_last ? ": its channels must come first; tf2onnx has --inputs-as-nchw for that" : "");
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

ImageSet Choose(const ImageSet& from, const std::vector<int64_t>& numbers) {
  return {TakeRows(from.images, 0, numbers), TakeRows(from.labels, 0, numbers)};
}

// What of the images the data's text means.
ImageSet ShardOf(ImageSet set, const DataOptions& options) {
  const std::optional<Shard> shard = CutShard(options.data).shard;
  return shard ? Choose(set, NumbersOf(*shard, set.labels.elements())) : std::move(set);
}

// What a training on these images is judged by, which it must not see.
ImageSet TakeValidation(const DataOptions& options, ImageSet* train) {
  const SplitNumbers numbers = SplitByPart(train->labels.elements(), options.validation_part);
  ImageSet validation = Choose(*train, numbers.part);
  *train = Choose(*train, numbers.rest);
  return validation;
}

void CheckAnyLeft(const ImageSet& set, const std::string& purpose) {
  if (set.labels.elements() > 0) return;
  Throw<DataError>("--data: no images are left to {}; --shard and --validation-part say which are", purpose);
}

}  // namespace

Model LoadForData(const ModelOptions& model, const Shape& sample, int64_t answers) {
  const auto load = [&](int64_t wanted) {
    Model made = model.Load(sample, wanted);
    model.CheckWeightsFit(made);
    return made;
  };
  try {
    return load(answers);
  } catch (const CheckpointError&) {
    try {
      return load(0);
    } catch (const CheckpointError&) {  // what is said is what the data need
    }
    throw;
  }
}

TrainingData MakeImageData(const DataOptions& options, const ModelOptions& model, uint64_t seed) {
  TrainingData made{.model = model.Load()};
  CheckInputs(made.model, /*labelled=*/true);
  if (model.IsByName() && GivesNumbers(made.model)) {
    throw UsageError(fmt::format("--data: {} gives numbers, but these images have classes", NamedModel(model)));
  }
  if (const auto sample = SampleShape(made.model); model.IsByName() && sample && sample->rank() != 3) {
    throw UsageError(fmt::format("--model: \"{}\" takes text (--data text:FILE), not images", model.Name()));
  }
  ImageSet train = ReadImages(options, MnistPart::kTrain);
  const int64_t classes = CutShard(options.data).data == "digits" ? kDigits : std::max<int64_t>(2, ClassesOf(train));
  made.num_classes = classes;
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
  // Classes are those of all images, so that all shards number them alike.
  train = ShardOf(std::move(train), options);
  test = options.validation_part > 0 ? TakeValidation(options, &train) : ShardOf(std::move(test), options);
  CheckAnyLeft(train, "train on");
  CheckAnyLeft(test, options.validation_part > 0 ? "validate on" : "test on");
  // A model by name takes images of any shape, these as they are if its own is too small for them; and has as many
  // classes as there are labels, unless its name or its weights know better.
  if (model.IsByName()) {
    const Shape own = *SampleShape(made.model);
    made.model = LoadForData(model, CanFit(train.images.shape(), own) ? own : train.images.shape().Erase(0), classes);
  }
  if (const auto sample = SampleShape(made.model)) {
    train.images = FitImages(train.images, *sample, NamedModel(model));
    test.images = FitImages(test.images, *sample, NamedModel(model));
  }
  SetSampleShape(&made.model, train.images.shape().Erase(0));
  NoteOtherPreprocessing(options.data, /*settings=*/nullptr, ParsePreprocessing(Preprocessing(made.model)), {});
  SetPreprocessing("", &made.model);
  made.count_labels = [labels = train.labels] {
    LabelCounts counts;
    for (int64_t i = 0; i < labels.elements(); ++i) ++counts[labels.At(i)];
    return counts;
  };
  const ArrayIterOptions shuffled{
      .batch_size = options.batch_size, .shuffle = true, .seed = seed, .last_batch = options.LastBatchKind()};
  made.train = std::make_unique<PrefetchIter>(
      PartOf(std::make_unique<ArrayIter>(std::move(train.images), std::move(train.labels), shuffled), options));
  made.test = PartOf(std::make_unique<ArrayIter>(std::move(test.images), std::move(test.labels),
                                                 ArrayIterOptions{.batch_size = options.batch_size}),
                     options);
  return made;
}

ImageSet ImagesToTest(const DataOptions& options, const Model& trained, const std::string& name) {
  NoteOtherPreprocessing(options.data, /*settings=*/nullptr, ParsePreprocessing(Preprocessing(trained)), {});
  ImageSet images = ShardOf(ReadImages(options, options.on_validation ? MnistPart::kTrain : MnistPart::kTest), options);
  if (options.on_validation) images = TakeValidation(options, &images);
  CheckAnyLeft(images, "test on");
  if (const auto sample = SampleShape(trained)) images.images = FitImages(images.images, *sample, name);
  return images;
}

}  // namespace bindery::cli
