#include "train/data/tables/csv.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

using Words = std::vector<std::string>;

TEST(CsvReader, QuotesSeparatorsAndLineEnds) {
  const std::string text =
      "\xEF\xBB\xBF"
      "a,\"b,c\",\"say \"\"so\"\"\"\r\n\n\"two\nlines\",,\r\n,\nlast,\"\"";
  CsvReader reader(text, "f");
  std::vector<std::pair<int64_t, Words>> rows;
  while (reader.Next()) rows.emplace_back(reader.line(), reader.fields());
  EXPECT_EQ(rows, (std::vector<std::pair<int64_t, Words>>{
                      {1, {"a", "b,c", "say \"so\""}}, {3, {"two\nlines", "", ""}}, {5, {"", ""}}, {6, {"last", ""}}}));
}

TEST(CsvReader, Errors) {
  const auto message = [](const std::string& text) {
    return MessageOf<DataError>([&] {
      CsvReader reader(text, "f");
      while (reader.Next()) continue;
    });
  };
  EXPECT_EQ(message("a\nb,\"c\n"), "DataError: \"f\", line 2, column 2: the quote that begins here does not end");
  EXPECT_EQ(message("a\"b\""), "DataError: \"f\", line 1, column 1: a quote within a field that has none around it");
  EXPECT_EQ(message("\"a\nb\"\n\"c\"d"), "DataError: \"f\", line 3, column 1: text behind the closing quote");
}

TEST(Csv, NumbersAndClasses) {
  const CsvTable table = ParseCsv("size,kind,weight\n1,dog, -2.5e1\n+3,cat,4\n5,dog,6\n", "f", {.label = "kind"});
  EXPECT_EQ(table.data, HostTensor::From({3, 2}, {1, -25, 3, 4, 5, 6}));
  EXPECT_EQ(table.labels, HostTensor::From({3}, {1, 0, 1}));
  EXPECT_EQ(table.columns, (Words{"size", "weight"}));
  EXPECT_EQ(table.label_names, Words{"kind"});
  EXPECT_EQ(table.classes, (Words{"cat", "dog"}));
  // Without a header; numbers as classes have their order, and known classes keep theirs.
  const CsvTable plain = ParseCsv("1;10\n2;9\n3;10\n", "f", {.separator = ';'});
  EXPECT_EQ(plain.columns, Words{"0"});
  EXPECT_EQ(plain.label_names, Words{""});
  EXPECT_EQ(plain.classes, (Words{"9", "10"}));
  EXPECT_EQ(plain.labels, HostTensor::From({3}, {1, 0, 1}));
  EXPECT_EQ(ParseCsv("1,a\n2,b", "f", {.classes = {"b", "c", "a"}}).labels, HostTensor::From({2}, {2, 0}));
  EXPECT_EQ(ParseCsv("1.5,2\n2,3", "f", {.label = "0", .label_is_number = true}).labels,
            HostTensor::From({2}, {1.5, 2}));
  const CsvTable unlabelled = ParseCsv("a,b\n1,2", "f", {.label = "none"});
  EXPECT_EQ(unlabelled.data.shape(), (Shape{1, 2}));
  EXPECT_EQ(unlabelled.labels.elements(), 0);
}

TEST(Csv, SeveralLabelsThatAreNumbers) {
  const std::string text = "a,b,\"c,d\",e\n1,2,3,4\n5,,7,8\n9,10,11,12\n";
  const CsvTable table =
      ParseCsv(text, "f", {.label = "e,0", .label_is_number = true, .missing = CsvMissing::kLeaveOut});
  EXPECT_EQ(table.data, HostTensor::From({2, 2}, {2, 3, 10, 11}));
  EXPECT_EQ(table.labels, HostTensor::From({2, 2}, {4, 1, 12, 9}));
  EXPECT_EQ(table.columns, (Words{"b", "c,d"}));
  EXPECT_EQ(table.left_out, 1);
  // A name that has a comma in it is one.
  const CsvTable one = ParseCsv("a,\"c,d\"\n1,2\n", "f", {.label = "c,d", .label_is_number = true});
  EXPECT_EQ(one.labels, HostTensor::From({1}, {2}));
  const auto refused = [&](const std::string& label, bool number = true) {
    return MessageOf<DataError>([&] { ParseCsv(text, "f", {.label = label, .label_is_number = number}); });
  };
  EXPECT_EQ(refused("a,b,a"), "DataError: \"f\": column \"a\" is a label twice");
  EXPECT_EQ(refused("a,x"), "DataError: \"f\": there is no column \"x\" for the label; known: a, b, c,d, e");
  EXPECT_EQ(refused("0,1,2,3"), "DataError: \"f\": its only columns are the labels");
  EXPECT_NE(refused("a,b", false).find("there is no column \"a,b\""), std::string::npos);  // a class is one column
}

