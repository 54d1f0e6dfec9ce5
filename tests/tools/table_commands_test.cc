// Tables through the commands: columns that are left out, columns that are scaled, and what the model knows of both.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"
#include "train/data/open.h"
#include "train/data/samples/numbers.h"
#include "train/data/tables/csv.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class TableCommandsTest : public ProgramTest {
 protected:
  // 90 flowers with names and dates, told apart by their length, beside a weight in other units.
  TableCommandsTest() {
    std::string rows = kHeader;
    for (int i = 0; i < 90; ++i) rows += Row(i, true);
    Write("flowers.csv", rows);
  }
  static std::string Row(int i, bool all) {
    const char* kSpecies[] = {"iris", "rose", "tulip"};
    const std::string numbers = std::to_string(i % 3 * 2 + i % 7 * 0.05) + "," + std::to_string(3000 + i * i % 97);
    if (!all) return numbers + "," + kSpecies[i % 3] + "\n";
    return "flower " + std::to_string(i) + "," + numbers + (i % 4 ? ",2024-05-0" : ",") + std::to_string(i % 9) + "," +
           kSpecies[i % 3] + "\n";
  }
  static Words Train(const std::string& data, int epochs, const Words& more = {}) {
    return Words{"train",        "--model", "mlp",       "--data", data, "--epochs", std::to_string(epochs),
                 "--batch-size", "16",      "--threads", "1"} +
           more;
  }
  // What a model makes of data: the probabilities of all classes.
  std::string Predict(const Words& model, const std::string& data) const {
    fs::remove(PathOf("scores.npy"));
    Succeeds(Words{"predict", "--data", data, "--threads", "1", "--batch-size", "16", "--output", "scores.npy"} +
             model);
    return Read("scores.npy");
  }
  std::string KeptBy(const std::string& model) const { return Preprocessing(LoadModel(PathOf(model))); }

  static constexpr const char* kHeader = "name,length,weight,date,species\n";
  const std::string kData = "csv:flowers.csv?label=species&leave_out=name,date&scale=standard";
};

// Against a file that has the same rows, scaled before.
TEST_F(TableCommandsTest, TheSameAsOfAFileThatIsScaledBefore) {
  const CsvTable table =
      ReadCsv(PathOf("flowers.csv"), {.leave_out = "name,date", .scaling = {ColumnScale::kStandard}});
  std::string scaled = "length,weight,species\n";
  for (int64_t row = 0; row < 90; ++row) {
    scaled += fmt::format("{},{},{}\n", static_cast<float>(table.data.At(2 * row)),
                          static_cast<float>(table.data.At(2 * row + 1)),
                          table.classes[static_cast<size_t>(table.labels.At(row))]);
  }
  Write("scaled.csv", scaled);
  const Words before = {"--test-data", "csv:scaled.csv", "--checkpoints", "before"};
  Succeeds(Train(kData, 3, {"--test-data", "csv:flowers.csv", "--checkpoints", "run", "--save", "m.pb"}));
  Succeeds(Train("csv:scaled.csv", 3, before));
  const std::string expected = Predict({"--checkpoints", "before"}, "csv:scaled.csv");
  const Words run = {"--checkpoints", "run"};
  EXPECT_EQ(Predict(run, "csv:flowers.csv"), expected);
  EXPECT_EQ(Json(Words{"test", "--json"} + run), Json({"test", "--json", "--checkpoints", "before"}));
  // The same rows in another file: with other names and dates, without them, and without the file of the training.
  std::string others = kHeader, bare = "length,weight,species\n";
  for (int i = 0; i < 90; ++i) {
    others += "x," + Row(i, false).insert(Row(i, false).rfind(','), ",NA");
    bare += Row(i, false);
  }
  Write("others.csv", others);
  Write("bare.csv", bare);
  fs::remove(PathOf("flowers.csv"));
  for (const Words& model : {run, Words{"--model", "m.pb"}}) {
    for (const char* data : {"csv:others.csv", "csv:bare.csv", "csv:bare.csv?scale=standard"}) {
      EXPECT_EQ(Predict(model, data), expected) << model[1] << " " << data;
    }
  }
  EXPECT_NE(Predict(run, "csv:bare.csv?scale=none"), expected);
}

