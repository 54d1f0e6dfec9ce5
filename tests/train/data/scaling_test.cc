#include "train/data/tables/scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "train/data/open.h"
#include "train/data/samples/sample_iter.h"
#include "train/data/tables/csv.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Five flowers: a column with a value missing, and a constant one.
const std::string kFlowers =
    "length,weight,petals,kind\n5.1,3500,7,a\n4.9,3000,7,b\n6.2,,7,a\n5.9,4125,7,b\n7.7,2600.5,7,a\n";

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name;
  WriteFileAtomically(path, bytes);
  return path;
}

HostTensor All(const OpenedData& opened) {
  return SampleIter(opened.samples, {.batch_size = opened.samples->samples()}).Next()->data[0];
}

void ExpectNear(const HostTensor& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.elements(), std::ssize(expected));
  for (int64_t i = 0; i < values.elements(); ++i) {
    EXPECT_NEAR(values.At(i), expected[static_cast<size_t>(i)], 1e-6) << i;
  }
}

void ExpectNear(const std::vector<double>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-9 * std::abs(expected[i])) << i;
}

// Numbers of scikit-learn 1.9.1: StandardScaler().fit(x), its mean_, sqrt(var_) and transform(x) of the five rows above
// as float64, with NaN for what is missing; MinMaxScaler likewise, its data_min_, data_max_, transform(x).
TEST(Scaling, AsScikitLearn) {
  const auto parse = [](ColumnScale scale) {
    return ParseCsv(kFlowers, "f", {.missing = CsvMissing::kValue, .missing_value = -3, .scaling = {scale}});
  };
  const CsvTable standard = parse(ColumnScale::kStandard);
  ExpectNear(standard.scaling.first, {5.96, 3306.375, 7});
  ExpectNear(standard.scaling.second, {0.9951884243699783, 570.0356759668643, 0});
  ExpectNear(standard.data, {-0.8641579613875017, 0.3396717226015434, 0,   //
                             -1.0651249291520362, -0.5374663602946306, 0,  //
                             0.24116036131744242, -3, 0,                   // filled in behind the scaling
                             -0.06029009032936016, 1.4360943262217607, 0,  //
                             1.7484126195514564, -1.2382996885286734, 0});
  const CsvTable range = parse(ColumnScale::kRange);
  ExpectNear(range.scaling.first, {4.9, 2600.5, 7});
  ExpectNear(range.scaling.second, {7.7, 4125, 7});
  ExpectNear(range.data, {0.07142857142857117, 0.590029517874713, 0,  //
                          0, 0.26205313217448345, 0,                  //
                          0.4642857142857142, -3, 0,                  //
                          0.357142857142857, 1, 0,                    //
                          1, 0, 0});
  // Labels are not scaled.
  const CsvTable labelled =
      ParseCsv("x,y\n1,10\n3,20\n", "f", {.label_is_number = true, .scaling = {ColumnScale::kStandard}});
  EXPECT_EQ(labelled.labels, HostTensor::From({2}, {10, 20}));
  EXPECT_EQ(labelled.data, HostTensor::From({2, 1}, {-1, 1}));
}

