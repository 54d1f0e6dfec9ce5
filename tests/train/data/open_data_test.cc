#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "train/data/data_description.h"
#include "train/data/open.h"
#include "train/data/prefetch_iter.h"
#include "train/data/records/image_folder.h"
#include "train/data/samples/sample_iter.h"
#include "train/data/settings.h"
#include "train/weights/npz_writer.h"

namespace bindery {
namespace {

const std::string kFolder = "tests/train/stored/";

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name;
  WriteFileAtomically(path, bytes);
  return path;
}

BatchPtr All(const OpenedData& opened) {
  SampleIter iter(opened.samples, {.batch_size = std::max<int64_t>(1, opened.samples->samples())});
  return iter.Next();
}

std::string Refused(const std::string& text, const OpenOptions& options = {}) {
  return MessageOf<DataError>([&] { OpenData(text, options); });
}

TEST(OpenData, Csv) {
  const std::string path = Write("a.csv", "x;y;kind\n1;2;b\n3;NA;a\n");
  const OpenedData opened = OpenData("csv:" + path + "?separator=;&missing=9");
  EXPECT_EQ(opened.classes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(opened.num_classes, 2);
  EXPECT_EQ(All(opened)->data[0], HostTensor::From({2, 2}, {1, 2, 3, 9}));
  EXPECT_EQ(All(opened)->label[0], HostTensor::From({2}, {1, 0}));
  // As images, where a model takes these; with classes that another training has numbered.
  const OpenedData images = OpenData("csv:" + path + "?separator=;&missing=leave-out&label=kind",
                                     {.sample = {1, 28, 28}, .classes = {"b", "a", "c"}});
  EXPECT_EQ(All(images)->data[0], HostTensor::From({1, 1, 1, 2}, {1, 2}));
  EXPECT_EQ(All(images)->label[0], HostTensor::From({1}, {0}));
  EXPECT_EQ(images.num_classes, 3);
  const std::string numbers = Write("b.csv", "1,2.5\n");
  EXPECT_EQ(All(OpenData("csv:" + numbers + "?label_kind=numbers"))->label[0], HostTensor::From({1}, {2.5}));
  EXPECT_TRUE(OpenData("csv:" + numbers + "?label=none").samples->labels().empty());
}

// Padding stands before random crops alone, which are of a training: what is tested on is cut as it is.
TEST(OpenData, ImagesThatArePaddedInTrainingAloneMustDoWithoutInTests) {
  const std::filesystem::path folder = testing::TempDir() + "/padded_images";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "a");
  std::filesystem::copy(kFolder + "pillow_rgb.png", folder / "a");
  const std::string text = "images:" + folder.string() + "?resize=24&size=28&padding=2&crop=";
  const std::string small = "DataError: images: a shorter side of 24 pixels is too small to cut 28 x 28 out of it";
  EXPECT_EQ(OpenData(text + "random", {.training = true}).samples->samples(), 1);
  EXPECT_EQ(Refused(text + "random"), small);
  EXPECT_EQ(Refused(text + "centre", {.training = true}), small);
  EXPECT_EQ(Refused(text + "centre"), small);
}

TEST(OpenData, NamesOfLabelsThatAreNumbers) {
  const std::string path = Write("named.csv", "x,price,\"weight, kg\"\n1,2,3\n");
  using Words = std::vector<std::string>;
  const auto names = [](const std::string& text) { return OpenData(text).label_names; };
  EXPECT_EQ(names("csv:" + path + "?label_kind=numbers"), Words{"weight, kg"});
  EXPECT_EQ(names("csv:" + path + "?label=price,-1&label_kind=numbers"), (Words{"price", "weight, kg"}));
  EXPECT_EQ(names("csv:" + path + "?label=-1,price&label_kind=numbers"), (Words{"weight, kg", "price"}));
  EXPECT_EQ(names("csv:" + path + "?label=none"), Words{});
  EXPECT_EQ(names("csv:" + Write("bare.csv", "1,2,3\n") + "?label=0,1&label_kind=numbers"), (Words{"", ""}));
  EXPECT_EQ(names("npz:" + kFolder + "numpy_stored.npz"), Words{});  // arrays have none

  EXPECT_EQ(WithNumbersAsLabels("csv:a.csv"), "csv:a.csv?label_kind=numbers");
  EXPECT_EQ(WithNumbersAsLabels("npz:a.npz?label=z"), "npz:a.npz?label=z&label_kind=numbers");
  for (const char* same : {"csv:a.csv?label_kind=classes", "images:folder", "digits", "text:a.txt", ""}) {
    EXPECT_EQ(WithNumbersAsLabels(same), same);
  }
}

TEST(OpenData, MissingValuesAreNoWord) {
  EXPECT_TRUE(
      Refused("csv:a.csv?missing=mean").ends_with("\"missing\": expected error, leave-out or a number, got \"mean\""));
}

TEST(OpenData, Arrays) {
  const std::string path = "npz:" + kFolder + "numpy_stored.npz";
  const OpenedData opened = OpenData(path);
  EXPECT_EQ(opened.num_classes, 2);
  EXPECT_EQ(opened.samples->data()[0].shape, (Shape{3, 4}));
  EXPECT_EQ(OpenData(path, {.sample = {1, 28, 28}}).samples->data()[0].shape, (Shape{1, 3, 4}));
  EXPECT_EQ(All(OpenData(path + "?scale=23"))->data[0].At(23), 1);
  EXPECT_EQ(Refused(path + "?data=X&label=z").substr(11),
            "\"" + kFolder + "numpy_stored.npz\": it has no array \"X\"; known: x, y");
  const OpenedData bytes = OpenData("npz:" + kFolder + "numpy_all.npz?data=u1_little&label=none");
  EXPECT_FLOAT_EQ(static_cast<float>(All(bytes)->data[0].At(23)), 23.0f / 255);
  EXPECT_EQ(All(OpenData("npy:" + kFolder + "numpy_version1.npy"))->data[0].At(23), 23);
}

TEST(OpenData, ArraysOfIntegersAreNotScaled) {
  const std::string path = testing::TempDir() + "/two.npz", text = "npz:" + path + "?label=none&scale=2";
  const HostTensor rows = HostTensor::From({1, 2}, {16, 8}), large = HostTensor::Full(DType::kInt64, {1, 2}, 16777217);
  const OpenOptions options{.inputs = {{"image", {}}, {"tokens", {}, DType::kInt32}}};
  SaveNpz({{"image", rows}, {"tokens", rows.Cast(DType::kUInt8)}}, path);
  EXPECT_EQ(All(OpenData(text, options))->data[0], HostTensor::From({1, 2}, {8, 4}));
  EXPECT_EQ(All(OpenData(text, options))->data[1], rows);
  SaveNpz({{"image", rows}, {"tokens", large}}, path);
  EXPECT_TRUE(Refused(text, options).ends_with("takes int32, but samples are kept as float32, which has no 16777217"));
}

TEST(OpenData, Records) {
  const OpenedData opened = OpenData("tfrecord:" + kFolder + "python.tf*," + kFolder + "python.tfrecord?data=x");
  EXPECT_EQ(opened.num_classes, 3);
  EXPECT_EQ(opened.samples->samples(), 8);
  EXPECT_EQ(OpenData("tfrecord:" + kFolder + "python.tfrecord?data=x&classes=7").num_classes, 7);
  EXPECT_EQ(Refused("tar:" + kFolder + "no*.tar"),
            "DataError: data \"tar:" + kFolder + "no*.tar\": no file has a name like \"" + kFolder + "no*.tar\"");
}

TEST(OpenData, ImagesGetTheModelsSizeUnlessTheyHaveTheirOwn) {
  const std::filesystem::path folder = testing::TempDir() + "/open_images";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "a");
  std::filesystem::copy(kFolder + "pillow_rgb.png", folder / "a");
  const std::string text = "images:" + folder.string();
  const auto shape = [](const OpenedData& opened) { return opened.samples->data()[0].shape; };
  EXPECT_EQ(shape(OpenData(text, {.sample = {1, 28, 30}})), (Shape{1, 28, 30}));
  EXPECT_EQ(shape(OpenData(text + "?size=16&columns=8", {.sample = {1, 28, 28}})), (Shape{1, 16, 8}));
  EXPECT_EQ(shape(OpenData(text)), (Shape{3, 224, 224}));
  // What is random is so in training, and other settings are other data.
  const std::string random = text + "?size=16&crop=random&mirror=1";
  const auto values = [&](const OpenOptions& options) { return All(OpenData(random, options))->data[0]; };
  EXPECT_EQ(values({.seed = 1}), values({.seed = 2}));
  EXPECT_NE(values({.training = true, .seed = 1}), values({.training = true, .seed = 2}));
  EXPECT_NE(OpenData(random).samples->Fingerprint(), OpenData(text + "?size=16&mirror=1").samples->Fingerprint());
  EXPECT_EQ(Refused(text + "?crop=center"),
            "DataError: data \"" + text + "?crop=center\": unknown crop \"center\"; did you mean \"centre\"?");
}