// Columns in another order are the same; other names are refused.
TEST_F(TableCommandsTest, FeaturesGoByTheirNames) {
  Succeeds(Train(kData, 2, {"--checkpoints", "run"}));
  std::string turned = "species,weight,length\n", renamed = "length,weihgt,species\n";
  for (int i = 0; i < 90; ++i) {
    const std::string row = Row(i, false);
    const size_t first = row.find(','), second = row.find(',', first + 1);
    turned += row.substr(second + 1, row.size() - second - 2) + row.substr(first, second - first) + "," +
              row.substr(0, first) + "\n";
    renamed += row;
  }
  Write("turned.csv", turned);
  Write("renamed.csv", renamed);
  const Words run = {"--checkpoints", "run"};
  EXPECT_EQ(Predict(run, "csv:turned.csv?label=species"), Predict(run, "csv:flowers.csv"));
  Fails(4, "there is no column \"weight\", which the model has as a feature; did you mean \"weihgt\"?",
        {"test", "--checkpoints", "run", "--data", "csv:renamed.csv"});
}

// Neither what is tested on nor what is validated on counts.
TEST_F(TableCommandsTest, NumbersAreThoseOfWhatIsTrainedOn) {
  const auto kept = [&](const Words& more) {
    Succeeds(Train(kData, 1, Words{"--checkpoints=", "--save", "m.pb", "--overwrite"} + more));
    return KeptBy("m.pb");
  };
  const auto expected = [&](const std::vector<double>& held_back) {
    return OpenData("csv:" + PathOf("flowers.csv") + "?label=species&leave_out=name,date&scale=standard",
                    {.training = true, .held_back = held_back})
        .preprocessing;
  };
  const CsvTable table = ReadCsv(PathOf("flowers.csv"), {.leave_out = "name,date"});
  double sum = 0;
  const std::vector<int64_t> trained = SplitByPart(90, 0.1).rest;
  for (const int64_t row : trained) sum += table.data.At(2 * row + 1);
  const std::string whole = kept({});
  EXPECT_NE(whole.find(fmt::format(",{}&scale=standard", sum / 81)), std::string::npos) << whole;
  EXPECT_EQ(whole, expected({0.1}));
  EXPECT_EQ(kept({"--test-part", "0.3", "--validation-part", "0.2"}), expected({0.3, 0.2}));
  EXPECT_EQ(kept({"--test-data", "csv:flowers.csv", "--validation-part", "0.2"}), expected({0, 0.2}));
  EXPECT_EQ(kept({"--test-data", "csv:flowers.csv"}), expected({}));
  EXPECT_NE(expected({}), whole);
}

TEST_F(TableCommandsTest, ResumesWithTheSameNumbers) {
  Succeeds(Train(kData, 4, {"--checkpoints", "whole"}));
  Succeeds(Train(kData, 2, {"--checkpoints", "run"}));
  Succeeds({"train", "--resume", "--checkpoints", "run", "--epochs", "4", "--save", "resumed.pb"});
  const std::string expected = Predict({"--checkpoints", "whole"}, "csv:flowers.csv");
  EXPECT_EQ(Predict({"--checkpoints", "run"}, "csv:flowers.csv"), expected);
  EXPECT_EQ(Predict({"--model", "resumed.pb"}, "csv:flowers.csv"), expected);
  // Other rows have other numbers: they are other data.
  Fails(5, "", {"train", "--resume", "--checkpoints", "run", "--epochs", "5", "--test-part", "0.2"});
  // A training that begins with the model's values has its numbers, whatever its rows are.
  std::string few = kHeader;
  for (int i = 0; i < 30; ++i) few += Row(i, true);
  Write("few.csv", few);
  Words tune =
      Train("csv:few.csv?label=species", 1, {"--weights", "resumed.pb", "--checkpoints=", "--save", "tuned.pb"});
  tune[2] = "mlp(classes=3)";
  Succeeds(tune);
  const std::string kSaid = "scaled by the numbers of the rows that the model was trained on before";
  EXPECT_NE(Succeeds(tune).err.find(kSaid), std::string::npos);
  EXPECT_EQ(KeptBy("tuned.pb"), KeptBy("resumed.pb"));
  // It may have its own, and has for other columns.
  Words again = tune;
  again[4] = "csv:flowers.csv?label=species&measure=1";  // of the same rows they are the same, but not the model's
  EXPECT_EQ(Succeeds(again).err.find(kSaid), std::string::npos);
  tune[4] = "csv:few.csv?label=species&measure=1";
  EXPECT_EQ(Succeeds(tune).err.find(kSaid), std::string::npos);
  EXPECT_NE(KeptBy("tuned.pb"), KeptBy("resumed.pb"));
  EXPECT_NE(KeptBy("tuned.pb").find("scale=standard"), std::string::npos);
  tune[4] = "csv:few.csv?label=species&leave_out=name,date,weight";
  Fails(5, "\"fc1_weight\" is (128, 2), the model's is (128, 1)", tune);  // they are scaled, but too few
}

