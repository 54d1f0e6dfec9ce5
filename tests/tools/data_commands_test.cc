// Data of people's own through the commands: training, testing, going on, predicting.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/tools/program.h"
#include "train/data/digits.h"
#include "train/data/gunzip.h"
#include "train/data/open.h"
#include "train/data/records/image_folder.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class DataCommandsTest : public ProgramTest {
 protected:
  // 120 flowers of three species, told apart by their first number.
  DataCommandsTest() {
    std::string rows = "length,width,species\n";
    const char* kSpecies[] = {"iris", "rose", "tulip"};
    for (int i = 0; i < 120; ++i) {
      rows += std::to_string(i % 3 * 2 + i % 7 * 0.05) + "," + std::to_string(i % 5) + "," + kSpecies[i % 3] + "\n";
    }
    Write("flowers.csv", rows);
  }
  static Words Train(const std::string& data, int epochs, const Words& more = {}) {
    return Words{"train", "--model", "mlp", "--data", data, "--epochs", std::to_string(epochs), "--batch-size", "16"} +
           more;
  }
};

TEST_F(DataCommandsTest, TrainTestPredictOnCsv) {
  const Outcome trained = Succeeds(Train("csv:flowers.csv?label=species", 30));
  EXPECT_NE(trained.err.find("108 samples of (1, 1, 2), tested on 12"), std::string::npos) << trained;
  const json tested = Json({"test", "--json", "--data", "csv:flowers.csv"});
  EXPECT_EQ(tested.at("samples"), 12);
  EXPECT_EQ(tested.at("accuracy"), 1.0);
  // All of another file, in which a species is missing: it is called as in the training.
  Write("more.csv", "6,1,tulip\n2,1,rose\n");
  EXPECT_EQ(Json({"test", "--json", "--data", "csv:more.csv", "--test-part", "1"}).at("accuracy"), 1.0);
  const json predicted = Json({"predict", "--json", "--data", "csv:more.csv"});
  EXPECT_EQ(predicted.at(0).at("name"), "tulip");
  EXPECT_EQ(predicted.at(0).at("label"), 2);
  EXPECT_EQ(predicted.at(0).at("label_name"), "tulip");
  EXPECT_FALSE(predicted.at(0).contains("record"));
  Write("unlabelled.csv", "6,1\n");
  const json unlabelled = Json({"predict", "--json", "--data", "csv:unlabelled.csv?label=none"});
  EXPECT_EQ(unlabelled.at(0).at("name"), "tulip");
  EXPECT_EQ(unlabelled.at(0).at("label"), nullptr);
  EXPECT_EQ(predicted.at(1).at("class"), 1);
  EXPECT_NE(Succeeds({"predict", "--data", "csv:more.csv"}).out.find("  rose\n"), std::string::npos);
  Write("long.csv", "2,1,a longer name\n6,1,tulip\n");
  Succeeds({"train", "--model", "mlp", "--data", "csv:long.csv", "--test-part", "0.5", "--epochs", "1", "--checkpoints",
            "long"});
  const std::string table = Succeeds({"predict", "--data", "csv:long.csv", "--checkpoints", "long"}).out;
  EXPECT_EQ(table.find('\n'), table.find('\n', table.find('\n') + 1) - table.find('\n') - 1) << table;  // one width
  Fails(4, "\"more.csv\", line 1, column 3: \"oak\" is none of the 3 classes",
        (Write("more.csv", "6,1,oak\n"), Words{"test", "--data", "csv:more.csv", "--test-part", "1"}));
  Fails(4, "samples of (1, 1, 2) do not fit model \"lenet\": Convolution \"conv1\": the window of 5 along axis 2",
        {"train", "--data", "csv:flowers.csv", "--checkpoints="});
  Fails(4, "\"more.csv\": it has 1 features, but the model 2",
        (Write("more.csv", "6,rose\n"), Words{"test", "--data", "csv:more.csv"}));
}