// What is logged, without the text of the data.
std::string Logged(const std::function<void()>& body) {
  std::string lines;
  const LogLines log;
  body();
  for (const std::string& line : log.lines()) lines += line.substr(line.rfind("\": ") + 3);
  return lines;
}

TEST(OpenData, WarnsOfClassesThatAreHardlyMeant) {
  const OpenOptions training = {.training = true};
  const auto said = [&](const std::string& text, const OpenOptions& options) {
    return Logged([&] { OpenData(text, options); });
  };
  const std::string prices = "csv:" + Write("prices.csv", "x,price\n1,2.5\n2,3\n3,2.5\n");
  EXPECT_EQ(said(prices, training),
            "the labels, numbers like 3, are taken for 2 classes; label_kind=numbers takes them for numbers, which a "
            "model with head=regression learns");
  EXPECT_EQ(said(prices, {}), "");
  EXPECT_EQ(said(prices, {.classes = {"2.5", "3"}, .training = true}), "");
  EXPECT_EQ(said(prices + "?label_kind=numbers", training), "");
  EXPECT_EQ(said("csv:" + Write("words.csv", "1,2.5\n2,none\n"), training), "");
  // Whole numbers may well be names, unless nearly each sample has its own.
  std::string digits, counts;
  for (int i = 0; i < 40; ++i) {
    digits += "1," + std::to_string(i % 10) + "\n";
    counts += "1," + std::to_string(100 + i) + "\n";
  }
  EXPECT_EQ(said("csv:" + Write("digits.csv", digits), training), "");
  EXPECT_EQ(said("csv:" + Write("counts.csv", counts), training).substr(0, 66),
            "the labels, numbers like 120, are taken for 40 classes; label_kind");

  const std::filesystem::path folder = testing::TempDir() + "/parts";
  const auto add = [&](const char* name) {
    std::filesystem::create_directories(folder / name);
    std::filesystem::copy(kFolder + "pillow_rgb.png", folder / name);
  };
  std::filesystem::remove_all(folder);
  add("test");
  EXPECT_EQ(said("images:" + folder.string(), training), "there is nothing to learn from them");  // one class
  add("train");
  EXPECT_EQ(
      said("images:" + folder.string(), training),
      "the classes are test and train; if those are parts of the data, train on images:" + folder.string() + "/train");
  EXPECT_EQ(said("images:" + folder.string(), {}), "");
  add("tree");
  EXPECT_EQ(said("images:" + folder.string(), training), "");
}