// A graph of one training with the values of another.
TEST_F(TableCommandsTest, NumbersAreThoseOfTheWeights) {
  const std::string data = "csv:flowers.csv?leave_out=name,date&scale=";
  Succeeds(Train(data + "standard", 1, {"--checkpoints=", "--save", "a.pb"}));
  Succeeds(Train(data + "range", 2, {"--checkpoints=", "--save", "b.pb"}));
  Succeeds({"convert", "b.pb", "b.safetensors"});
  const std::string expected = Predict({"--model", "b.pb"}, "csv:flowers.csv");
  for (const char* weights : {"b.pb", "b.safetensors"}) {
    EXPECT_EQ(Predict({"--model", "a.pb", "--weights", weights}, "csv:flowers.csv"), expected) << weights;
  }
  // A file that has a place for them, and none in it: its rows were not scaled. One that has no such place cannot say.
  Succeeds(Train(data + "none", 1, {"--checkpoints=", "--save", "plain.pb"}));
  const std::string bare = "csv:flowers.csv?leave_out=name,date";
  const std::string plain = Predict({"--model", "plain.pb"}, bare);
  for (const char* weights : {"plain.pb", "plain.onnx", "plain.safetensors"}) {
    if (weights != std::string("plain.pb")) Succeeds({"convert", "plain.pb", weights});
    EXPECT_EQ(Predict({"--model", "a.pb", "--weights", weights}, bare), plain) << weights;
  }
  Succeeds({"convert", "a.pb", "a.npz"});
  EXPECT_EQ(Predict({"--model", "a.pb", "--weights", "a.npz"}, bare), Predict({"--model", "a.pb"}, bare));
}

// A model is applied to rows as those that its training tests on, whatever else is kept of them.
TEST_F(TableCommandsTest, ScalingIsThatOfTheTest) {
  const auto kept = [&](const std::string& file, const std::string& more, const std::string& test) {
    Words words = Train("csv:" + file + "?scale=standard" + more, 1, {"--checkpoints=", "--save", "m.pb"});
    if (!test.empty()) words = words + Words{"--test-data", "csv:" + file + test};
    Succeeds(words);
    return KeptBy("m.pb");
  };
  std::string rows = "length,weight,species\n";
  for (int i = 0; i < 30; ++i) rows += Row(i, false);
  Write("bare.csv", rows);
  const std::string features = "features=length,weight&label=species", left = features + "&leave_out=name,date";
  EXPECT_EQ(kept("bare.csv", "", "?scale=none"), features);
  EXPECT_EQ(kept("flowers.csv", "&leave_out=name,date", "?scale=none"), left);
  for (const char* test : {"", "?header=1"}) {
    EXPECT_EQ(kept("bare.csv", "", test).find(features + "&mean="), 0u) << test;
    EXPECT_EQ(kept("flowers.csv", "&leave_out=name,date", test).find(left + "&mean="), 0u) << test;
  }
}

TEST_F(TableCommandsTest, ModelsOfTextTakeNoRows) {
  for (const char* name : {"gpt", "lstm"}) {
    Words train = Train("csv:flowers.csv?leave_out=name,date", 1);
    train[2] = name;
    Fails(4, std::string("--data: model \"") + name + "\" takes text: give --data text:FILE", train);
  }
}