// What is given is predicted as a whole, unless a part is asked for; what the model was tested on is, where none is.
TEST_F(DataCommandsTest, PredictsAllOfWhatItIsGiven) {
  Succeeds(Train("csv:flowers.csv?label=species", 1));
  const auto count = [&](const Words& more) {
    return Json(Words{"predict", "--json", "--show", "1000"} + more).size();
  };
  const Words data = {"--data", "csv:flowers.csv"};
  EXPECT_EQ(count({}), 12u);
  EXPECT_EQ(count(data), 120u);
  EXPECT_EQ(count(data + Words{"--test-part", "0.5"}), 60u);
  Write("data.prototxt", "train: \"csv:flowers.csv\"");
  EXPECT_EQ(count({"--data", "data.prototxt"}), 120u);
  Write("data.prototxt", "train: \"csv:flowers.csv\" test_part: 0.25");
  EXPECT_EQ(count({"--data", "data.prototxt"}), 30u);
  Write("data.prototxt", "train: \"csv:flowers.csv\" test: \"csv:flowers.csv?shard=0/3\"");
  EXPECT_EQ(count({"--data", "data.prototxt"}), 40u);
  EXPECT_EQ(Json(Words{"test", "--json"} + data).at("samples"), 12);
  const auto said = [&](const Words& command, const std::string& text) {
    EXPECT_TRUE(Succeeds(command + data).err.ends_with("; data: " + text + "csv:flowers.csv\n"));
  };
  said({"test"}, "--test-part 0.1 of ");
  said({"test", "--test-part", "1"}, "");
  said({"predict"}, "");
}

// Names belong to the last layer: they stay with it, unless the data have others, and go with it.
TEST_F(DataCommandsTest, FineTuningTakesNamesOfClassesFromTheData) {
  const auto write = [&](const std::string& name, const Words& classes) {
    std::string rows;
    for (size_t i = 0; i < 40; ++i) rows += std::to_string(i % 7) + "," + "1," + classes[i % classes.size()] + "\n";
    Write(name, rows);
  };
  const auto names = [&](const std::string& model) { return ClassNames(LoadModel(PathOf(model))); };
  write("trees.csv", {"ash", "oak"});
  write("flowers2.csv", {"tulip", "rose"});
  Succeeds(Train("csv:flowers.csv?label=species", 1, {"--checkpoints=", "--save", "flowers.pb"}));
  const Words flowers = {"iris", "rose", "tulip"};
  EXPECT_EQ(names("flowers.pb"), flowers);
  Succeeds({"convert", "flowers.pb", "flowers.safetensors"});
  for (const char* weights : {"flowers.pb", "flowers.safetensors"}) {
    const Words tune = {"train", "--data",    "csv:trees.csv", "--epochs", "1",        "--batch-size",
                        "16",    "--weights", weights,         "--save",   "tuned.pb", "--overwrite"};
    Succeeds(tune + Words{"--model", "mlp(classes=2)", "--map", "fc3.*="});
    EXPECT_EQ(names("tuned.pb"), (Words{"ash", "oak"})) << weights;
    Succeeds({"train", "--resume", "--epochs", "2", "--save", "more.pb"});
    EXPECT_EQ(names("more.pb"), (Words{"ash", "oak"})) << weights;
    // With the old head, too.
    Succeeds(tune + Words{"--model", "mlp(classes=3)"});
    EXPECT_EQ(names("tuned.pb"), (Words{"ash", "oak"})) << weights;
    Succeeds({"train", "--data", "csv:flowers2.csv", "--epochs", "1", "--model", "mlp(classes=3)", "--weights", weights,
              "--checkpoints=", "--save", "same.pb"});
    EXPECT_EQ(names("same.pb"), flowers) << weights;
  }
  Fails(4, "\"ash\" is none of the 3 classes",
        {"train", "--model", "flowers.pb", "--data", "csv:trees.csv", "--checkpoints="});
}

