// Files that were damaged or made to do harm: an error or a model, never a crash, nor more memory than allowed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "proto/model.pb.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/symbol/run_within.h"
#include "tests/symbol/test_ops.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

Model SmallModel() {
  HostTensor weight(DType::kFloat32, {2, 3});
  for (int64_t i = 0; i < 6; ++i) weight.Set(i, static_cast<double>(i));
  Symbol x = FullyConnected(Variable("data", {.shape = Shape{4, 3}, .init = "one"}), {.num_hidden = 2}, "fc");
  x = BatchNorm(x, {.eps = 1e-4}, "bn");
  x = SliceChannel(x, {.num_outputs = 2}, "slice")[1];
  x = Add(x, Constant(HostTensor::From({1}, {2}), "two"), "sum");
  const Symbol pool = Pooling(Variable("image", {.dtype = DType::kInt16}),
                              {.kernel = {2, 2}, .pad = {1, 0, 0, 1}, .dilate = {2, 1}}, "pool");
  return {.symbol = Group({x, pool}),
          .params = {{"fc_weight", weight}},
          .aux = {{"bn_running_mean", HostTensor(DType::kFloat32, {2})}},
          .metadata = {{"k", "v"}}};
}

std::string ErrorOf(std::string_view bytes, const ModelLimits& limits = {}) {
  return MessageOf<ModelError>([&] { ParseModel(bytes, false, "m.pb", limits); });
}

// A file whose checksum is 0, "not checked": so that the reader gets to see the damage.
std::string WithoutChecksum(std::string bytes) {
  for (size_t i = bytes.size() - 8; i < bytes.size(); ++i) bytes[i] = '\0';
  return bytes;
}

std::string Bytes(proto::Model model) {
  if (!model.has_version()) model.set_version(2);
  model.set_checksum(0);
  return model.SerializeAsString();
}

// Whatever is read can be written.
void ExpectModelOrError(std::string_view bytes, bool text) {
  try {
    SerializeModel(ParseModel(bytes, text));
  } catch (const ModelError&) {
  }
}

TEST(HostileModel, EveryTruncationIsAnError) {
  const std::string bytes = SerializeModel(SmallModel());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(ErrorOf(bytes.substr(0, length)), "nothing was thrown") << length;
    EXPECT_NE(ErrorOf(WithoutChecksum(bytes.substr(0, length) + std::string("\x79........"))), "") << length;
  }
  const std::string text = SerializeModel(SmallModel(), true);
  for (size_t length = 0; length < text.size(); ++length) ExpectModelOrError(text.substr(0, length), true);
}

TEST(HostileModel, EveryFlippedBitIsFound) {
  const std::string bytes = SerializeModel(SmallModel());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(ErrorOf(flipped), "nothing was thrown") << bit;
  }
}

TEST(HostileModel, FlippedBitsThatNoChecksumCoversAreHarmless) {
  const std::string bytes = WithoutChecksum(SerializeModel(SmallModel()));
  ASSERT_NO_THROW(ParseModel(bytes));
  const std::string text = SerializeModel(SmallModel(), true);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 1; value < 256; value = value < 128 ? 2 * value : value + 127) {  // each bit, and all of them
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ value);
      ExpectModelOrError(changed, false);
    }
  }
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      ExpectModelOrError(changed, true);
    }
  }
}

TEST(HostileModel, DamagedDataFilesAreFound) {
  const TestFolder made;
  const std::string& folder = made.path();
  Model model = SmallModel();
  model.params["big"] = HostTensor::Full(DType::kInt32, {17}, 7);  // just too large for a text
  SaveModel(model, folder + "/m.prototxt");
  std::string data_file;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".data") data_file = entry.path();
  }
  const std::string data = ReadFile(data_file);
  ASSERT_EQ(data.size(), 68u);
  const auto expect_error = [&](const std::string& changed, const char* error) {
    std::ofstream(data_file, std::ios::binary | std::ios::trunc) << changed;
    EXPECT_NE(MessageOf<ModelError>([&] { LoadModel(folder + "/m.prototxt"); }).find(error), std::string::npos);
  };
  for (size_t length = 0; length < data.size(); ++length) expect_error(data.substr(0, length), "beyond its end");
  for (size_t bit = 0; bit < 8 * data.size(); ++bit) {
    std::string flipped = data;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    expect_error(flipped, "damaged: bytes 0 to 68 do not have their checksum");
  }
}