TEST(Csv, MissingValues) {
  const std::string text = "x,y,class\n1,,a\nNA,2,b\n3,4,?\n5,6,a\n";
  EXPECT_EQ(MessageOf<DataError>([&] { ParseCsv(text, "f"); }),
            "DataError: \"f\", line 2, column 2 (\"y\"): the value is missing");
  const CsvTable left = ParseCsv(text, "f", {.missing = CsvMissing::kLeaveOut});
  EXPECT_EQ(left.data, HostTensor::From({1, 2}, {5, 6}));
  EXPECT_EQ(left.left_out, 3);
  EXPECT_EQ(left.classes, Words{"a"});
  const CsvTable label_first =
      ParseCsv("class,x\nb,\na,1\n", "f", {.label = "class", .missing = CsvMissing::kLeaveOut});
  EXPECT_EQ(label_first.classes, Words{"a"});
  // A class is a word like any other: only numbers have a value to take their place.
  const CsvTable filled = ParseCsv(text, "f", {.missing = CsvMissing::kValue, .missing_value = -1});
  EXPECT_EQ(filled.data, HostTensor::From({4, 2}, {1, -1, -1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(filled.classes, (Words{"?", "a", "b"}));
  // But no field is none.
  for (const bool number : {false, true}) {
    EXPECT_EQ(MessageOf<DataError>([&] {
                ParseCsv("a,b,label\n1,2,1\n3,,\n", "f", {.label_is_number = number, .missing = CsvMissing::kValue});
              }),
              "DataError: \"f\", line 3, column 3 (\"label\"): the label is missing, whose place no number takes; "
              "missing=leave-out leaves such rows out");
  }
}

// As NumPy and pandas read them; what is too large is an error.
TEST(Csv, NumbersThatAreTooSmallAreZero) {
  const std::string text = "x,y\n1e-60,1e-400\n-1e-50,4e-324\n1e-40,+1e-9999\n";
  const CsvTable table = ParseCsv(text, "f", {.label_is_number = true});
  EXPECT_EQ(table.data, HostTensor::From({3, 1}, {0, -0.0f, 1e-40f}));
  EXPECT_EQ(table.labels, HostTensor::From({3}, {0, 0, 0}));
  EXPECT_EQ(ParseCsv("1e-400,2e-400\n1,1\n", "f", {.label_is_number = true}).data.shape(), Shape({2, 1}));  // no header
  const CsvTable scaled = ParseCsv("1e-400,a\n1,b\n", "f", {.scaling = {.scale = ColumnScale::kRange}});
  EXPECT_EQ(scaled.data, HostTensor::From({2, 1}, {0, 1}));
  for (const char* large : {"1e39", "-1e400", "1e9999"}) {
    EXPECT_NE(MessageOf<DataError>([&] {
                ParseCsv("1,a\n" + std::string(large) + ",a\n", "f");
              }).find("expected a finite number"),
              std::string::npos)
        << large;
  }
}

TEST(Csv, ColumnsThatAreLeftOut) {
  const std::string text = ",x,date,\"a,b\",kind\nn1,1,2024-01-02,7,cat\nn2,2,,8,dog\n,3,never,9,cat\n";
  for (const char* left_out : {"date,", ",date", "2,0", "-3,-5"}) {
    const CsvTable table = ParseCsv(text, "f", {.missing = CsvMissing::kLeaveOut, .leave_out = left_out});
    EXPECT_EQ(table.data, HostTensor::From({3, 2}, {1, 7, 2, 8, 3, 9})) << left_out;  // nothing in them is missing
    EXPECT_EQ(table.labels, HostTensor::From({3}, {0, 1, 0}));
    EXPECT_EQ(table.columns, (Words{"x", "a,b"}));
    EXPECT_EQ(table.left_out, 0);
    EXPECT_EQ(table.leave_out, ",date");
  }
  const auto kept = [](const std::string& csv, const CsvOptions& options) {
    return ParseCsv(csv, "f", options).leave_out;
  };
  EXPECT_EQ(kept("a,b\n1,2\n", {}), "none");
  // A name with a comma in it is one; what cannot stand in the text of a data set goes by its number, as what is there
  // twice does, and all columns where there are no names.
  EXPECT_EQ(kept("x,\"a,b\",k\n1,t,2\n", {.leave_out = "a,b"}), "1");
  EXPECT_EQ(kept("x,a&b,k\n1,t,2\n", {.leave_out = "a&b"}), "1");
  EXPECT_EQ(kept("x,y,x,k\n1,2,t,3\n", {.leave_out = "2"}), "2");
  EXPECT_EQ(kept("1,t,u,2\n", {.leave_out = "-2,1"}), "1,2");
  // Labels may be numbers, and none.
  const CsvTable numbers = ParseCsv("id,x,y\nn,2,3\n", "f", {.label_is_number = true, .leave_out = "id"});
  EXPECT_EQ(numbers.data, HostTensor::From({1, 1}, {2}));
  EXPECT_EQ(numbers.labels, HostTensor::From({1}, {3}));
  EXPECT_EQ(ParseCsv("n,2,3\n", "f", {.label = "none", .leave_out = "0"}).data, HostTensor::From({1, 2}, {2, 3}));
  // What another file had may be lacking.
  const CsvTable lacks = ParseCsv("x,k\n1,a\n", "f", {.leave_out = "id,x2,7", .may_lack_left_out = true});
  EXPECT_EQ(lacks.columns, Words{"x"});
  EXPECT_EQ(lacks.leave_out, "none");

  const auto refused = [](const std::string& csv, const CsvOptions& options) {
    return MessageOf<DataError>([&] { ParseCsv(csv, "f", options); });
  };
  const std::string three = "id,date,x,kind\nn,t,1,a\n";
  EXPECT_EQ(refused(three, {.leave_out = "id,data"}),
            "DataError: \"f\": there is no column \"data\" to leave out; did you mean \"date\"?");
  EXPECT_EQ(refused(three, {.leave_out = "weight"}),
            "DataError: \"f\": there is no column \"weight\" to leave out; known: id, date, x, kind");
  EXPECT_EQ(refused(three, {.leave_out = "4"}), "DataError: \"f\": column 4 should be left out, but there are 4");
  EXPECT_EQ(refused("n,1,a\n", {.leave_out = "id"}),
            "DataError: \"f\": there is no column \"id\" to leave out, and the file has no header");
  EXPECT_EQ(refused(three, {.leave_out = "id,0"}), "DataError: \"f\": column \"id\" is left out twice");
  EXPECT_EQ(
      refused(three, {.leave_out = "id,kind"}),
      "DataError: \"f\": column \"kind\" is to be left out, but it is the label; \"label\" names another, label=none "
      "says that there is none");
  EXPECT_EQ(refused(three, {.leave_out = "id,date,x"}),
            "DataError: \"f\": no column is left as a feature: all others are left out");
}

TEST(Csv, FeaturesByTheirNames) {
  const Words abc = {"a", "b", "c"};
  const auto read = [&](const std::string& text, const std::string& label) {
    return ParseCsv(text, "f", {.label = label, .leave_out = "id", .may_lack_left_out = true, .features = abc});
  };
  const HostTensor rows = HostTensor::From({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const char* text : {"a,b,c,k\n1,2,3,x\n4,5,6,y\n", "c,k,a,id,b\n3,x,1,p,2\n6,y,4,q,5\n"}) {
    const CsvTable table = read(text, "k");
    EXPECT_EQ(table.data, rows) << text;
    EXPECT_EQ(table.columns, abc);
    EXPECT_EQ(table.labels, HostTensor::From({2}, {0, 1}));
  }
  EXPECT_EQ(read("1,2,3,x\n4,5,6,y\n", "-1").data, rows) << "without a header, by their order";
  const auto refused = [&](const std::string& header, const std::string& label) {
    return MessageOf<DataError>([&] { read(header + "\n1,2,3,4,5\n", label); });
  };
  const std::string file = "DataError: \"f\": ";
  EXPECT_EQ(refused("a,c,bb,k,id", "k"),
            file + "there is no column \"b\", which the model has as a feature; did you mean \"bb\"?");
  EXPECT_EQ(refused("a,b,c,aa,k", "k"),
            file + "column \"aa\" is no feature of the model; did you mean \"a\"?; \"leave_out\" names such columns");
  EXPECT_EQ(refused("id,a,b,c", "-1"), file +
                                           "column \"c\" is a feature of the model, but here it is the label; "
                                           "\"label\" names another, label=none says that there is none");
  EXPECT_EQ(refused("a,b,a,c,k", "k"), file + "a feature is there twice");
  // As it stands, where others are possible.
  CsvOptions others = {.features = abc, .may_have_others = true};
  EXPECT_EQ(ParseCsv("c,bb,a,k\n1,2,3,x\n", "f", others).data, HostTensor::From({1, 3}, {1, 2, 3}));
  EXPECT_EQ(ParseCsv("c,b,a,k\n1,2,3,x\n", "f", others).data, HostTensor::From({1, 3}, {3, 2, 1}));
  // Blanks around a name are none of it, as around values.
  const CsvTable spaced = read("c, a,\tb , k, id \n3, 1, 2, x, p\n6, 4, 5, y, q\n", "k");
  EXPECT_EQ(spaced.data, rows);
  EXPECT_EQ(spaced.label_names, Words{"k"});
}

TEST(Csv, Errors) {
  const auto message = [](const std::string& text, const CsvOptions& options = {}) {
    return MessageOf<DataError>([&] { ParseCsv(text, "f.csv", options); });
  };
  EXPECT_EQ(message(""), "DataError: \"f.csv\": it has no rows");
  EXPECT_EQ(message("a,b\n"), "DataError: \"f.csv\": it has no rows but the header, or all were left out");
  EXPECT_EQ(message("a,b\n1,2\n3,4,5\n"), "DataError: \"f.csv\", line 3: expected 2 columns, got 3");
  EXPECT_EQ(
      message("width,b\n1,2\nabc,4\n"),
      "DataError: \"f.csv\", line 3, column 1 (\"width\"): expected a finite number, got \"abc\"; \"categories\" names "
      "columns of words, \"leave_out\" those that are no features");
  EXPECT_EQ(message("1,2\n1,x\n", {.label_is_number = true}),
            "DataError: \"f.csv\", line 2, column 2: expected a finite number, got \"x\"");
  EXPECT_EQ(message("1e39,2\n"), "DataError: \"f.csv\", line 1, column 1: expected a finite number, got \"1e39\"");
  EXPECT_EQ(message("inf,2\n1,2"), "DataError: \"f.csv\", line 1, column 1: expected a finite number, got \"inf\"");
  EXPECT_EQ(message("width,kind\n1,2\n", {.label = "kine"}),
            "DataError: \"f.csv\": there is no column \"kine\" for the label; did you mean \"kind\"?");
  EXPECT_EQ(message("1,2\n", {.label = "kind"}),
            "DataError: \"f.csv\": there is no column \"kind\" for the label, and the file has no header");
  EXPECT_EQ(message("1,2\n", {.label = "2"}), "DataError: \"f.csv\": column 2 should be the label, but there are 2");
  const std::string only = "DataError: \"f.csv\": its only column is the label";
  EXPECT_EQ(message("1\n"), only);
  EXPECT_EQ(message("a;b\n1;2\n"), only + "; are its fields separated by \";\"? separator=; says so");
  EXPECT_EQ(message("1\t2\n"), only + "; are its fields separated by tabs? separator=tab says so");
  EXPECT_EQ(message("a,b\n1,2\n", {.separator = ';'}),
            only + "; are its fields separated by \",\"? separator=, says so");
  EXPECT_EQ(message("1,cow\n", {.classes = {"cat", "dog"}}),
            "DataError: \"f.csv\", line 1, column 2: \"cow\" is none of the 2 classes; did you mean \"cat\"?");
  EXPECT_EQ(message("1,0.5\n", {.classes = {"cat", "dog"}}),
            "DataError: \"f.csv\", line 1, column 2: \"0.5\" is none of the 2 classes; if the file has no labels, "
            "label=none says so");
  EXPECT_EQ(message("1,7\n", {.classes = {"0", "1"}}),
            "DataError: \"f.csv\", line 1, column 2: \"7\" is none of the 2 classes; known: 0, 1");
  std::string many;
  for (int i = 0; i < 65537; ++i) many += "1," + std::to_string(i) + "\n";
  EXPECT_EQ(message(many),
            "DataError: \"f.csv\", line 65537, column 2: the labels have more than 65536 different values: are they "
            "numbers, not classes?");
}

// In a training that begins with a model's values, whose label has a name.
TEST(Csv, WarnsWhereTheLastColumnTakesThePlaceOfAModelsLabel) {
  const auto warnings = [](const std::string& text, const std::string& otherwise) {
    const LogLines warnings(LogLevel::kWarning);
    ParseCsv(text, "f", {.label = "price", .label_of_model = true, .label_otherwise = otherwise});
    return warnings.text();
  };
  const std::string end =
      ": its last column is taken for the label, \"price\"; \"label\" names another, label=none says that there is "
      "none\n";
  EXPECT_EQ(warnings("x,cost\n1,a\n2,b\n", "-1"), "\"f\": it has no column of the label's name" + end);
  EXPECT_EQ(warnings("1,a\n2,b\n", "-1"), "");  // without a header it is a matter of course
  EXPECT_EQ(warnings("price,cost\n1,2\n2,3\n", "-1"), "");
  EXPECT_EQ(warnings("x,cost\n1,2\n2,3\n", "none"), "");  // to predict there need not be any
}

}  // namespace
}  // namespace bindery
