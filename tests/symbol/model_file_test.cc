// Saving and loading files: what is written where, in which order, and what is refused.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "proto/model.pb.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/symbol/test_ops.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

HostTensor Ramp(const Shape& shape, double first = 0) {
  HostTensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.Set(i, first + static_cast<double>(i));
  return tensor;
}

Model SmallModel(double first = 0) {
  const Symbol fc = FullyConnected(Variable("data"), {.num_hidden = 20}, "fc");
  return {
      .symbol = Add(fc, Constant(Ramp({20, 20}, first), "table"), "sum"),
      .params = {{"fc_weight", Ramp({20, 30}, first)}, {"fc_bias", Ramp({20}, first)}, {"big", Ramp({3000}, first)}},
      .aux = {{"mean", Ramp({400}, first)}},
      .metadata = {{"epoch", "3"}}};
}

// More than one file holds.
Model LargeModel(double first = 0) {
  Model model = SmallModel(first);
  model.params["filler"] = HostTensor(DType::kUInt8, {kWholeBytes});
  return model;
}

void ExpectEqual(const Model& a, const Model& b) {
  EXPECT_EQ(a.symbol.DebugString(), b.symbol.DebugString());
  EXPECT_EQ(SerializeModel(a), SerializeModel(b));  // with the constants' elements
}

class ModelFileTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_)) files.insert(entry.path().filename());
    return files;
  }
  std::string DataFile(const std::string& model) const {
    for (const std::string& file : Files()) {
      if (file.starts_with(model + ".") && file.ends_with(".data")) return file;
    }
    return "";
  }
  // The complaint about a model whose parameter "w", two floats, lies in a data file as described.
  std::string ErrorOf(const std::string& external) const {
    WriteFileAtomically(Path("m.prototxt"), "param { name: \"w\" dim: 2 external { " + external + " } }");
    const std::string message = MessageOf<Error>([&] { LoadModel(Path("m.prototxt")); });
    const std::string prefix = "ModelError: " + Path("m.prototxt") + ":1:1: param \"w\": ";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

  const TestFolder made_;
  const std::string folder_ = made_.path();
};

TEST_F(ModelFileTest, RoundTrips) {
  const Model model = SmallModel();
  for (const char* name : {"m.pb", "m.prototxt"}) {
    SaveModel(model, Path(name));
    ExpectEqual(LoadModel(Path(name)), model);
  }
  EXPECT_EQ(DataFile("m.pb"), "");
  EXPECT_NE(DataFile("m.prototxt"), "");
  SaveModel(LargeModel(), Path("m.pb"));
  ExpectEqual(LoadModel(Path("m.pb")), LargeModel());
  EXPECT_NE(DataFile("m.pb"), "");
  EXPECT_TRUE(ReadFile(Path("m.prototxt")).starts_with("version: 2\n"));
  // Relative names, too.
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  SaveModel(SmallModel(5), "m.pb");
  ExpectEqual(LoadModel("m.pb"), SmallModel(5));
  fs::current_path(before);
}

TEST_F(ModelFileTest, SmallModelsAreOneFile) {
  const HostTensor most(DType::kUInt8, {kWholeBytes - 40'000}), rest(DType::kUInt8, {40'000}), one(DType::kUInt8, {1});
  SaveModel({.params = {{"w", most}, {"v", rest}}}, Path("m.pb"));
  EXPECT_EQ(Files(), std::set<std::string>{"m.pb"});
  fs::rename(Path("m.pb"), Path("moved.pb"));
  EXPECT_EQ(LoadModel(Path("moved.pb")).params.at("v"), rest);
  SaveModel({.params = {{"w", most}, {"v", rest}, {"u", one}}}, Path("m.pb"));
  EXPECT_NE(DataFile("m.pb"), "");
  SaveModel(SmallModel(), Path("m.pb"));  // the data file goes
  EXPECT_EQ(Files(), (std::set<std::string>{"m.pb", "moved.pb"}));
}

TEST_F(ModelFileTest, EndingsSayWhatIsWritten) {
  for (const char* name : {"m.pt", "m.onxx", "m.ONNX", "m", "m.pb.bak"}) {
    EXPECT_EQ(MessageOf<ModelError>([&] { SaveModel(SmallModel(), Path(name)); }),
              "ModelError: expected a name that ends in .pb, .prototxt or .onnx, got \"" + Path(name) + "\"");
  }
  EXPECT_EQ(Files(), std::set<std::string>());
}