TEST_F(TableCommandsTest, AsAFileSaysIt) {
  Succeeds(Train(kData + "&missing=0", 2, {"--checkpoints=", "--save", "said.pb"}));
  Write("data.prototxt", "train: \"" + kData + "&missing=0\" test_part: 0.1");
  Succeeds(Train("data.prototxt", 2, {"--checkpoints=", "--save", "file.pb"}));
  EXPECT_EQ(KeptBy("file.pb"), KeptBy("said.pb"));
  EXPECT_NE(KeptBy("file.pb"), "");
  EXPECT_EQ(Predict({"--model", "file.pb"}, "csv:flowers.csv"), Predict({"--model", "said.pb"}, "csv:flowers.csv"));
  // From the smallest to the largest.
  Succeeds(Train("csv:flowers.csv?leave_out=0,3&scale=range", 2, {"--checkpoints=", "--save", "range.pb"}));
  EXPECT_EQ(KeptBy("range.pb").find("features=length,weight&label=species&leave_out=name,date&max=4.3"), 0u)
      << KeptBy("range.pb");
  Predict({"--model", "range.pb"}, "csv:flowers.csv");
}

TEST_F(TableCommandsTest, InspectShowsAndVerifyChecksWhatIsKept) {
  Succeeds(Train(kData, 1, {"--save", "m.pb"}));
  const Outcome shown = Succeeds({"inspect", "--model", "m.pb"});
  EXPECT_NE(
      shown.out.find("\npreprocessing\n  features   length,weight\n  label      species\n  leave_out  name,date\n"),
      std::string::npos)
      << shown;
  EXPECT_EQ(Json({"inspect", "--model", "m.pb", "--json"}).at("preprocessing"), KeptBy("m.pb"));
  EXPECT_EQ(Succeeds({"inspect", "--model", "mlp"}).out.find("preprocessing"), std::string::npos);
  Succeeds({"verify", "m.pb", "bindery-checkpoints/step-0000000006.ckpt"});
  Model model = LoadModel(PathOf("m.pb"));
  const auto damaged = [&](const std::string& kept, const std::string& message) {
    SetPreprocessing(kept, &model);
    SaveModel(model, PathOf("bad.pb"));
    Fails(4, message, {"verify", "bad.pb"});
    Fails(4, message, {"predict", "--model", "bad.pb", "--data", "csv:flowers.csv"});
  };
  damaged("mean=1,nan&scale=standard&std=1,1&leave_out=name,date", "\"mean\": expected numbers, got \"nan\"");
  Succeeds({"convert", "bad.pb", "bad.safetensors"});
  Fails(4, "\"mean\": expected numbers, got \"nan\"", {"verify", "bad.safetensors"});
  damaged("mean=1,2&scale=standard&std=1,-1&leave_out=name,date", "column 1 has 2 and -1");
  damaged("mean=1,2&scale=standard&std=1&leave_out=name,date",
          "expected a number in each for every column, got 2 and 1");
  SetPreprocessing("mean=1,2,3&scale=standard&std=1,1,1&leave_out=name,date", &model);
  SaveModel(model, PathOf("bad.pb"));
  Fails(4, "its preprocessing scales 3 columns, but it takes samples of (1, 1, 2)", {"verify", "bad.pb"});
  Fails(4, "columns are scaled by numbers for 3, but there are 2",
        {"predict", "--model", "bad.pb", "--data", "csv:flowers.csv"});
}

TEST_F(TableCommandsTest, Errors) {
  const auto refused = [&](const std::string& settings, const std::string& message) {
    Fails(4, message, Train("csv:flowers.csv" + settings, 1));
  };
  refused("?leave_out=name,data", "there is no column \"data\" to leave out; did you mean \"date\"?");
  refused("?leave_out=name,5", "column 5 should be left out, but there are 5");
  refused("?leave_out=name,species", "column \"species\" is to be left out, but it is the label");
  refused("?leave_out=name,length,weight,date", "no column is left as a feature");
  refused("?leave_out=name&missing=0", "line 3, column 4 (\"date\"): expected a finite number");
  refused("?leave_out=name,date&scale=standart", "\"scale\": expected standard, range or none, got \"standart\"");
  // A model that was trained without numbers for it has none.
  Succeeds(Train("csv:flowers.csv?leave_out=name,date", 1));
  Fails(4, "\"scale\": its numbers are those of the data that a model was trained on, and there are none",
        {"test", "--data", "csv:flowers.csv?scale=standard"});
}

}  // namespace
}  // namespace bindery
