#include "train/data/tables/scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "tests/message_of.h"
#include "train/data/open.h"
#include "train/data/samples/sample_iter.h"
#include "train/data/tables/csv.h"

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
// as float32, made float64, with NaN for what is missing; MinMaxScaler likewise, its data_min_, data_max_, transform(x).
TEST(Scaling, AsScikitLearn) {
  const auto parse = [](ColumnScale scale) {
    return ParseCsv(kFlowers, "f", {.missing = CsvMissing::kValue, .missing_value = -3, .scaling = {scale}});
  };
  const CsvTable standard = parse(ColumnScale::kStandard);
  ExpectNear(standard.scaling.first, {5.959999942779541, 3306.375, 7});
  ExpectNear(standard.scaling.second, {0.9951883434907144, 570.0356759668643, 0});
  ExpectNear(standard.data, {-0.8641580939292908, 0.3396717309951782, 0,   //
                             -1.0651248693466187, -0.5374663472175598, 0,  //
                             0.24116024374961853, -3, 0,                   // filled in behind the scaling
                             -0.06028994172811508, 1.4360942840576172, 0,  //
                             1.7484126091003418, -1.2382997274398804, 0});
  const CsvTable range = parse(ColumnScale::kRange);
  ExpectNear(range.scaling.first, {4.900000095367432, 2600.5, 7});
  ExpectNear(range.scaling.second, {7.699999809265137, 4125, 7});
  ExpectNear(range.data, {0.07142850756645203, 0.5900295376777649, 0,  //
                          0, 0.26205313205718994, 0,                   //
                          0.464285671710968, -3, 0,                    //
                          0.3571428954601288, 1, 0,                    //
                          1, 0, 0});
  // Labels are not scaled.
  const CsvTable labelled =
      ParseCsv("x,y\n1,10\n3,20\n", "f", {.label_is_number = true, .scaling = {ColumnScale::kStandard}});
  EXPECT_EQ(labelled.labels, HostTensor::From({2}, {10, 20}));
  EXPECT_EQ(labelled.data, HostTensor::From({2, 1}, {-1, 1}));
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
  HostTensor scaled = HostTensor::From({2, 1}, {4, 1});
  ScaleColumns(scaling, &scaled);
  EXPECT_EQ(scaled, HostTensor::From({2, 1}, {2, -1}));
  EXPECT_FALSE(MeasureColumns(table, ColumnScale::kNone, {}).IsMeasured());

  const auto refused = [](const ColumnScaling& bad, HostTensor values = HostTensor::From({1, 1}, {1})) {
    return MessageOf<DataError>([&] { ScaleColumns(bad, &values); });
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
  EXPECT_EQ(refused({ColumnScale::kRange, {2}, {1}}),
            "DataError: \"min\" and \"max\": column 0 has 2 and 1; expected finite numbers in order");
  EXPECT_EQ(refused({ColumnScale::kRange, {2, 3}, {4, 5}}),
            "DataError: columns are scaled by numbers for 2, but there are 1 of rows (1, 1): other columns than those "
            "that the model was trained on, or damaged numbers");
  EXPECT_EQ(refused({ColumnScale::kStandard, {0}, {1e-30}}, HostTensor::From({2, 1}, {0, 1e30f})),
            "DataError: row 1, column 0: 1e+30 is too far from the values that scale is computed of");
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
  EXPECT_TRUE(trained.preprocessing.starts_with("leave_out=id&mean=5.8999"));
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
  // Without the column, other rows, one of them with a gap: the mean takes its place.
  const HostTensor others = All(OpenData("csv:" + Write("others.csv", "7.7,\n4.9,3000\n") + "?label=none", known));
  EXPECT_EQ(others.At(0), expected.At(4));
  EXPECT_EQ(others.At(1), 0);
  EXPECT_EQ(others.At(2), expected.At(2));
  // By hand, and undone.
  EXPECT_EQ(All(OpenData(flowers + "?leave_out=id&scale=range&min=4,2000&max=8,4000")),
            HostTensor::From({3, 2}, {(5.1f - 4.0) / 4, 0.75, (4.9f - 4.0) / 4, 0.5, (7.7f - 4.0) / 4, 0.30025}));
  EXPECT_EQ(All(OpenData(flowers + "?scale=none", known)).At(1), 3500);
  // In a program, rows that come from elsewhere.
  Model model;
  EXPECT_EQ(ScalingOfColumns(model), ColumnScaling());
  SetPreprocessing(trained.preprocessing, &model);
  HostTensor row = HostTensor::From({1, 2}, {4.9f, 3000});
  ScaleColumns(ScalingOfColumns(model), &row);
  EXPECT_EQ(row, HostTensor::From({1, 2}, expected.data<float>().subspan(2, 2)));
  // Data of another kind have their own meaning of these settings, and those of images are no columns'.
  const std::string arrays = "npz:tests/train/stored/numpy_stored.npz";
  EXPECT_EQ(All(OpenData(arrays, known)), All(OpenData(arrays)));
  EXPECT_EQ(All(OpenData(flowers + "?leave_out=id", {.preprocessing = "mean=0.5&rows=3&scale=2&std=0.1"})).At(1), 3500);
  SetPreprocessing("mean=0.5,1&rows=3&std=0.1", &model);
  EXPECT_EQ(ScalingOfColumns(model), ColumnScaling());
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
            "\"min\" and \"max\": column 1 has 2 and 1; expected finite numbers in order");
  EXPECT_EQ(refused("", "mean=1,2,3&scale=standard&std=1,1,1"),
            "columns are scaled by numbers for 3, but there are 2 of rows (2, 2): other columns than those that the "
            "model was trained on, or damaged numbers");
  EXPECT_EQ(refused("", "mean=1,2&scale=standrad&std=1,1"),
            "\"scale\": expected standard, range or none, got \"standrad\"");
  Model model;
  SetPreprocessing("mean=1,2&scale=standard", &model);
  EXPECT_EQ(
      MessageOf<DataError>([&] { ScalingOfColumns(model); }),
      "DataError: data \"csv:the model's\": \"mean\" and \"std\": expected a number in each for every column, got "
      "2 and 0");
}

}  // namespace
}  // namespace bindery
