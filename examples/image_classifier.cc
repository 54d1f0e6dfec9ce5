// A classifier of images: trained on a folder that has a folder of images for each class, tested on images that it has
// not seen, saved, and asked about single files.
//
//   image_classifier train photos photos.pb     # photos/cat/*.jpg, photos/dog/*.png, ...
//   image_classifier predict photos.pb new/*.jpg
//   tools/bazel run //examples:image_classifier # draws digits to a folder, then does both
//
// Training prints the accuracy of each epoch, and at last how often each class was known; prediction prints a line for
// each file: the likeliest class, its probability, the file.
//
// Expected: of the drawn digits, accuracy above 0.9 in the last epoch, in less than a minute; and 10 of 10 files or 9 right.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bindery/bindery.h"

using namespace bindery;

namespace {

constexpr int64_t kSide = 32;  // images are scaled to kSide x kSide, with three channels

void Train(const std::string& folder, const std::string& path, int64_t epochs) {
  // The same files twice: moved about at random to train on, as they are to test on.
  const std::string data = "images:" + folder + "?size=" + std::to_string(kSide);
  const OpenedData moved = OpenData(data + "&crop=random&padding=3&brightness=0.2", {.training = true, .seed = 1});
  const OpenedData plain = OpenData(data);
  constexpr double kTestPart = 0.2;  // drawn without regard to the files' order, and the same for both
  PrefetchIter train(std::make_unique<SampleIter>(
      SplitSource(moved.samples, kTestPart).rest,
      SampleIterOptions{.batch_size = 32, .shuffle = true, .last_batch = LastBatch::kDiscard, .workers = 2}));
  SampleIter test(SplitSource(plain.samples, kTestPart).part, {.batch_size = 32});
  std::printf("%lld images to train on, %lld to test on, %lld classes\n", static_cast<long long>(train.samples()),
              static_cast<long long>(test.samples()), static_cast<long long>(moved.num_classes));

  Model model{.symbol = ModelByName("resnet20", {.num_classes = moved.num_classes})};
  SetClassNames(moved.classes, &model);
  SetPreprocessing(plain.preprocessing, &model);  // so that whoever has the model makes the same of an image
  Trainer trainer(model, {.optimizer = "sgd(lr=0.05, momentum=0.9, wd=0.0005)",
                          .schedule = "cosine(" + std::to_string(epochs) + ", unit=epoch)"});
  trainer.Fit(train, {.epochs = epochs, .validation = &test, .on_epoch = [](const EpochReport& report) {
                        std::printf("epoch %d: accuracy %.4f in training, %.4f in the test\n",
                                    static_cast<int>(report.epoch + 1), report.train[0].second,
                                    report.validation[0].second);
                        std::fflush(stdout);
                      }});
  trainer.Save(path);

  const size_t classes = moved.classes.size();
  std::vector<int> right(classes), all(classes);
  trainer.PredictEach(test, [&](const Batch& batch, const std::vector<HostTensor>& outputs) {
    for (int64_t i = 0; i < batch.samples; ++i) {
      const auto label = static_cast<size_t>(batch.label[0].At(i));
      const float* scores = outputs[0].data<float>().data() + i * static_cast<int64_t>(classes);
      ++all[label];
      right[label] += std::max_element(scores, scores + classes) - scores == static_cast<int64_t>(label);
    }
    return true;
  });
  for (size_t i = 0; i < classes; ++i) std::printf("  %-12s %d of %d\n", moved.classes[i].c_str(), right[i], all[i]);
  std::printf("saved: %s\n", path.c_str());
}

// How many of the files lie in a folder of the class that they are taken for.
int Predict(const std::string& path, const std::vector<std::string>& files) {
  const Model model = LoadModel(path);
  const std::vector<std::string> classes = ClassNames(model);
  if (classes.empty()) throw DataError(path + ": the model names no classes");
  const ImageOptions options = PreprocessingOfImages(model);
  const Shape batch{1, options.channels, options.rows, options.columns};
  const Predictor predictor(model, {.inputs = {{"data", batch}}});
  int right = 0;
  for (const std::string& file : files) {
    const HostTensor image = ReadImageFile(file, options);
    const HostTensor scores = predictor.Predict({{"data", image.Reshape(batch)}})[0];
    const auto probabilities = scores.data<float>();
    const auto best = std::ranges::max_element(probabilities) - probabilities.begin();
    const std::string& name = classes.at(static_cast<size_t>(best));
    std::printf("%-12s %.4f  %s\n", name.c_str(), probabilities[static_cast<size_t>(best)], file.c_str());
    right += std::filesystem::path(file).parent_path().filename() == name;
  }
  return right;
}

void DrawTrainAndPredict(const std::string& folder) {
  std::printf("drawing digits to %s/train and %s/new\n", folder.c_str(), folder.c_str());
  WriteImageFolder(DrawDigits(1500, /*seed=*/1), folder + "/train");
  WriteImageFolder(DrawDigits(10, /*seed=*/1, /*first=*/1 << 20), folder + "/new");
  Train(folder + "/train", folder + "/digits.pb", /*epochs=*/4);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder + "/new")) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  const int right = Predict(folder + "/digits.pb", files);
  std::printf("%d of %d new files right\n", right, static_cast<int>(files.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments[0];
  try {
    if (arguments.empty()) {
      // `bazel run` starts programs in a folder of its own and says where it was called.
      const char* called_in = std::getenv("BUILD_WORKING_DIRECTORY");
      DrawTrainAndPredict(std::string(called_in ? called_in : ".") + "/digits");
    } else if (command == "train" && arguments.size() == 3) {
      Train(arguments[1], arguments[2], /*epochs=*/30);
    } else if (command == "predict" && arguments.size() >= 3) {
      Predict(arguments[1], {arguments.begin() + 2, arguments.end()});
    } else {
      std::fprintf(stderr,
                   "usage: image_classifier train FOLDER MODEL.pb\n"
                   "       image_classifier predict MODEL.pb FILE...\n");
      return 2;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "image_classifier: %s\n", e.what());
    return 1;
  }
}