TEST(OpenData, PreprocessingIsThatOfTheModelUnlessSaid) {
  const std::filesystem::path folder = testing::TempDir() + "/preprocessed";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "a");
  std::filesystem::copy(kFolder + "pillow_rgb.png", folder / "a");
  const std::string text = "images:" + folder.string();
  const auto data = [](const OpenedData& opened) { return All(opened)->data[0]; };
  const OpenedData trained = OpenData(text + "?resize=20&size=16&mean=0.5,0.25,0.1&std=0.3&crop=resized&mirror=1",
                                      {.training = true, .seed = 1});
  EXPECT_EQ(trained.preprocessing, "channels=3&columns=16&mean=0.5,0.25,0.1&resize=20&rows=16&std=0.3");
  const HostTensor expected = data(OpenData(text + "?resize=20&size=16&mean=0.5,0.25,0.1&std=0.3"));
  EXPECT_EQ(Logged([&] {
              EXPECT_EQ(data(OpenData(text, {.preprocessing = trained.preprocessing})), expected);
              EXPECT_EQ(
                  data(OpenData(text + "?mirror=1", {.sample = {3, 16, 16}, .preprocessing = trained.preprocessing})),
                  expected);
            }),
            "");
  // The same in a program that has the model, and a file.
  Model model;
  EXPECT_EQ(Preprocessing(model), "");
  EXPECT_NE(MessageOf<DataError>([&] { PreprocessingOfImages(model); }), "");
  SetPreprocessing(trained.preprocessing, &model);
  const HostTensor image = ReadImageFile(kFolder + "pillow_rgb.png", PreprocessingOfImages(model));
  EXPECT_EQ(image.Reshape({1, 3, 16, 16}), expected);

  // What is said counts more, and differences are said.
  const auto differences = [&](const std::string& other, const std::string& preprocessing) {
    return Logged([&] { OpenData(other, {.preprocessing = preprocessing}); });
  };
  EXPECT_EQ(differences(text + "?resize=0&mean=0.5&std=0.3", trained.preprocessing),
            "mean=0.5, no resize, but the model was trained with mean=0.5,0.25,0.1, resize=20");
  EXPECT_EQ(data(OpenData(text + "?resize=0&mean=0&std=1&size=8", {.preprocessing = trained.preprocessing})),
            data(OpenData(text + "?size=8")));
  EXPECT_EQ(differences(text + "?mean=0.5", ""), "");
  // Images that were cut, not scaled, are; but nothing is drawn that nobody asked to be.
  const std::string cut = OpenData(text + "?size=9&crop=random").preprocessing;
  EXPECT_EQ(cut, "channels=3&columns=9&crop=random&rows=9");
  EXPECT_EQ(data(OpenData(text, {.preprocessing = cut})), data(OpenData(text + "?size=9&crop=random")));
  EXPECT_EQ(data(OpenData(text, {.training = true, .preprocessing = cut})), data(OpenData(text + "?size=9")));

  // Arrays and tables.
  const std::string arrays = "npz:" + kFolder + "numpy_stored.npz";
  EXPECT_EQ(OpenData(arrays).preprocessing, "");
  EXPECT_EQ(OpenData(arrays + "?scale=23").preprocessing, "scale=23");
  EXPECT_EQ(data(OpenData(arrays, {.preprocessing = "scale=23"})), data(OpenData(arrays + "?scale=23")));
  EXPECT_EQ(differences(arrays, trained.preprocessing),
            "no mean, no std, but the model was trained with mean=0.5,0.25,0.1, std=0.3");
  const std::string table = "csv:" + Write("gaps.csv", "1,a\n,b\n");
  EXPECT_EQ(OpenData(table + "?missing=7").preprocessing, "missing=7");
  EXPECT_EQ(data(OpenData(table, {.preprocessing = "missing=7"})), HostTensor::From({2, 1}, {1, 7}));

  const auto refused = [&](const std::string& preprocessing) {
    return Refused(text, {.preprocessing = preprocessing});
  };
  EXPECT_TRUE(refused("gamma=2&rows=3")
                  .starts_with("DataError: the model's preprocessing \"gamma=2&rows=3\": unknown setting \"gamma\""));
  EXPECT_EQ(refused("mean"), "DataError: the model's preprocessing \"mean\": expected NAME=VALUE");
  EXPECT_EQ(refused("rows=3&rows=3"),
            "DataError: the model's preprocessing \"rows=3&rows=3\": \"rows\" is given twice");
  EXPECT_EQ(refused("rows=-1"),
            "DataError: data \"" + text + "\": \"rows\": expected a whole number from 1 to 16384, got \"-1\"");
}