// How images were made into numbers is known wherever the model's metadata are; what is said counts more.
TEST_F(DataCommandsTest, PreprocessingGoesWithTheModel) {
  WriteImageFolder(DrawDigits(300, 1), PathOf("tr"));
  WriteImageFolder(DrawDigits(100, 1, 1 << 20), PathOf("te"));
  const Outcome trained = Succeeds(Train("images:tr?mean=0.5&std=0.1&mirror=0", 3,
                                         {"--test-data", "images:te", "--checkpoints", "run", "--save", "m.pb"}));
  EXPECT_EQ(trained.err.find("but the model"), std::string::npos) << trained;
  const std::string settings = "channels=1&columns=28&mean=0.5&rows=28&std=0.1";
  EXPECT_EQ(Preprocessing(LoadModel(PathOf("m.pb"))), settings);
  Succeeds({"convert", "run", "m.safetensors"});
  Succeeds({"convert", "m.pb", "m.npz"});
  const auto test = [&](const Words& model, const std::string& data) {
    return Succeeds(Words{"test", "--json", "--data", data, "--test-part", "1", "--batch-size", "16"} + model);
  };
  const Words checkpoint = {"--checkpoints", "run"}, file = {"--weights", "m.pb"};
  const std::string expected = test(checkpoint, "images:te?mean=0.5&std=0.10").out;
  EXPECT_EQ(Succeeds({"test", "--json", "--checkpoints", "run"}).out, expected);
  for (const Words& model : {checkpoint, file, Words{"--model", "mlp", "--weights", "m.safetensors"}}) {
    const Outcome tested = test(model, "images:te");
    EXPECT_EQ(tested.out, expected) << model[1];
    EXPECT_EQ(tested.err.find("but the model"), std::string::npos) << tested;
  }
  EXPECT_NE(test({"--model", "mlp", "--weights", "m.npz"}, "images:te").out, expected);  // has no metadata
  const Outcome other = test(file, "images:te?mean=0");
  EXPECT_NE(other.out, expected);
  EXPECT_NE(other.err.find("info: data \"images:te?mean=0\": no mean, but the model was trained with mean=0.5\n"),
            std::string::npos)
      << other;
  EXPECT_NE(Succeeds({"test", "--weights", "m.pb", "--data", "digits", "--test-digits", "50"})
                .err.find("data \"digits\": no mean, no std, but the model was trained with mean=0.5, std=0.1\n"),
            std::string::npos);
  // So does a size that is not the model's own.
  Succeeds(Train("images:tr?size=20", 1, {"--test-data", "images:te", "--checkpoints=", "--save", "small.pb"}));
  EXPECT_EQ(Preprocessing(LoadModel(PathOf("small.pb"))), "channels=1&columns=20&rows=20");
  test({"--weights", "small.pb"}, "images:te");
  // Training goes on with the same numbers.
  const Words tune = {"train", "--weights", "m.pb", "--epochs", "1", "--checkpoints=", "--save", "tuned.pb"};
  Succeeds(tune + Words{"--model", "mlp", "--data", "images:tr"});
  EXPECT_EQ(Preprocessing(LoadModel(PathOf("tuned.pb"))), settings);
  EXPECT_NE(Succeeds(tune + Words{"--model", "mlp", "--data", "images:tr?std=0.2"})
                .err.find("std=0.2, but the model was trained with std=0.1\n"),
            std::string::npos);
  Succeeds(tune + Words{"--model", "mlp", "--data", "digits", "--train-digits", "100", "--test-digits", "50"});
  EXPECT_EQ(Preprocessing(LoadModel(PathOf("tuned.pb"))), "");
}

// A folder that is no folder of folders, and a file: they can be predicted, and nothing else.
TEST_F(DataCommandsTest, PredictsImagesWithoutClasses) {
  WriteImageFolder(DrawDigits(40, 1), PathOf("tr"));
  WriteImageFolder(DrawDigits(3, 1, 1 << 20), PathOf("te"));
  fs::create_directory(PathOf("new"));
  Words files;
  for (const auto& entry : fs::recursive_directory_iterator(PathOf("te"))) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  for (const std::string& file : files) fs::copy(file, PathOf("new"));
  Succeeds(Train("images:tr", 1));
  const json labelled = Json({"predict", "--json", "--test-data", "images:te"});
  const json predicted = Json({"predict", "--json", "--data", "images:new"});
  ASSERT_EQ(predicted.size(), 3u);
  std::multiset<float> expected, probabilities;  // in another order
  for (size_t i = 0; i < 3; ++i) {
    expected.insert(labelled[i].at("probability").get<float>());
    probabilities.insert(predicted[i].at("probability").get<float>());
  }
  EXPECT_TRUE(std::ranges::equal(probabilities, expected, [](float a, float b) { return std::abs(a - b) < 1e-5f; }));
  const std::string one = "images:" + files[0];
  EXPECT_EQ(Json({"predict", "--json", "--data", one}).size(), 1u);
  EXPECT_NE(Succeeds({"predict", "--data", one}).out.find("      -  " + files[0] + "\n"), std::string::npos);
  for (const std::string& data : {std::string("images:new"), one}) {
    Fails(4, "can be predicted, but neither trained nor tested on", {"test", "--test-data", data});
    Fails(4, "can be predicted, but neither trained nor tested on", Train(data, 1, {"--checkpoints="}));
  }
  fs::create_directory(PathOf("empty"));
  Fails(4, "folder \"empty\" has no .jpg, .jpeg or .png files", {"predict", "--data", "images:empty"});
}