TEST(HostileModel, NamesAreLimited) {
  const auto error = [](size_t variable, size_t node, size_t id) {
    proto::Model model;
    model.mutable_graph()->add_variable()->set_name(std::string(variable, 'v'));
    proto::Node& relu = *model.mutable_graph()->add_node();
    relu.set_op("Activation");
    relu.set_name(std::string(node, 'n'));
    relu.set_id(std::string(id, 'i'));
    relu.add_input(std::string(variable, 'v'));
    model.mutable_graph()->add_output(std::string(id, 'i'));
    return ErrorOf(Bytes(model));
  };
  EXPECT_EQ(error(4096, 4096, 4096), "nothing was thrown");
  for (const auto& got : {error(4097, 1, 1), error(1, 4097, 1), error(1, 1, 4097)}) {
    EXPECT_NE(got.find("...\" has more than 4096 bytes"), std::string::npos) << got;
  }
}

TEST(HostileModel, NothingIsIgnored) {
  proto::Model model;
  model.mutable_graph()->add_variable()->set_name("x");
  model.mutable_graph()->add_output("x");
  ASSERT_EQ(ErrorOf(Bytes(model)), "nothing was thrown");
  proto::Model unknown = model;
  unknown.mutable_graph()->mutable_variable(0)->mutable_unknown_fields()->AddVarint(9, 1);
  EXPECT_EQ(ErrorOf(Bytes(unknown)),
            "ModelError: m.pb: graph.variable[0]: unknown field 9: damaged, or written by a newer version");
  unknown = model;
  unknown.mutable_graph()->mutable_variable(0)->mutable_unknown_fields()->AddVarint(1, 1);
  EXPECT_EQ(ErrorOf(Bytes(unknown)), "ModelError: m.pb: graph.variable[0]: field \"name\" has another type");
  unknown = model;
  unknown.mutable_graph()->mutable_variable(0)->mutable_unknown_fields()->AddVarint(3, 77);
  EXPECT_EQ(ErrorOf(Bytes(unknown)), "ModelError: m.pb: graph.variable[0]: field \"dtype\": unknown value 77");
  unknown = model;
  unknown.mutable_unknown_fields()->AddGroup(5)->AddVarint(1, 1);
  EXPECT_EQ(ErrorOf(Bytes(unknown)), "ModelError: m.pb: cut off: it does not end with its checksum");
  EXPECT_EQ(ErrorOf(SerializeModel({.params = {{"w", HostTensor({}, {1})}}}) + "x"),
            "ModelError: m.pb: cut off: it does not end with its checksum");
  model.set_version(3);
  EXPECT_EQ(ErrorOf(Bytes(model)),
            "ModelError: m.pb: format version 3, but this program reads version 2: the file was written by a newer "
            "Bindery, please update");
  model.set_version(1);
  EXPECT_EQ(ErrorOf(Bytes(model)),
            "ModelError: m.pb: format version 1, but this program reads version 2: the file was written by an older "
            "Bindery, please write it again with this one");
}