// Seconds since 1970, of which float32 has one in 128; numbers of scikit-learn as above.
TEST(Scaling, OfNumbersThatAreAlmostTheSame) {
  std::string rows;
  for (int i = 0; i < 6; ++i) rows += std::to_string(1700000000 + 30 * i) + ",a\n";
  const CsvTable standard = ParseCsv(rows, "f", {.scaling = {ColumnScale::kStandard}});
  ExpectNear(standard.scaling.first, {1700000075});
  ExpectNear(standard.scaling.second, {51.234753829797995});
  const std::vector<double> expected = {-1.4638501094227996, -0.8783100656536798, -0.2927700218845599,
                                        0.2927700218845599,  0.8783100656536798,  1.4638501094227996};
  ExpectNear(standard.data, expected);
  ExpectNear(ParseCsv(rows, "f", {.scaling = {ColumnScale::kRange}}).data, {0, 0.2, 0.4, 0.6, 0.8, 1});
  // And of rows that come from elsewhere.
  HostTensor others(DType::kFloat64, {2, 1});
  others.Set(0, 1700000030);
  others.Set(1, kNan);
  ExpectNear(ScaleColumns(standard.scaling, others, 0.5f), {expected[1], 0.5});
  EXPECT_TRUE(std::isnan(ScaleColumns(standard.scaling, others).At(1)));
  // Numbers that no float32 is, and those that are none of float64.
  EXPECT_EQ(ParseCsv("1e300,a\n3e300,a\n", "f", {.scaling = {ColumnScale::kRange}}).data,
            HostTensor::From({2, 1}, {0, 1}));
  const auto refused = [](const std::string& number, ColumnScale scale) {
    return MessageOf<DataError>([&] { ParseCsv("1,a\n" + number + ",a\n", "f", {.scaling = {scale}}); });
  };
  EXPECT_EQ(refused("1e300", ColumnScale::kNone),
            "DataError: \"f\", line 2, column 1: expected a finite number, got \"1e300\"");
  EXPECT_EQ(refused("1e309", ColumnScale::kRange),
            "DataError: \"f\", line 2, column 1: expected a finite number, got \"1e309\"");
  others.Set(0, 1e300);
  EXPECT_EQ(MessageOf<DataError>([&] { ScaleColumns({}, others); }),
            "DataError: element 0: 1e+300 is no finite float32");
}

TEST(Scaling, ConstantColumnsAreZero) {
  // 0.1 a thousand times: its sum is not what a thousandth of it times a thousand is.
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "0.1,NA,a\n";
  for (const ColumnScale scale : {ColumnScale::kStandard, ColumnScale::kRange}) {
    const CsvTable table = ParseCsv(text, "f", {.missing = CsvMissing::kValue, .missing_value = 5, .scaling = {scale}});
    for (int64_t row = 0; row < 1000; ++row) {
      ASSERT_EQ(table.data.At(2 * row), 0);
      ASSERT_EQ(table.data.At(2 * row + 1), 5);  // all of it is missing
    }
    // Other values of such a column do not count either: nothing is known of how far apart they are.
    EXPECT_EQ(ParseCsv("7,8,a\n", "f", {.scaling = table.scaling}).data, HostTensor::From({1, 2}, {0, 0}));
  }
}

TEST(Scaling, OfSomeRowsAndOfOthers) {
  const HostTensor table = HostTensor::From({4, 1}, {1, 100, 3, 100});
  const std::vector<int64_t> rows = {0, 2};
  const ColumnScaling scaling = MeasureColumns(table, ColumnScale::kStandard, rows);
  EXPECT_EQ(scaling, (ColumnScaling{ColumnScale::kStandard, {2}, {1}}));
  EXPECT_EQ(ScaleColumns(scaling, HostTensor::From({2, 1}, {4, 1})), HostTensor::From({2, 1}, {2, -1}));
  EXPECT_FALSE(MeasureColumns(table, ColumnScale::kNone, {}).IsMeasured());

  const auto refused = [](const ColumnScaling& bad, const HostTensor& values = HostTensor::From({1, 1}, {1})) {
    return MessageOf<DataError>([&] { ScaleColumns(bad, values); });
  };
  EXPECT_EQ(MessageOf<DataError>([&] { MeasureColumns(table, ColumnScale::kRange, {}); }),
            "DataError: there is no row to train on, of which columns could be scaled");
  EXPECT_EQ(refused({ColumnScale::kStandard, {1}, {}}),
            "DataError: \"mean\" and \"std\": expected a number in each for every column, got 1 and 0");
  EXPECT_EQ(refused({ColumnScale::kStandard, {kNan}, {1}}),
            "DataError: \"mean\" and \"std\": column 0 has nan and 1; expected finite numbers, no deviation below 0");
  for (const double bad : {-1.0, kNan, std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(refused({ColumnScale::kStandard, {1}, {bad}}), "");
  }
  EXPECT_EQ(
      refused({ColumnScale::kRange, {2}, {1}}),
      "DataError: \"min\" and \"max\": column 0 has 2 and 1; expected finite numbers in order, not too far apart");
  EXPECT_EQ(
      refused({ColumnScale::kRange, {-1e308}, {1e308}}),
      "DataError: \"min\" and \"max\": column 0 has -1e+308 and 1e+308; expected finite numbers in order, not too "
      "far apart");
  EXPECT_EQ(refused({ColumnScale::kRange, {2, 3}, {4, 5}}),
            "DataError: columns are scaled by numbers for 2, but there are 1 of rows (1, 1): other columns than those "
            "that the model was trained on, or damaged numbers; in a training, measure=1 takes numbers of these");
  EXPECT_EQ(refused({ColumnScale::kStandard, {0}, {1e-30}}, HostTensor::Full(DType::kFloat64, {1, 1}, 1e30)),
            "DataError: row 0, column 0: 1e+30 is too far from the values that scale is computed of");
}

// Where it is trained on them, and only there: without samples that are held back, and those of other shards.
TEST(OpenScaled, NumbersAreThoseOfWhatIsTrainedOn) {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += std::to_string(i * i) + "," + std::to_string(i % 3) + "\n";
  const std::string text = "csv:" + Write("squares.csv", rows) + "?scale=standard";
  for (const std::string shard : {"0/1", "1/3"}) {
    const OpenedData opened = OpenData(text + "&shard=" + shard, {.training = true, .held_back = {0.25, 0.1}});
    const SampleSourcePtr trained = SplitSource(SplitSource(opened.samples, 0.25).rest, 0.1).rest;
    ASSERT_LT(trained->samples(), opened.samples->samples());
    const HostTensor values = SampleIter(trained, {.batch_size = trained->samples()}).Next()->data[0];
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < values.elements(); ++i) {
      sum += values.At(i);
      squares += values.At(i) * values.At(i);
    }
    const auto count = static_cast<double>(values.elements());
    EXPECT_NEAR(sum / count, 0, 1e-6) << shard;
    EXPECT_NEAR(squares / count, 1, 1e-5) << shard;
  }
  EXPECT_EQ(
      MessageOf<DataError>([&] { OpenData(text, {.training = true, .held_back = {1}}); }).substr(11),
      "\"" + testing::TempDir() + "/squares.csv\": there is no row to train on, of which columns could be scaled");
}