// What is known of a sample stands beside what is said of it: its label, and its file.
TEST_F(DataCommandsTest, PredictionsTellLabelsAndFiles) {
  WriteImageFolder(DrawDigits(40, 1), PathOf("tr"));
  const std::string odd = "we, \"us\"";  // the last of the classes
  fs::rename(PathOf("tr/3"), PathOf("tr/" + odd));
  Succeeds(Train("images:tr", 1));
  for (const std::string& name : {std::string("0"), odd}) fs::create_directories(PathOf("te/" + name));
  fs::copy(fs::directory_iterator(PathOf("tr/0"))->path(), PathOf("te/0/1.png"));
  fs::copy(PathOf("te/0/1.png"), PathOf("te/" + odd + "/2.png"));
  const Words predict = {"predict", "--test-data", "images:te", "--top", "3"};
  const json samples = Json(predict + Words{"--json", "--output", "list.csv"});
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].at("label"), 0);
  EXPECT_EQ(samples[0].at("label_name"), "0");
  EXPECT_EQ(samples[0].at("record"), "te/0/1.png");
  EXPECT_EQ(samples[1].at("label"), 9);
  EXPECT_EQ(samples[1].at("label_name"), odd);
  const json& top = samples[1].at("top");
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].at("class"), samples[1].at("class"));
  EXPECT_EQ(top[0].at("name"), samples[1].at("name"));
  EXPECT_GE(top[1].at("probability"), top[2].at("probability"));
  const std::string list = Read("list.csv"), quoted = "\"we, \"\"us\"\"\"";
  EXPECT_TRUE(
      list.starts_with("sample,class,probability,label,name,label_name,record,class_2,probability_2,name_2,"
                       "class_3,probability_3,name_3\n"))
      << list;
  EXPECT_NE(list.find("," + quoted + ",\"te/we, \"\"us\"\"/2.png\","), std::string::npos) << list;
  EXPECT_NE(Succeeds(predict).out.find("  te/0/1.png\n"), std::string::npos);
  // All scores, in NumPy's form.
  Succeeds(predict + Words{"--output", "scores.npy"});
  const HostTensor scores = ReadNpy(PathOf("scores.npy"));
  EXPECT_EQ(scores.shape(), (Shape{2, 10}));
  EXPECT_FLOAT_EQ(static_cast<float>(scores.At(10 + top[2].at("class").get<int64_t>())),
                  top[2].at("probability").get<float>());
}