TEST(OpenData, NamesOfFeaturesGoWithTheModel) {
  const auto csv = [](const std::string& bytes) { return "csv:" + Write("features.csv", bytes); };
  const OpenedData trained = OpenData(csv("\"a,b\",c&d=5%,e,k\n1,2,3,x\n4,5,6,y\n"));
  EXPECT_EQ(trained.preprocessing, "features=a%2cb,c%26d%3d5%25,e&label=k");
  const OpenOptions known = {.classes = trained.classes, .preprocessing = trained.preprocessing};
  const auto data = [](const OpenedData& opened) { return All(opened)->data[0]; };
  const OpenedData other = OpenData(csv("e,\"a,b\",k,c&d=5%\n3,1,x,2\n6,4,y,5\n") + "?label=k", known);
  EXPECT_EQ(data(other), HostTensor::From({2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(other.preprocessing, trained.preprocessing);
  const std::string renamed = csv("s,r,t,k\n1,2,3,x\n");
  EXPECT_NE(Refused(renamed, known).find("there is no column \"a,b\""), std::string::npos);
  EXPECT_EQ(data(OpenData(renamed + "?features=r,s,t", known)), HostTensor::From({1, 3}, {2, 1, 3}));
  OpenOptions further = known;
  further.training = true;
  EXPECT_EQ(OpenData(renamed, further).preprocessing, "features=s,r,t&label=k");
  EXPECT_NE(Logged([&] { OpenData(renamed, further); }).find("features=s,r,t, but the model was trained with"),
            std::string::npos);
  EXPECT_EQ(data(OpenData(csv("1,2,3,x\n"), known)), HostTensor::From({1, 3}, {1, 2, 3}));
  EXPECT_EQ(OpenData(csv("a,a,k\n1,2,x\n")).preprocessing, "label=k") << "names that tell nothing apart";
  EXPECT_EQ(OpenData(csv("1,2,x\n")).preprocessing, "");
}

// What an iterator over them tells a Trainer.
TEST(OpenData, SamplesKnowWhatTheModelIsToKnow) {
  const std::string table = "csv:" + Write("known.csv", "1,b\n3,a\n5,b\n");
  const OpenedData opened = OpenData(table + "?scale=range&shard=0/2", {.training = true});
  const std::map<std::string, std::string> expected = {{kClassesKey, "a\nb\n"},
                                                       {kPreprocessingKey, "max=5&min=1&scale=range"}};
  const SampleSourcePtr rest = SplitSource(opened.samples, 0.5).rest;
  EXPECT_EQ(PrefetchIter(std::make_unique<SampleIter>(rest, SampleIterOptions())).Metadata(), expected);
  EXPECT_TRUE(WithMetadata(rest, {})->Metadata().empty());
  EXPECT_EQ(WithMetadata(rest, {})->Fingerprint(), rest->Fingerprint());
}

TEST(OpenData, ShardsAreDisjointAndNumberClassesAlike) {
  const std::string text = "csv:" + Write("shards.csv", "0,a\n1,a\n2,b\n3,a\n4,c\n");
  const auto options = SampleIterOptions{.batch_size = 1, .shuffle = true, .seed = 3};
  const std::vector<std::vector<float>> data = {{0, 3}, {1, 4}, {2}}, labels = {{0, 0}, {0, 2}, {1}};
  for (size_t i = 0; i < data.size(); ++i) {
    const auto rows = static_cast<int64_t>(data[i].size());
    const OpenedData shard = OpenData(text + "?shard=" + std::to_string(i) + "/3");
    EXPECT_EQ(All(shard)->data[0], HostTensor::From({rows, 1}, data[i]));
    EXPECT_EQ(All(shard)->label[0], HostTensor::From({rows}, labels[i]));
    EXPECT_EQ(shard.classes, (std::vector<std::string>{"a", "b", "c"}));
    // Places are exact, and each shard's own.
    SampleIter whole(shard.samples, options), resumed(shard.samples, options);
    whole.Next();
    resumed.LoadState(whole.SaveState());
    for (int k = 0; k < 5; ++k) {
      const BatchPtr expected = whole.Next(), next = resumed.Next();
      ASSERT_EQ(expected == nullptr, next == nullptr);
      if (next != nullptr) {
        EXPECT_EQ(next->data[0], expected->data[0]);
      }
    }
    SampleIter other(OpenData(text + "?shard=" + std::to_string((i + 1) % 3) + "/3").samples, options);
    EXPECT_THROW(other.LoadState(whole.SaveState()), CheckpointError);
  }
  EXPECT_EQ(OpenData(text + "?shard=0/1").samples->Fingerprint(), OpenData(text).samples->Fingerprint());
  EXPECT_EQ(OpenData(text + "?shard=7/9").samples->samples(), 0);
  for (const char* bad : {"3/3", "-1/3", "1", "1/", "/3", "0/0", "1/3/5", "a/b", ""}) {
    EXPECT_EQ(Refused(text + "?shard=" + bad), "DataError: data \"" + text + "?shard=" + bad +
                                                   "\": \"shard\": expected I/N, with I from 0 to N - 1, got \"" + bad +
                                                   "\"");
  }
}

TEST(OpenData, TextsWithAbsolutePaths) {
  const std::string here = std::filesystem::current_path().string() + "/";
  for (const auto& [text, expected] :
       {std::pair<std::string, std::string>("csv:iris.csv?label=species", "csv:" + here + "iris.csv?label=species"),
        {"npy:x.npy?scale=2&labels=y.npy&label_kind=numbers",
         "npy:" + here + "x.npy?scale=2&labels=" + here + "y.npy&label_kind=numbers"},
        {"npy:x.npy?labels=none", "npy:" + here + "x.npy?labels=none"},
        {"npz:a/b.npz?label=labels", "npz:" + here + "a/b.npz?label=labels"},
        {"tar:a.tar,/b/*.tar?size=3", "tar:" + here + "a.tar,/b/*.tar?size=3"},
        {"images:/flowers", "images:/flowers"},
        {"digits", "digits"},
        {"text:input.txt", "text:input.txt"}}) {
    EXPECT_EQ(WithAbsolutePaths(text), expected);
    EXPECT_EQ(WithAbsolutePaths(expected), expected);
  }
}

TEST(DataDescription, SaysWhatAndHow) {
  const auto read = [](const std::string& text) { return ReadDataDescription(Write("data.prototxt", text)); };
  const DataDescription file = read("train: \"csv:a.csv\" test: \"csv:b.csv\" workers: 3 skip_damaged: true");
  EXPECT_EQ(file.train, "csv:a.csv");
  EXPECT_EQ(file.test, "csv:b.csv");
  EXPECT_EQ(file.workers, 3);
  EXPECT_EQ(file.skip_damaged, true);
  EXPECT_FALSE(file.test_part);
  EXPECT_FALSE(file.validation_part);
  const auto refused = [&](const std::string& text) {
    return MessageOf<DataError>([&] { read(text); }).substr(("DataError: " + testing::TempDir() + "/").size());
  };
  EXPECT_EQ(refused("train: \"csv:a\"\n  trian: 3"),
            "data.prototxt:2:8: Message type \"bindery.proto.Data\" has no field named \"trian\".");
  EXPECT_EQ(refused(""), "data.prototxt: it does not say what to train on");
  for (const std::string& source : {std::string("digits"), std::string("text:t.txt"), testing::TempDir(),
                                    std::string("digits?shard=1/2"), testing::TempDir() + "?shard=0/3"}) {
    EXPECT_EQ(read("train: \"" + source + "\" test_part: 0.5").train, source);
    EXPECT_EQ(refused("train: \"" + source + "\" test: \"csv:a\""),
              "data.prototxt: test: \"" + source + "\" has its own");
  }
  const std::string none = "\" is no data set: KIND:PATH, text:FILE, digits or a folder of IDX files";
  EXPECT_EQ(refused("train: \"a.csv\""), "data.prototxt: \"a.csv" + none);
  EXPECT_EQ(refused("train: \"csv:a\" test: \"digits\""), "data.prototxt: \"digits" + none);
  EXPECT_EQ(refused("train: \"csv:a\" test_part: nan"), "data.prototxt: test_part: expected 0 to 1, got nan");
  EXPECT_EQ(read("train: \"csv:a\" validation_part: 0.99").validation_part, 0.99);
  for (const char* part : {"1", "-0.1", "nan"}) {
    EXPECT_EQ(refused(std::string("train: \"csv:a\" validation_part: ") + part),
              std::string("data.prototxt: validation_part: expected 0 to 0.99, got ") + part);
  }
  EXPECT_EQ(refused("train: \"csv:a\" workers: 0"), "data.prototxt: workers: expected 1 to 1024, got 0");
  EXPECT_EQ(MessageOf<DataError>([&] { read("train: \"csv:a\" last_batch: \"rollover\""); }),
            "DataError: unknown kind of last batch \"rollover\"; did you mean \"roll-over\"?");
}

TEST(OpenData, Errors) {
  EXPECT_EQ(Refused("cvs:a.csv"), "DataError: data \"cvs:a.csv\": unknown kind \"cvs\"; did you mean \"csv\"?");
  EXPECT_EQ(Refused("csv:"), "DataError: data \"csv:\": expected KIND:PATH, and settings behind a \"?\"");
  EXPECT_EQ(Refused("csv:a?label"),
            "DataError: data \"csv:a?label\": expected NAME=VALUE behind the \"?\", got \"label\"");
  EXPECT_EQ(Refused("csv:a?label=1&label=2"), "DataError: data \"csv:a?label=1&label=2\": \"label\" is given twice");
  EXPECT_EQ(Refused("csv:a?lable=1"),
            "DataError: data \"csv:a?lable=1\": unknown setting \"lable\"; did you mean \"label\"?");
  EXPECT_EQ(Refused("npy:a?scale=0"),
            "DataError: data \"npy:a?scale=0\": \"scale\": expected a number from 1e-30 to 1e+30, got \"0\"");
  EXPECT_EQ(Refused("csv:nowhere").substr(0, 41), "DataError: cannot read \"nowhere\": No such");
  EXPECT_TRUE(IsDataText("csv:a"));
  EXPECT_FALSE(IsDataText("text:a"));
  EXPECT_FALSE(IsDataText("folder"));
}

}  // namespace
}  // namespace bindery