TEST(OpenScaled, GoesWithTheModel) {
  const std::string flowers = "csv:" + Write("flowers.csv", "id," + std::string("length,weight,kind\nn1,5.1,3500,a\n"
                                                                                "n2,4.9,3000,b\nn3,7.7,2600.5,a\n"));
  const OpenedData trained = OpenData(flowers + "?leave_out=id&scale=standard&missing=0", {.training = true});
  EXPECT_TRUE(trained.preprocessing.starts_with("features=length,weight&label=kind&leave_out=id&mean=5.8999"));
  const HostTensor expected = All(trained);
  const OpenOptions known = {.preprocessing = trained.preprocessing};
  EXPECT_EQ(All(OpenData(flowers, known)), expected);
  EXPECT_EQ(OpenData(flowers, known).preprocessing, trained.preprocessing);
  // A setting that says so again means the same numbers, in a training, too.
  OpenOptions further = known;
  further.training = true;
  EXPECT_EQ(
      All(OpenData("csv:" + Write("one.csv", "id,length,weight,kind\nx,4.9,3000,b\n") + "?scale=standard", further)),
      HostTensor::From({1, 2}, expected.data<float>().subspan(2, 2)));
  // Numbers of its own, but in a training alone.
  const OpenedData anew = OpenData(flowers + "?measure=1&leave_out=id", further);
  EXPECT_EQ(anew.preprocessing, trained.preprocessing);  // of the same rows
  const std::string other = "csv:" + Write("two.csv", "id,length,weight,kind\nx,1,5,b\nx,3,5,a\n") + "?measure=1";
  EXPECT_EQ(OpenData(other, further).preprocessing,
            "features=length,weight&label=kind&leave_out=id&mean=2,5&missing=0&scale=standard&std=1,0");
  EXPECT_EQ(OpenData(other, known).preprocessing, trained.preprocessing);
  EXPECT_EQ(OpenData(other + "&leave_out=weight,id", further).preprocessing,
            "features=length&label=kind&leave_out=id,weight&mean=2&missing=0&scale=standard&std=1");
  // Without the column, other rows, one of them with a gap: the mean takes its place.
  const HostTensor others = All(OpenData("csv:" + Write("others.csv", "7.7,\n4.9,3000\n") + "?label=none", known));
  EXPECT_EQ(others.At(0), expected.At(4));
  EXPECT_EQ(others.At(1), 0);
  EXPECT_EQ(others.At(2), expected.At(2));
  // By hand, and undone.
  EXPECT_EQ(All(OpenData(flowers + "?leave_out=id&scale=range&min=4,2000&max=8,4000")),
            HostTensor::From({3, 2}, {(5.1 - 4.0) / 4, 0.75, (4.9 - 4.0) / 4, 0.5, (7.7 - 4.0) / 4, 0.30025}));
  EXPECT_EQ(All(OpenData(flowers + "?scale=none", known)).At(1), 3500);
  // In a program, rows that come from elsewhere.
  Model model;
  EXPECT_EQ(ScalingOfColumns(model), ColumnScaling());
  EXPECT_EQ(MissingOfColumns(model), std::nullopt);
  SetPreprocessing(trained.preprocessing, &model);
  HostTensor row = HostTensor::Full(DType::kFloat64, {1, 2}, 4.9);
  row.Set(1, 3000);
  EXPECT_EQ(MissingOfColumns(model), 0);
  EXPECT_EQ(ScaleColumns(ScalingOfColumns(model), row, MissingOfColumns(model)),
            HostTensor::From({1, 2}, expected.data<float>().subspan(2, 2)));
  // Data of another kind have their own meaning of these settings, and those of images are no columns'.
  const std::string arrays = "npz:tests/train/stored/numpy_stored.npz";
  EXPECT_EQ(All(OpenData(arrays, known)), All(OpenData(arrays)));
  EXPECT_EQ(All(OpenData(flowers + "?leave_out=id", {.preprocessing = "mean=0.5&rows=3&scale=2&std=0.1"})).At(1), 3500);
  SetPreprocessing("mean=0.5,1&rows=3&std=0.1", &model);
  EXPECT_EQ(ScalingOfColumns(model), ColumnScaling());
}