TEST_F(ModelFileTest, DataIsPageAlignedAndInOrder) {
  SaveModel(SmallModel(), Path("m.prototxt"));
  const std::string text = ReadFile(Path("m.prototxt")), data = ReadFile(Path(DataFile("m.prototxt")));
  std::vector<int64_t> offsets;
  for (size_t at = text.find("offset: "); at != std::string::npos; at = text.find("offset: ", at + 1)) {
    offsets.push_back(std::stoll(text.substr(at + 8)));
  }
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 4096, 16384, 20480, 24576}));  // table, big, fc_bias, fc_weight, mean
  EXPECT_EQ(data.size(), 24576u + 1600);
  EXPECT_EQ(data.substr(4096, 12000), std::string(static_cast<const char*>(Ramp({3000}).raw()), 12000));
  EXPECT_EQ(data.substr(1600, 4096 - 1600), std::string(4096 - 1600, '\0'));
}

TEST_F(ModelFileTest, SavingReplacesTheOldDataOnceTheNewModelIsThere) {
  SaveModel(LargeModel(1), Path("m.pb"));
  SaveModel(LargeModel(2), Path("other.pb"));
  WriteFileAtomically(Path("m.pb.0123456789abcdef.data"), "somebody's");
  const std::string old = DataFile("m.pb"), others = DataFile("other.pb");
  SaveModel(LargeModel(1), Path("m.pb"));  // the same content has the same name
  EXPECT_TRUE(Files().contains(old));
  SaveModel(LargeModel(3), Path("m.pb"));
  ExpectEqual(LoadModel(Path("m.pb")), LargeModel(3));
  EXPECT_FALSE(Files().contains(old) && old != "m.pb.0123456789abcdef.data");
  EXPECT_TRUE(Files().contains("m.pb.0123456789abcdef.data"));
  EXPECT_TRUE(Files().contains(others));
  ExpectEqual(LoadModel(Path("other.pb")), LargeModel(2));
  EXPECT_EQ(Files().size(), 5u);
}

TEST_F(ModelFileTest, AFailedSaveLeavesTheOldModel) {
  SaveModel(LargeModel(1), Path("m.pb"));
  const std::set<std::string> before = Files();
  Model bad = LargeModel(2);
  bad.aux["fc_bias"] = Ramp({20});
  EXPECT_EQ(MessageOf<ModelError>([&] { SaveModel(bad, Path("m.pb")); }),
            "ModelError: \"fc_bias\" is among the parameters and among the auxiliary states");
  EXPECT_EQ(Files(), before);
  ExpectEqual(LoadModel(Path("m.pb")), LargeModel(1));
  // The message cannot be put in place: the data file written for it is removed again.
  fs::create_directory(Path("folder.pb"));
  EXPECT_NE(MessageOf<DataError>([&] { SaveModel(LargeModel(2), Path("folder.pb")); }).find("not a regular file"),
            std::string::npos);
  EXPECT_EQ(DataFile("folder.pb"), "");
  EXPECT_NE(MessageOf<DataError>([&] { SaveModel(LargeModel(), Path("none/m.pb")); }), "nothing was thrown");
}

TEST_F(ModelFileTest, FollowsALinkToTheModelItself) {
  fs::create_directory(Path("real"));
  SaveModel(SmallModel(1), Path("real/m.pb"));
  fs::create_symlink("real/m.pb", Path("latest.pb"));
  ExpectEqual(LoadModel(Path("latest.pb")), SmallModel(1));
  SaveModel(SmallModel(2), Path("latest.pb"));
  EXPECT_TRUE(fs::is_symlink(Path("latest.pb")));
  EXPECT_EQ(Files(), (std::set<std::string>{"latest.pb", "real"}));
  ExpectEqual(LoadModel(Path("real/m.pb")), SmallModel(2));
}

TEST_F(ModelFileTest, RefusesDataFilesAnywhereElse) {
  fs::create_directory(Path("sub"));
  WriteFileAtomically(Path("sub/d"), "12345678");
  WriteFileAtomically(Path("d"), "12345678");
  fs::create_symlink("d", Path("link"));
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  const std::string checksum = fmt::format(" offset: 0 bytes: 8 checksum: {}", Checksum("12345678", 8));
  EXPECT_EQ(ErrorOf("file: \"d\"" + checksum), "nothing was thrown");
  for (const char* file : {"../m/d", "sub/d", "/etc/passwd", "..", ".", "", "./d", "d\\000", "sub/../d"}) {
    const std::string message = ErrorOf("file: \"" + std::string(file) + "\"" + checksum);
    EXPECT_TRUE(message.ends_with(": expected the name of a file in the model's folder")) << message;
  }
  EXPECT_EQ(ErrorOf("file: \"link\"" + checksum), "data file \"link\": a link, expected a regular file");
  for (const char* file : {"sub", "pipe"}) {
    EXPECT_EQ(ErrorOf("file: \"" + std::string(file) + "\"" + checksum),
              fmt::format("data file \"{}\": not a regular file", file));
  }
  EXPECT_EQ(ErrorOf("file: \"none\"" + checksum),
            "cannot open data file \"none\": No such file or directory; it belongs beside the model");
}