TEST_F(DataCommandsTest, ImagesGoOnInTheSameBits) {
  for (const char* name : {"a/1.png", "a/2.png", "b/1.png", "b/2.png"}) {
    fs::create_directories(fs::path(PathOf("images/" + std::string(name))).parent_path());
    fs::copy(std::string(name[0] == 'a' ? "tests/train/stored/pillow_rgb.png" : "tests/train/stored/pillow_bits.png"),
             PathOf("images/" + std::string(name)));
  }
  Write("data.prototxt",
        "train: \"images:images?size=12&channels=1&crop=random&resize=14&mirror=1\" workers: 2\n"
        "test: \"images:images?size=12&channels=1\" skip_damaged: true");
  Succeeds(Train("data.prototxt", 4, {"--checkpoints", "whole", "--save", "whole.prototxt"}));
  Succeeds(Train("data.prototxt", 2, {"--checkpoints", "cut"}));
  Succeeds(Train("data.prototxt", 4, {"--checkpoints", "cut", "--resume", "--workers", "1", "--save", "cut.prototxt"}));
  // But for the names of their data files.
  EXPECT_EQ(std::regex_replace(Read("whole.prototxt"), std::regex("whole\\.prototxt"), "cut.prototxt"),
            Read("cut.prototxt"));
  EXPECT_EQ(Json({"test", "--json", "--weights", "cut.prototxt", "--data", "data.prototxt"}).at("samples"), 4);
  Write("images/b/3.png", "no image");
  const Outcome skipped = Succeeds({"test", "--weights", "cut.prototxt", "--data", "data.prototxt"});
  EXPECT_NE(skipped.err.find("skipping a damaged sample: \"images/b/3.png\": neither a JPEG nor a PNG image"),
            std::string::npos)
      << skipped;
  EXPECT_TRUE(skipped.out.starts_with("5 samples, of which 1 damaged and skipped: ")) << skipped;
  EXPECT_EQ(Succeeds({"test", "--weights", "cut.prototxt", "--data", "data.prototxt", "--batch-size", "1"}).out,
            skipped.out);  // of one batch nothing is left
  EXPECT_EQ(Json({"test", "--json", "--weights", "cut.prototxt", "--data", "data.prototxt"}).at("skipped"), 1);
  Fails(4, "\"images/b/3.png\": neither a JPEG nor a PNG image",
        {"test", "--weights", "cut.prototxt", "--data", "images:images", "--test-part", "1"});
  // The same by the command line alone: a training goes on without it, or ends.
  const Words options = {"--checkpoints=", "--test-data", "images:images?size=12&channels=1"};
  const std::string images = "images:images?size=12&channels=1";
  const Outcome trained = Succeeds(Train(images, 2, options + Words{"--skip-damaged"}));
  EXPECT_NE(trained.err.find("\"images/b/3.png\""), std::string::npos);
  EXPECT_NE(trained.out.find("damaged, skipped      2 times of training, 2 of tests\n"), std::string::npos) << trained;
  const std::string lines = Succeeds(Train(images, 2, options + Words{"--skip-damaged", "--json"})).out;
  const json end = json::parse(lines.substr(lines.rfind('\n', lines.size() - 2) + 1));
  EXPECT_EQ(end.at("skipped"), 2);
  EXPECT_EQ(end.at("test_skipped"), 2);
  Fails(4, "\"images/b/3.png\": neither a JPEG nor a PNG image", Train(images, 1, options));
}

// A .prototxt takes all that --data takes, and means the same.
TEST_F(DataCommandsTest, DescribedDigits) {
  Write("data.prototxt", "train: \"digits\"");
  for (const std::string data : {"digits", "data.prototxt"}) {
    Succeeds(Training(1, {"--data", data, "--checkpoints=", "--save", data + ".pb"}));
  }
  EXPECT_EQ(LoadModel(PathOf("data.prototxt.pb")).params, LoadModel(PathOf("digits.pb")).params);
  Fails(4, "data.prototxt: test: \"digits\" has its own",
        (Write("data.prototxt", "train: \"digits\" test: \"csv:flowers.csv\""),
         Training(1, {"--data", "data.prototxt"})));
}

TEST_F(DataCommandsTest, DescribedFoldersOfIdxFiles) {
  Succeeds(Training(1, {"--write-digits", "folder", "--checkpoints=", "--save", "drawn.pb"}));
  Write("data.prototxt", "train: \"folder\"");
  Succeeds({"train", "--model", "mlp", "--epochs", "1", "--threads", "1", "--data", "data.prototxt", "--checkpoints",
            "run", "--save", "read.pb"});
  EXPECT_EQ(LoadModel(PathOf("read.pb")).params, LoadModel(PathOf("drawn.pb")).params);
  EXPECT_EQ(Json({"test", "--json", "--checkpoints", "run"}).at("samples"), 50);
}

TEST_F(DataCommandsTest, DescribedText) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "abcab\n";
  Write("input.txt", text);
  Write("data.prototxt", "train: \"text:input.txt\" test_part: 0.2");
  for (const std::string data : {"text:input.txt", "data.prototxt"}) {
    Succeeds({"train", "--model", "gpt(layers=1, width=16, heads=2, context=8)", "--data", data, "--test-part", "0.2",
              "--epochs", "1", "--batch-size", "16", "--checkpoints=", "--save", data.substr(0, 4) + ".pb"});
  }
  EXPECT_EQ(LoadModel(PathOf("data.pb")).params, LoadModel(PathOf("text.pb")).params);
}