// A model is tuned to columns that are others by numbers of their own, unless there are others by hand.
TEST(OpenScaled, OtherColumnsAreMeasuredAnew) {
  const std::string first = "csv:" + Write("first.csv", "a,b,c,k\n1,2,3,x\n3,4,5,y\n"),
                    other = "csv:" + Write("other.csv", "c,a,d,k\n100,1,30,x\n300,3,10,y\n");
  LogLines log;
  for (const char* scale : {"?scale=standard", "?scale=range"}) {
    const OpenedData trained = OpenData(first + scale, {.training = true});
    const OpenOptions further = {.classes = trained.classes, .training = true, .preprocessing = trained.preprocessing};
    log.clear();
    EXPECT_EQ(OpenData(first, further).preprocessing, trained.preprocessing);
    EXPECT_EQ(log.text(), "");
    const OpenedData tuned = OpenData(other, further);
    EXPECT_EQ(tuned.preprocessing, OpenData(other + scale, {.training = true}).preprocessing);
    EXPECT_EQ(All(tuned), All(OpenData(other + scale, {.training = true})));
    EXPECT_NE(
        log.text().find("its columns are not those that the model was trained on: they are scaled by numbers of these"),
        std::string::npos)
        << log.text();
    const OpenedData asked = OpenData(other, {.classes = tuned.classes, .preprocessing = tuned.preprocessing});
    EXPECT_EQ(All(asked), All(tuned));
  }
  const OpenedData by_hand = OpenData(other + "?scale=standard&mean=0,0,0&std=100,1,10",
                                      {.training = true, .preprocessing = "features=a,b,c"});
  EXPECT_EQ(All(by_hand), HostTensor::From({2, 3}, {1, 1, 3, 3, 3, 1}));
}

