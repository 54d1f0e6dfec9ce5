// Columns of words as categories, and the column of the label, of tables and of what a model keeps of them.
#include "train/data/tables/categories.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "train/data/open.h"
#include "train/data/samples/sample_iter.h"
#include "train/data/tables/csv.h"

namespace bindery {
namespace {

using Words = std::vector<std::string>;

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name;
  WriteFileAtomically(path, bytes);
  return path;
}

BatchPtr All(const OpenedData& opened) {
  return SampleIter(opened.samples, {.batch_size = opened.samples->samples()}).Next();
}
HostTensor Data(const OpenedData& opened) { return All(opened)->data[0]; }

template <class F>
Words Warnings(F&& f) {
  const LogLines warnings(LogLevel::kWarning);
  f();
  return warnings.lines();
}

const std::string kThings = "size,colour,zip,kind\n1.5,red,10115,a\n2.5,green,2,b\n4,Blue,10115,a\n3,green,80331,b\n";
const std::string kRows = "size,colour,zip\n2,purple,2\n0,red,1\n9,pink,2\n";

// Numbers of scikit-learn 1.9.1: StandardScaler of "size" beside OneHotEncoder(handle_unknown="ignore") of the others,
// fitted to the table and applied to it and to other rows; its categories_. pandas 3.1.1's get_dummies has the same
// columns.
TEST(Categories, AsScikitLearn) {
  CsvOptions options{.categories = std::vector<CsvCategories>{{"colour"}, {"zip"}},
                     .scaling = {ColumnScale::kStandard}};
  const CsvTable table = ParseCsv(kThings, "f", options);
  const std::vector<ColumnCategories> expected = {{1, {"Blue", "green", "red"}}, {2, {"2", "10115", "80331"}}};
  EXPECT_EQ(table.categories, expected);
  EXPECT_EQ(table.columns, (Words{"size", "colour", "zip"}));
  const auto near = [](const HostTensor& values, const std::vector<float>& wanted) {
    EXPECT_EQ(values.shape(), (Shape{std::ssize(wanted) / 7, 7}));
    EXPECT_LT(MaxAbsDiff(values, HostTensor::From(values.shape(), wanted)), 1e-6);
  };
  near(table.data, {-1.38675049f, 0, 0, 1, 0, 1, 0, -0.2773501f, 0, 1, 0, 1, 0, 0,  //
                    1.38675049f,  1, 0, 0, 0, 1, 0, 0.2773501f,  0, 1, 0, 0, 0, 1});
  const CsvOptions known{.label = "none", .known_categories = table.categories, .scaling = table.scaling};
  HostTensor others;
  const Words warnings = Warnings([&] { others = ParseCsv(kRows, "rows.csv", known).data; });
  near(others, {-0.83205029f,
                0,
                0,
                0,
                1,
                0,
                0,
                -3.05085108f,
                0,
                0,
                1,
                0,
                0,
                0,  //
                static_cast<float>((9 - 2.75) / 0.9013878188659973),
                0,
                0,
                0,
                1,
                0,
                0});
  // One of each column.
  EXPECT_EQ(
      warnings,
      (Words{"\"rows.csv\", line 2, column \"colour\": \"purple\" is none of the 3 categories of the training; such "
             "values, of which there are 2, count as none of them",
             "\"rows.csv\", line 3, column \"zip\": \"1\" is none of the 3 categories of the training; such values, "
             "of which there are 1, count as none of them"}));
}

// What is not trained on gives no category, and no warning before it is asked about.
TEST(Categories, AreThoseOfTheRowsThatAreTrainedOn) {
  const std::string text = "csv:" + Write("held.csv", "c,k\nx,a\nz,b\ny,a\nx,b\n") + "?categories=c&shard=";
  for (const auto& [shard, kept] : {std::pair("0/1", "c:x|y|z"), {"0/2", "c:x|y"}, {"1/2", "c:x|z"}}) {
    OpenedData opened;
    EXPECT_EQ(Warnings([&] { opened = OpenData(text + shard, {.training = true}); }), Words());
    EXPECT_EQ(opened.preprocessing, std::string("categories=") + kept + "&features=c&label=k");
  }
  EXPECT_EQ(MessageOf<DataError>([&] { OpenData(text + "0/1", {.training = true, .held_back = {1}}); }).substr(11),
            "\"" + testing::TempDir() + "/held.csv\": there is no row to train on, which could have categories");
}

TEST(Categories, GoWithTheModel) {
  const std::string things = "csv:" + Write("things.csv", kThings);
  const OpenedData trained = OpenData(things + "?categories=zip,colour&scale=range", {.training = true});
  EXPECT_EQ(trained.preprocessing,
            "categories=colour:Blue|green|red,zip:2|10115|80331&features=size,colour,zip&label=kind&"
            "max=4,1,1,1,1,1,1&min=1.5,0,0,0,0,0,0&scale=range");
  const OpenOptions known = {.classes = trained.classes, .preprocessing = trained.preprocessing};
  const HostTensor expected = Data(trained);
  EXPECT_EQ(Data(OpenData(things, known)), expected);
  EXPECT_EQ(OpenData(things, known).preprocessing, trained.preprocessing);
  // Said again they are the same; in another order of columns, and without a header.
  EXPECT_EQ(Data(OpenData(things + "?categories=colour,zip", known)), expected);
  const std::string turned = "kind,zip,size,colour\na,10115,1.5,red\nb,2,2.5,green\na,10115,4,Blue\nb,80331,3,green\n";
  EXPECT_EQ(Data(OpenData("csv:" + Write("turned.csv", turned), known)), expected);
  const std::string bare = "csv:" + Write("bare.csv", kThings.substr(kThings.find('\n') + 1));
  EXPECT_EQ(Data(OpenData(bare + "?header=0", known)), expected);
  // By hand.
  const OpenedData by_hand = OpenData(things + "?leave_out=size,zip&categories=colour:red|Blue|green");
  EXPECT_EQ(Data(by_hand), HostTensor::From({4, 3}, {1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}));
  // A training that goes on from the model has its categories, unless it measures its own.
  OpenOptions further = known;
  further.training = true;
  const std::string few = "csv:" + Write("few.csv", "size,colour,zip,kind\n1.5,red,2,a\n4,red,3,b\n");
  EXPECT_EQ(OpenData(few, further).preprocessing, trained.preprocessing);
  EXPECT_EQ(OpenData(few + "?measure=1", further).preprocessing.find("categories=colour:red,zip:2|3&"), 0u);
  // In a program, rows that come from elsewhere.
  Model model;
  EXPECT_TRUE(CategoriesOfColumns(model).empty());
  SetPreprocessing(trained.preprocessing, &model);
  const std::vector<ColumnCategories> categories = CategoriesOfColumns(model);
  ASSERT_EQ(categories.size(), 2u);
  HostTensor row(DType::kFloat64, {1, 3});
  row.Set(0, 2.5);
  row.Set(1, categories[0].NumberOf("green"));
  row.Set(2, categories[1].NumberOf("2"));
  EXPECT_EQ(ScaleColumns(ScalingOfColumns(model), ExpandCategories(categories, row)),
            HostTensor::From({1, 7}, expected.data<float>().subspan(7, 7)));
  EXPECT_EQ(categories[0].NumberOf("purple"), ColumnCategories::kNone);
}

// Features without names go by their places, from 0, whatever stands before them.
TEST(Categories, WithoutNames) {
  const std::string text = "csv:" + Write("plain.csv", "1,n1,5,x\n2,n2,6,y\n") + "?header=0&label=0&leave_out=1";
  const OpenedData trained = OpenData(text + "&categories=3", {.training = true});
  EXPECT_EQ(trained.preprocessing, "categories=1:x|y&label=0&leave_out=1");
  EXPECT_EQ(Data(trained), HostTensor::From({2, 3}, {5, 1, 0, 6, 0, 1}));
  const std::string rows = "csv:" + Write("rows.csv", "7,y\n8,x\n") + "?header=0&label=none&leave_out=none";
  EXPECT_EQ(Data(OpenData(rows, {.preprocessing = trained.preprocessing})),
            HostTensor::From({2, 3}, {7, 0, 1, 8, 1, 0}));
  // A model's names are those of as many.
  EXPECT_EQ(OpenData(text + "&categories=3", {.training = true, .preprocessing = "features=a,b"}).preprocessing,
            "categories=b:x|y&features=a,b&label=0&leave_out=1");
  for (const char* other : {"features=a", "features=a,b,c"}) {
    EXPECT_EQ(OpenData(text + "&categories=3", {.training = true, .preprocessing = other}).preprocessing,
              trained.preprocessing);
    EXPECT_NE(
        MessageOf<DataError>([&] {
          OpenData(rows + "&categories=1:x|y", {.preprocessing = other});
        }).find(std::string("it has 2 features, but the model ") + (std::string_view(other).size() > 10 ? "3" : "1")),
        std::string::npos);
  }
}

// Any text may be a category.
TEST(Categories, NamesThatSettingsHaveSignsFor) {
  const std::string odd = "\"a,b\",k\n\"x|y\",a\n100%,b\n\"p&q=r:s\",a\n";
  const std::string text = "csv:" + Write("odd.csv", odd);
  const OpenedData trained = OpenData(text + "?categories=a%2cb", {.training = true});
  EXPECT_EQ(trained.preprocessing, "categories=a%2cb:100%25|p%26q%3dr%3as|x%7cy&features=a%2cb&label=k");
  const HostTensor expected = HostTensor::From({3, 3}, {0, 0, 1, 1, 0, 0, 0, 1, 0});
  EXPECT_EQ(Data(trained), expected);
  EXPECT_EQ(Data(OpenData(text, {.preprocessing = trained.preprocessing})), expected);
}

TEST(Categories, Missing) {
  CsvOptions options{.missing = CsvMissing::kValue, .categories = std::vector<CsvCategories>{{"c"}}};
  for (const char* missing : {"", "NA", "?"}) {
    EXPECT_EQ(MessageOf<DataError>([&] { ParseCsv("c,x,k\n" + std::string(missing) + ",1,a\n", "f", options); }),
              "DataError: \"f\", line 2, column 1 (\"c\"): the category is missing, whose place no number takes; "
              "missing=leave-out leaves such rows out");
  }
  options.missing = CsvMissing::kLeaveOut;
  const CsvTable table = ParseCsv("c,x,k\n,1,a\nu,2,a\nv,3,b\n", "f", options);
  EXPECT_EQ(table.data, HostTensor::From({2, 3}, {1, 0, 2, 0, 1, 3}));
  EXPECT_EQ(table.left_out, 1);
}

TEST(Categories, Errors) {
  const std::string text = "csv:" + Write("errors.csv", "c,x,id,k\nu,1,n1,a\nv,2,n2,b\n");
  const auto refused = [&](const std::string& settings, const OpenOptions& options = {.training = true}) {
    const std::string message = MessageOf<DataError>([&] { OpenData(text + settings, options); });
    return message.substr(message.find("\": ") + 3);
  };
  EXPECT_NE(refused("?leave_out=id").find("expected a finite number, got \"u\"; \"categories\" names columns of words"),
            std::string::npos);
  EXPECT_EQ(refused("?leave_out=id&categories=d"), "there is no column \"d\" of categories; did you mean \"id\"?");
  EXPECT_EQ(refused("?leave_out=id&categories=9"), "column 9 should have categories, but there are 4");
  EXPECT_EQ(refused("?leave_out=id&categories=c,id"), "column \"id\" is to have categories, but it is left out");
  EXPECT_EQ(refused("?leave_out=id&categories=c,k").substr(0, 55),
            "column \"k\" is to have categories, but it is the label; ");
  EXPECT_EQ(refused("?leave_out=id&categories=c,0"), "column \"c\" has categories twice");
  EXPECT_EQ(refused("?leave_out=id&categories=c:"), "\"categories\": column \"c\" has a category without a name");
  EXPECT_EQ(refused("?leave_out=id&categories=c:u|u"), "\"categories\": column \"c\" has a category twice");
  EXPECT_EQ(refused("?leave_out=id&categories=c", {}),
            "the categories of column \"c\" are those of the data that a model was trained on, and there are none; "
            "\"categories\" gives them as c:ONE|ANOTHER");
  // Of a model.
  const auto damaged = [&](const std::string& kept) { return refused("?leave_out=id", {.preprocessing = kept}); };
  EXPECT_EQ(damaged("categories=d:u&features=c,x"), "\"categories\": there is no feature \"d\"; known: c, x");
  EXPECT_EQ(damaged("categories=c&features=c,x"), "\"categories\": feature \"c\" has none");
  EXPECT_EQ(damaged("categories=c:u,c:v&features=c,x"), "\"categories\": feature \"c\" has them twice");
  EXPECT_EQ(damaged("categories=7:u"), "the model has categories of feature 7, from 0, but there are 2");
  std::string many = "c,k\n";
  for (int i = 0; i < 1025; ++i) many += "n" + std::to_string(i) + ",a\n";
  const CsvOptions options{.categories = std::vector<CsvCategories>{{"c"}}};
  EXPECT_EQ(
      MessageOf<DataError>([&] { ParseCsv(many, "f", options); }),
      "DataError: \"f\", line 1026, column 1 (\"c\"): the column has more than 1024 categories; \"leave_out\" names "
      "columns that are no features");
  EXPECT_EQ(MessageOf<DataError>([] {
              ExpandCategories(std::vector<ColumnCategories>{{2, {"a"}}}, HostTensor(DType::kFloat64, {1, 2}));
            }),
            "DataError: there are categories of feature 2, from 0, but rows are (1, 2)");
}

// A model knows its label by the name that it had, wherever it stands.
TEST(LabelColumn, IsFoundAgain) {
  const OpenedData trained =
      OpenData("csv:" + Write("priced.csv", "x,price,y\n1,10,2\n3,30,4\n") + "?label=price&label_kind=numbers");
  EXPECT_EQ(trained.preprocessing, "features=x,y&label=price");
  const OpenOptions known = {.preprocessing = trained.preprocessing};
  const auto labels = [&](const std::string& bytes, OpenOptions options, const std::string& more = "") {
    return All(OpenData("csv:" + Write("other.csv", bytes) + "?label_kind=numbers" + more, options))->label;
  };
  const HostTensor expected = HostTensor::From({2}, {10, 30});
  for (const char* other :
       {"x,price,y\n1,10,2\n3,30,4\n", "price,y,x\n10,2,1\n30,4,3\n", "x,y,price\n1,2,10\n3,4,30\n"}) {
    EXPECT_EQ(labels(other, known).at(0), expected) << other;
  }
  // Without it there is nothing to test by, and all that a prediction needs.
  EXPECT_EQ(
      MessageOf<DataError>([&] { labels("x,y,cost\n1,2,3\n", known); }),
      "DataError: \"" + testing::TempDir() +
          "/other.csv\": there is no column \"price\" for the label, which the model was trained with; known: x, y, "
          "cost");
  OpenOptions predicting = known;
  predicting.predicting = true;
  EXPECT_TRUE(labels("y,x\n1,2\n", predicting).empty());
  EXPECT_EQ(labels("y,price,x\n1,7,2\n", predicting).at(0), HostTensor::From({1}, {7}));
  // A file without names has it last, if that fits; a training on other columns, too.
  EXPECT_EQ(labels("1,2,10\n3,4,30\n", known).at(0), expected);
  OpenOptions training = known;
  training.training = true;
  EXPECT_EQ(labels("u,v,cost\n1,2,10\n3,4,30\n", training).at(0), expected);
  EXPECT_EQ(labels("price,v,cost\n10,2,1\n30,4,3\n", training).at(0), expected);
  // Several, and a name with a comma in it.
  const std::string two = "csv:" + Write("two.csv", "x,\"a, b\",c\n1,10,20\n") + "?label_kind=numbers&label=c,1";
  const OpenedData both = OpenData(two);
  EXPECT_EQ(both.preprocessing, "features=x&label=c,a%2c b");
  EXPECT_EQ(labels("c,\"a, b\",x\n20,10,1\n", {.preprocessing = both.preprocessing}).at(0),
            HostTensor::From({1, 2}, {20, 10}));
  predicting.preprocessing = both.preprocessing;
  EXPECT_NE(MessageOf<DataError>([&] { labels("c,x\n20,1\n", predicting); }).find("there is no column \"a, b\""),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