TEST_F(DataCommandsTest, AShardOfTheData) {
  EXPECT_NE(Succeeds(Train("csv:flowers.csv?label=species&shard=1/4", 1, {"--checkpoints="}))
                .err.find("27 samples of (1, 1, 2), tested on 3"),
            std::string::npos);
  Write("shard.prototxt", "train: \"csv:flowers.csv?shard=1/4\" test: \"csv:flowers.csv\"");
  const Outcome trained = Succeeds(Train("shard.prototxt", 4, {"--checkpoints", "whole", "--save", "whole.pb"}));
  EXPECT_NE(trained.err.find("30 samples of (1, 1, 2), tested on 120"), std::string::npos) << trained;
  Succeeds(Train("shard.prototxt", 2, {"--checkpoints", "cut"}));
  Fails(5, "saved with other data", Train("csv:flowers.csv?shard=2/4", 4, {"--checkpoints", "cut", "--resume"}));
  Succeeds(Train("shard.prototxt", 4, {"--checkpoints", "cut", "--resume", "--save", "cut.pb"}));
  EXPECT_EQ(LoadModel(PathOf("cut.pb")).params, LoadModel(PathOf("whole.pb")).params);
}

TEST_F(DataCommandsTest, OtherRecords) {
  const fs::path stored = "tests/train/stored";
  for (const char* name : {"python.tfrecord", "numpy_stored.npz"}) fs::copy(stored / name, PathOf(name));
  const Words quick = {"--checkpoints=", "--last-batch", "pad"};
  Write("python.tfrecord.gz", Gzip(Read("python.tfrecord")));
  for (const std::string name : {"python.tfrecord", "python.tfrecord.gz"}) {
    EXPECT_NE(
        Succeeds(Train("tfrecord:" + name + "?data=x", 1, quick + Words{"--test-part", "0.25", "--save", name + ".pb"}))
            .err.find("3 samples of (1, 1, 3), tested on 1"),
        std::string::npos);
  }
  EXPECT_EQ(LoadModel(PathOf("python.tfrecord.gz.pb")).params, LoadModel(PathOf("python.tfrecord.pb")).params);
  Write("cut.gz", Read("python.tfrecord.gz").substr(0, 60));
  Fails(4, "cut.gz\", record ", Train("tfrecord:cut.gz?data=x", 1));
  EXPECT_NE(Succeeds(Train("npz:numpy_stored.npz", 1, quick + Words{"--test-part", "0.5"}))
                .err.find("1 samples of (1, 3, 4), tested on 1"),
            std::string::npos);
}

TEST_F(DataCommandsTest, Errors) {
  Fails(2, "--last-batch: unknown kind of last batch \"rollover\"; did you mean \"roll-over\"?",
        Train("csv:flowers.csv", 1, {"--last-batch", "rollover"}));
  Fails(2, "--test-data: \"digits\" has its own", Train("digits", 1, {"--test-data", "csv:flowers.csv"}));
  Write("numbers.csv", "1,2\n3,4\n");
  Fails(2, "tells classes apart, but the labels are numbers", Train("csv:numbers.csv?label_kind=numbers", 1));
  Fails(2, "--data: a training needs labels", Train("csv:numbers.csv?label=none", 1));
  SaveNpy(HostTensor(DType::kFloat32, {4, 2}), PathOf("x.npy"));
  Fails(2, "--data: a training needs labels; labels=FILE names the .npy file of them", Train("npy:x.npy", 1));
  Fails(4, "no samples are left to test on", Train("csv:flowers.csv", 1, {"--test-part", "0"}));
  Fails(4, "no samples are left to train on", Train("csv:flowers.csv", 1, {"--test-part", "1"}));
  Fails(4, "unknown setting \"lable\"; did you mean \"label\"?", Train("csv:flowers.csv?lable=1", 1));
  Write("bad.prototxt", "train: 3");
  Fails(4, "bad.prototxt:1:8: ", Train("bad.prototxt", 1));
}

}  // namespace
}  // namespace bindery