TEST(OpenScaled, Errors) {
  const std::string text = "csv:" + Write("bad.csv", "1,2,a\n3,4,b\n");
  const auto refused = [&](const std::string& settings, const std::string& preprocessing = "") {
    const std::string message =
        MessageOf<DataError>([&] { OpenData(text + settings, {.preprocessing = preprocessing}); });
    return message.substr(message.find("\": ") + 3);
  };
  EXPECT_EQ(refused("?scale=255"), "\"scale\": expected standard, range or none, got \"255\"");
  EXPECT_EQ(refused("?scale=standard"),
            "\"scale\": its numbers are those of the data that a model was trained on, and there are none; mean= and "
            "std= give them, one for each column");
  EXPECT_EQ(refused("?scale=standard&measure=1&mean=1,2&std=1,1"),
            "\"measure\" is for numbers of the data, but \"mean\" gives others");
  EXPECT_EQ(refused("?measure=1"),
            "\"measure\": there is nothing to measure without scale=standard or scale=range, categories= or "
            "label_scale=");
  EXPECT_EQ(refused("?scale=standard&mean=&std="),
            "\"mean\": expected a number for each column; measure=1 takes those of the data");
  EXPECT_EQ(refused("?mean=1,2&std=1,2").substr(0, 22), "unknown setting \"mean\"");
  EXPECT_EQ(refused("?leave_out=7"), "column 7 should be left out, but there are 3");
  EXPECT_EQ(refused("?leave_out=0,1,2").substr(0, 36), "column \"2\" is to be left out, but it");
  // Damaged numbers of a model.
  EXPECT_EQ(refused("", "mean=1,nan&scale=standard&std=1,1"), "\"mean\": expected numbers, got \"nan\"");
  EXPECT_EQ(refused("", "mean=1,x&scale=standard&std=1,1"), "\"mean\": expected numbers, got \"x\"");
  EXPECT_EQ(refused("", "mean=1,2&scale=standard&std=1"),
            "\"mean\" and \"std\": expected a number in each for every column, got 2 and 1");
  EXPECT_EQ(refused("", "mean=1,2&scale=standard&std=1,-1"),
            "\"mean\" and \"std\": column 1 has 2 and -1; expected finite numbers, no deviation below 0");
  EXPECT_EQ(refused("", "max=1,1&min=0,2&scale=range"),
            "\"min\" and \"max\": column 1 has 2 and 1; expected finite numbers in order, not too far apart");
  EXPECT_EQ(refused("", "mean=1,2,3&scale=standard&std=1,1,1"),
            "columns are scaled by numbers for 3, but there are 2 of rows (2, 2): other columns than those that the "
            "model was trained on, or damaged numbers; in a training, measure=1 takes numbers of these");
  EXPECT_EQ(refused("", "mean=1,2&scale=standrad&std=1,1"),
            "\"scale\": expected standard, range or none, got \"standrad\"");
  // Arrays, whose labels alone are scaled.
  const auto refused_arrays = [](const std::string& data, const std::string& settings) {
    const std::string message = MessageOf<DataError>([&] { OpenData(data + settings, {.training = true}); });
    return message.substr(message.find("\": ") + 3);
  };
  const std::string array = testing::TempDir() + "/array.npy", number = testing::TempDir() + "/number.npy";
  SaveNpy(HostTensor::From({2}, {1, 2}), array);
  SaveNpy(HostTensor::From({}, {1}), number);
  EXPECT_EQ(refused_arrays("npy:" + array, "?measure=1"),
            "\"measure\": there is nothing to measure without label_scale=");
  EXPECT_EQ(refused_arrays("npy:" + array, "?labels=" + number + "&label_kind=numbers&label_scale=standard"),
            "the labels are one number, not one for each sample");
  SaveNpy(HostTensor(DType::kFloat32, {2, 0}), number);
  EXPECT_EQ(refused_arrays("npy:" + array, "?labels=" + number + "&label_kind=numbers&label_scale=standard"),
            "labels (2, 0) are no numbers that could be scaled");
  SaveNpy(HostTensor::From({2, 2}, {1, 2, 3, -INFINITY}), number);
  EXPECT_EQ(refused_arrays("npy:" + array, "?labels=" + number + "&label_kind=numbers&label_scale=range"),
            "\"label_scale\": a label of sample 1 is -inf");
  Model model;
  SetPreprocessing("mean=1,2&scale=standard", &model);
  EXPECT_EQ(
      MessageOf<DataError>([&] { ScalingOfColumns(model); }),
      "DataError: data \"csv:the model's\": \"mean\" and \"std\": expected a number in each for every column, got "
      "2 and 0");
}

}  // namespace
}  // namespace bindery