TEST(HostileModel, ManyEmptyMessagesTakeNoMemory) {
  std::string many;  // 12 \0: an empty node
  for (int i = 0; i < 1'000'000; ++i) many += std::string("\x12\0", 2);
  proto::Model model;
  model.set_version(2);
  std::string bytes = model.SerializeAsString() + "\x1a";
  for (size_t size = many.size(); size > 0; size >>= 7)
    bytes += static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0));
  bytes += many + "\x79" + std::string(8, '\0');
  ExpectErrorWithin(16 << 20, "more than 1000 nodes", [&] { ParseModel(bytes, false, "m.pb", {.nodes = 1000}); });
  std::string text = "graph {";
  for (int i = 0; i < 2'000'000; ++i) text += "node{}";
  text += "}";
  ExpectErrorWithin(16 << 20, "more than 1112576 fields", [&] { ParseModel(text, true, "m", {.nodes = 1000}); });
}

TEST(HostileModel, HugeSizesAreRefusedBeforeAnythingIsAllocated) {
  constexpr int64_t kMemory = 16 << 20;
  const auto tensor = [](const std::string& text) {
    return [text] { ParseModel("param { name: \"w\" " + text + " }", true); };
  };
  ExpectErrorWithin(kMemory, "takes 1099511627776 bytes, got 4", tensor("dim: 274877906944 data: \"1234\""));
  ExpectErrorWithin(kMemory, "has 1099511627776 elements, got 0 values", tensor("dim: 1099511627776"));
  ExpectErrorWithin(kMemory, "overflows", tensor("dim: [4294967296, 4294967296, 4294967296] data: \"1\""));
  ExpectErrorWithin(kMemory, "overflows", tensor("dim: 9223372036854775807 value: 1"));
  ExpectErrorWithin(kMemory, "overflows", tensor("dtype: FLOAT64 dim: 2305843009213693952 data: \"1\""));
  const auto node = [](const std::string& text) {
    return [text] {
      ParseModel("graph { variable { name: \"x\" } node { name: \"n\" input: \"x\" " + text + " } output: \"n\" }",
                 true);
    };
  };
  ExpectErrorWithin(kMemory, "SliceChannel \"n\"",
                    node("op: \"SliceChannel\" attr { name: \"num_outputs\" i: 1000000000000 }"));
}

// Lists of all kinds in one attribute, and elements of a type that does not exist.
TEST(HostileModel, ListsAndTypesOfTheSecondVersion) {
  proto::Model model;
  model.mutable_graph()->add_variable()->set_name("x");
  model.mutable_graph()->add_output("p");
  proto::Node* node = model.mutable_graph()->add_node();
  node->set_op("Pooling");
  node->set_name("p");
  node->add_input("x");
  proto::Attr* kernel = node->add_attr();
  kernel->set_name("kernel");
  kernel->add_ints(2);
  ASSERT_EQ(ErrorOf(Bytes(model)), "nothing was thrown");
  for (const int64_t pad : {int64_t{-1}, int64_t{1} << 31, std::numeric_limits<int64_t>::min()}) {
    for (const char* name : {"pad", "dilate"}) {
      proto::Model bad = model;
      proto::Attr* attr = bad.mutable_graph()->mutable_node(0)->add_attr();
      attr->set_name(name);
      attr->add_ints(pad);
      EXPECT_NE(ErrorOf(Bytes(bad)).find(fmt::format("Pooling \"p\": {} must be at ", name)), std::string::npos);
    }
  }
  proto::Model bad = model;
  bad.mutable_graph()->mutable_node(0)->mutable_attr(0)->add_strings(std::string(1 << 20, 'x'));
  EXPECT_EQ(ErrorOf(Bytes(bad)), "ModelError: m.pb: Pooling \"p\": attribute \"kernel\" has two values");
  bad.mutable_graph()->mutable_node(0)->mutable_attr(0)->clear_ints();
  EXPECT_LT(ErrorOf(Bytes(bad)).size(), 300u);
  bad = model;
  bad.mutable_graph()->mutable_node(0)->mutable_attr(0)->mutable_unknown_fields()->AddFixed64(9, 1);
  EXPECT_EQ(ErrorOf(Bytes(bad)), "ModelError: m.pb: graph.node[0].attr[0]: field \"strings\" has another type");
  bad = model;
  bad.mutable_graph()->mutable_variable(0)->mutable_unknown_fields()->AddVarint(3, kNumDTypes);
  EXPECT_EQ(ErrorOf(Bytes(bad)), "ModelError: m.pb: graph.variable[0]: field \"dtype\": unknown value 13");
}