TEST_F(ModelFileTest, ChecksPlacesInDataFiles) {
  WriteFileAtomically(Path("d"), "0123456789");
  const auto place = [&](int64_t offset, int64_t bytes) {
    return ErrorOf(
        fmt::format("file: \"d\" offset: {} bytes: {} checksum: {}", offset, bytes, Checksum("23456789", 8)));
  };
  EXPECT_EQ(place(2, 8), "nothing was thrown");
  EXPECT_EQ(place(3, 8), "data file \"d\": bytes 3 to 11 are beyond its end, it has 10");
  EXPECT_EQ(place(-1, 8), "data file \"d\": bytes -1 to 7 are beyond its end, it has 10");
  EXPECT_EQ(place(INT64_MAX, 8).substr(0, 4), "size");  // the end itself overflows
  EXPECT_EQ(place(1, 8), "data file \"d\": damaged: bytes 1 to 9 do not have their checksum");
  EXPECT_EQ(place(2, 7), "float32 (2) takes 8 bytes, got 7");
  EXPECT_EQ(ErrorOf("file: \"d\" bytes: 8"), "data file \"d\": no checksum is given");
}

TEST_F(ModelFileTest, RefusesFilesThatAreNoModels) {
  const auto message = [&](const std::string& name, std::string_view bytes) {
    WriteFileAtomically(Path(name), bytes);
    std::string text = MessageOf<ModelError>([&] { LoadModel(Path(name)); });
    const size_t at = text.find(name);
    return at == std::string::npos ? text : text.substr(at + name.size());
  };
  EXPECT_EQ(message("m.pb", ""), ": not a binary Bindery model");
  EXPECT_EQ(message("m.pb", "version: 2\ngraph {"),
            ": not a binary Bindery model; a model as text has a name that ends in .prototxt");
  EXPECT_EQ(message("m.pb", "\x89PNG\r\n\x1a\n"), ": not a binary Bindery model");
  EXPECT_EQ(message("m.ckpt", "\x10"), ": not a binary Bindery model; LoadCheckpoint reads checkpoints");
  EXPECT_EQ(message("m.npz", "PK"), ": not a binary Bindery model; LoadWeights reads files of values");
  EXPECT_TRUE(message("m.prototxt", SerializeModel(SmallModel())).starts_with(":1:1: "))
      << message("m.prototxt", "\x08\x02");
  EXPECT_NE(MessageOf<DataError>([&] { LoadModel(Path("none.pb")); }), "nothing was thrown");
  EXPECT_NE(MessageOf<DataError>([&] { LoadModel(folder_); }), "nothing was thrown");
  EXPECT_NE(MessageOf<DataError>([&] { LoadModel(Path("m.pb"), {.file_bytes = 3}); }), "nothing was thrown");
}

TEST(SaveModel, RefusesWhatCouldNotBeLoaded) {
  const Symbol x = Variable("x");
  const auto message = [](const Model& model) { return MessageOf<ModelError>([&] { SerializeModel(model); }); };
  EXPECT_EQ(message({}), "ModelError: cannot save a model with neither a graph nor parameters");
  EXPECT_TRUE(message({.symbol = Group({x, Variable("x")})})
                  .starts_with("ModelError: two different variables are called \"x\""));
  static const OpDef unknown = [] {
    OpDef op = Exp.op();
    op.name = "Expo";
    return op;
  }();
  EXPECT_EQ(message({.symbol = Apply(unknown, {}, {x}, "e")}),
            "ModelError: cannot save the model: node \"e\": unknown operator \"Expo\"; did you mean \"Exp\"?");
  const auto convolution = std::make_shared<Node>(&ConvolutionOp(), ConvolutionAttrs{.num_filter = 3, .kernel = {0, 3}},
                                                  "c", std::vector<Entry>{x.entry()}, Annotations{});
  EXPECT_TRUE(message({.symbol = Symbol(Entry{convolution, 0})})
                  .starts_with("ModelError: cannot save the model: Convolution \"c\": "));
  const auto nameless = std::make_shared<Node>(&Exp.op(), AnyAttrs(), "", std::vector<Entry>{x.entry()}, Annotations{});
  EXPECT_EQ(message({.symbol = Symbol(Entry{nameless, 0})}),
            "ModelError: cannot save the model: node number 0, \"Exp\", has no name");
  HostTensor flag(DType::kBool, {1});
  static_cast<uint8_t*>(flag.raw())[0] = 2;
  EXPECT_EQ(message({.params = {{"w", flag}}}), "ModelError: element 0 of a bool tensor is 2, expected 0 or 1");
  EXPECT_EQ(message({.params = {{"", Ramp({1})}}}), "ModelError: a parameter has no name");
}

}  // namespace
}  // namespace bindery