TEST(HostileModel, TensorLimitCountsAllTensors) {
  const std::string bytes =
      SerializeModel({.params = {{"a", HostTensor(DType::kFloat32, {25})}, {"b", HostTensor(DType::kFloat32, {25})}}});
  EXPECT_EQ(ErrorOf(bytes, {.tensor_bytes = 200}), "nothing was thrown");
  EXPECT_EQ(ErrorOf(bytes, {.tensor_bytes = 199}),
            "ModelError: m.pb: param \"b\": all tensors together take more than 199 bytes, the limit");
}

TEST(HostileModel, NodeLimitCountsVariables) {
  const std::string text =
      "graph { variable { name: \"x\" } node { op: \"FullyConnected\" name: \"f\" input: \"x\" attr { name: "
      "\"num_hidden\" i: 1 } } output: \"f\" }";
  EXPECT_NO_THROW(ParseModel(text, true, "m", {.nodes = 4}));
  EXPECT_EQ(MessageOf<ModelError>([&] { ParseModel(text, true, "m", {.nodes = 3}); }),
            "ModelError: m:1:1: more than 3 nodes, the limit");
  EXPECT_EQ(MessageOf<ModelError>([&] { ParseModel(text, true, "m", {.nodes = 1}); }),
            "ModelError: m:1:1: more than 1 nodes, the limit");
}

// A few bytes of attributes must not declare more than a file of that size could write out.
TEST(HostileModel, DeclarationsFollowTheFileSize) {
  const auto nodes = [](int count, const char* op, int64_t parts, const char* input) {
    proto::Model model;
    for (int i = 0; i < count; ++i) {
      proto::Node* node = model.mutable_graph()->add_node();
      node->set_op(op);
      node->set_name("n" + std::to_string(i));
      if (*input != '\0') node->add_input(input);
      proto::Attr* attr = node->add_attr();
      attr->set_name("num_outputs");
      attr->set_i(parts);
    }
    model.mutable_graph()->add_variable()->set_name("x");
    model.mutable_graph()->add_output("n0");
    return Bytes(model);
  };
  EXPECT_NE(ErrorOf(nodes(20'000, "SliceChannel", 65'536, "x")).find("65536 outputs are too many"), std::string::npos);
  EXPECT_EQ(ErrorOf(nodes(1, "SliceChannel", 65'536, "x")), "nothing was thrown");
  EXPECT_EQ(ErrorOf(nodes(1'000, "SliceChannel", 100, "x")), "nothing was thrown");
}

TEST(HostileModel, AuxiliaryStatesAreVariables) {
  const std::string text = R"(version: 2 graph {
    variable { name: "x" } variable { name: "m" }
    node { op: "Exp" name: "e" input: "m" }
    node { op: "BatchNorm" name: "bn" input: "x" input: "" input: "" input: "e" }
    output: "bn" })";
  EXPECT_EQ(MessageOf<ModelError>([&] { ParseModel(text, true, "m.prototxt"); }),
            "ModelError: m.prototxt:4:5: BatchNorm \"bn\", argument \"running_mean\": an auxiliary state must be a "
            "variable, got Exp \"e\"");
}

TEST(HostileModel, RecursionLimitHolds) {
  const std::string text = SerializeModel(SmallModel(), true), bytes = SerializeModel(SmallModel());
  EXPECT_NO_THROW(ParseModel(text, true, "m", {.recursion = 10}));
  EXPECT_THROW(ParseModel(text, true, "m", {.recursion = 2}), ModelError);
  EXPECT_THROW(ParseModel(bytes, false, "m", {.recursion = 2}), ModelError);
}

}  // namespace
}  // namespace bindery
