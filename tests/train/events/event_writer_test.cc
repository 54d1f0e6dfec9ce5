// Event files, read back record by record: checksums, messages, values.
#include "train/events/event_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/train/events/read_events.h"
#include "train/data/images/decode.h"

namespace bindery {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

std::string NewFolder(const std::string& name) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

// Summaries by tag.
std::map<std::string, events::Summary::Value> Values(const std::vector<events::Event>& all) {
  std::map<std::string, events::Summary::Value> values;
  for (const events::Event& event : all) {
    for (const auto& value : event.summary().value()) values[value.tag()] = value;
  }
  return values;
}

TEST(EventWriter, RecordsAreTensorFlows) {
  std::string file;
  {
    EventWriter writer(NewFolder("records"));
    writer.Scalar("loss", 7, 0.25);
    file = writer.path();
  }
  EXPECT_TRUE(std::filesystem::path(file).filename().string().starts_with("events.out.tfevents."));
  const std::string bytes = ReadFile(file);
  // The first record but for its time, and the checksum of its length, as TensorFlow writes them.
  const auto hex = [&](size_t begin, size_t size) {
    std::string text;
    for (const unsigned char c : bytes.substr(begin, size))
      text += "0123456789abcdef"[c >> 4], text += "0123456789abcdef"[c & 15];
    return text;
  };
  EXPECT_EQ(hex(0, 12), "1800000000000000a37f4b22");
  EXPECT_EQ(hex(21, 15), "1a0d627261696e2e4576656e743a32");
  const size_t second = 12 + 24 + 4;
  EXPECT_EQ(hex(second, 12), "1a00000000000000129bd82d");
  EXPECT_EQ(hex(second + 12 + 9, 17), "10072a0d0a0b0a046c6f7373150000803e");
  const std::vector<events::Event> all = ReadEvents(file);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].file_version(), "brain.Event:2");
  EXPECT_GT(all[0].wall_time(), 1.7e9);
  EXPECT_EQ(all[1].step(), 7);
  EXPECT_EQ(all[1].summary().value(0).simple_value(), 0.25F);
}

TEST(EventWriter, ScalarsOfAnyValueUnderAnyName) {
  std::string file;
  {
    EventWriter writer(NewFolder("scalars"));
    writer.Scalar("nan", 0, kNan);
    writer.Scalar("inf", -1, -kInf);
    writer.Scalar("a \"b\" <c> & \xff/d", INT64_MAX, 1e300);
    writer.Scalar("zero", 1, 0);
    file = writer.path();
  }
  const auto values = Values(ReadEvents(file));
  EXPECT_TRUE(std::isnan(values.at("nan").simple_value()));
  EXPECT_EQ(values.at("inf").simple_value(), -kInf);
  EXPECT_EQ(values.at("a \"b\" <c> & \xef\xbf\xbd/d").simple_value(), kInf);  // more than a float32 holds
  EXPECT_EQ(values.at("zero").value_case(), events::Summary::Value::kSimpleValue);
}

TEST(EventWriter, HistogramsCountEveryFiniteValueOnce) {
  const HostTensor values = HostTensor::From({2, 4}, {0, 1, 2, 3, 3, kNan, kInf, -kInf});
  std::string file;
  {
    EventWriter writer(NewFolder("histograms"));
    writer.Histogram("h", 3, values);
    writer.Histogram("same", 3, HostTensor::Full(DType::kInt64, {5}, 7));
    writer.Histogram("none", 3, HostTensor(DType::kFloat32, {0}));
    writer.Histogram("all bad", 3, HostTensor::Full(DType::kFloat32, {2}, kNan));
    writer.Histogram("far", 3,
                     HostTensor::From({2}, {-std::numeric_limits<float>::max(), std::numeric_limits<float>::max()}));
    file = writer.path();
  }
  const auto found = Values(ReadEvents(file));
  const events::Histogram& h = found.at("h").histo();
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), 3);
  EXPECT_EQ(h.num(), 5);
  EXPECT_EQ(h.sum(), 9);
  EXPECT_EQ(h.sum_squares(), 1 + 4 + 9 + 9);
  ASSERT_EQ(h.bucket_limit_size(), 30);
  ASSERT_EQ(h.bucket_size(), 30);
  EXPECT_EQ(h.bucket_limit(29), 3);
  EXPECT_NEAR(h.bucket_limit(9), 1, 1e-12);
  EXPECT_EQ(h.bucket(0), 1);
  EXPECT_EQ(h.bucket(10), 1);
  EXPECT_EQ(h.bucket(20), 1);
  EXPECT_EQ(h.bucket(29), 2);
  EXPECT_EQ(found.at("h/not finite").simple_value(), 3);
  ASSERT_EQ(found.at("same").histo().bucket_size(), 1);
  EXPECT_EQ(found.at("same").histo().bucket(0), 5);
  EXPECT_EQ(found.at("same").histo().bucket_limit(0), 7);
  EXPECT_FALSE(found.contains("none"));
  EXPECT_FALSE(found.contains("all bad"));
  EXPECT_EQ(found.at("all bad/not finite").simple_value(), 2);
  EXPECT_EQ(found.at("far").histo().num(), 2);
}

TEST(EventWriter, ImagesArePngs) {
  HostTensor grey = HostTensor::From({1, 2, 3}, {0, 0.5F, 1, 1, kNan, 0});
  HostTensor colours(DType::kFloat32, {3, 2, 2});
  for (int64_t i = 0; i < 12; ++i) colours.Set(i, static_cast<double>(i) - 5);  // from -5 to 6
  std::string file;
  {
    EventWriter writer(NewFolder("images"));
    writer.Image("grey", 1, grey);
    writer.Image("colours", 1, colours);
    EXPECT_NE(MessageOf<ShapeError>([&] { writer.Image("x", 1, HostTensor(DType::kFloat32, {4})); }).find("(4)"),
              std::string::npos);
    file = writer.path();
  }
  const auto found = Values(ReadEvents(file));
  const events::Summary::Image& one = found.at("grey").image();
  EXPECT_EQ(one.height(), 2);
  EXPECT_EQ(one.width(), 3);
  EXPECT_EQ(one.colorspace(), 1);
  EXPECT_EQ(DecodeImage(one.encoded_image_string(), 1, "grey").pixels, (std::vector<uint8_t>{0, 128, 255, 255, 0, 0}));
  const Image rgb = DecodeImage(found.at("colours").image().encoded_image_string(), 3, "colours");
  EXPECT_EQ(found.at("colours").image().colorspace(), 3);
  EXPECT_EQ(rgb.at(0, 0)[0], 0);
  EXPECT_EQ(rgb.at(1, 1)[2], 255);
  EXPECT_EQ(rgb.at(0, 0)[1], std::lround(255.0 * 4 / 11));
}

TEST(EventWriter, TheGraphHasShapesAndNamesOfItsOwn) {
  Symbol x = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc:1");
  x = SliceChannel(x, {.num_outputs = 3}, "same");
  x = SoftmaxOutput(Concat({x[2], x[0]}, {}, "same"), {}, "out");
  std::string file;
  {
    EventWriter writer(NewFolder("graph"));
    writer.Graph(x, {{"data", {8, 5}}});
    file = writer.path();
  }
  events::GraphDef graph;
  ASSERT_TRUE(graph.ParseFromString(ReadEvents(file).at(1).graph_def()));
  std::map<std::string, events::NodeDef> nodes;
  std::set<std::string> known;
  for (const events::NodeDef& node : graph.node()) {
    EXPECT_TRUE(nodes.emplace(node.name(), node).second) << node.name();
    for (const std::string& input : node.input())
      EXPECT_TRUE(known.contains(input.substr(0, input.find(':')))) << input;
    known.insert(node.name());
  }
  EXPECT_EQ(nodes.at("data").op(), "Variable");
  const events::NodeDef& fc = nodes.at("fc_1");
  EXPECT_EQ(fc.op(), "FullyConnected");
  EXPECT_EQ(fc.attr().at("num_hidden").s(), "3");
  const auto& shape = fc.attr().at("_output_shapes").list().shape(0);
  ASSERT_EQ(shape.dim_size(), 2);
  EXPECT_EQ(shape.dim(0).size(), 8);
  EXPECT_EQ(shape.dim(1).size(), 3);
  EXPECT_EQ(nodes.at("same_1").input(0), "same:2");
  EXPECT_EQ(nodes.at("same_1").input(1), "same");
}

TEST(EventWriter, SettingsTextsAndRestarts) {
  std::string file;
  {
    EventWriter writer(NewFolder("settings"));
    writer.Settings({{"lr", 0.1}, {"optimizer", "sgd \"x\""}}, {"validation/accuracy"});
    writer.Text("notes", 4, "**bold**");
    writer.Restart(9);
    writer.End(false);
    file = writer.path();
  }
  const std::vector<events::Event> all = ReadEvents(file);
  const auto found = Values(all);
  const auto data = [&](const std::string& tag) {
    events::HParamsPluginData parsed;
    EXPECT_EQ(found.at(tag).metadata().plugin_data().plugin_name(), "hparams");
    EXPECT_TRUE(parsed.ParseFromString(found.at(tag).metadata().plugin_data().content()));
    return parsed;
  };
  const auto experiment = data("_hparams_/experiment").experiment();
  ASSERT_EQ(experiment.hparam_infos_size(), 2);
  EXPECT_EQ(experiment.hparam_infos(0).type(), events::HParamInfo::FLOAT64);
  EXPECT_EQ(experiment.hparam_infos(1).type(), events::HParamInfo::STRING);
  EXPECT_EQ(experiment.metric_infos(0).name().tag(), "validation/accuracy");
  const auto start = data("_hparams_/session_start_info").session_start_info();
  EXPECT_EQ(start.hparams().at("lr").number_value(), 0.1);
  EXPECT_EQ(start.hparams().at("optimizer").string_value(), "sgd \"x\"");
  EXPECT_EQ(data("_hparams_/session_end_info").session_end_info().status(), events::SessionEndInfo::FAILURE);
  EXPECT_EQ(found.at("notes").tensor().string_val(0), "**bold**");
  EXPECT_EQ(found.at("notes").metadata().plugin_data().plugin_name(), "text");
  EXPECT_EQ(all[4].session_log().status(), events::SessionLog::START);
  EXPECT_EQ(all[4].step(), 9);
}

TEST(EventWriter, ThreadsWriteWholeRecords) {
  std::string file;
  {
    EventWriter writer(NewFolder("threads"));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&writer, t] {
        for (int i = 0; i < 200; ++i) writer.Scalar("t" + std::to_string(t), i, i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    file = writer.path();
  }
  std::map<std::string, int64_t> next;
  for (const events::Event& event : ReadEvents(file)) {
    for (const auto& value : event.summary().value()) EXPECT_EQ(event.step(), next[value.tag()]++);
  }
  EXPECT_EQ(next.size(), 4u);
  for (const auto& [tag, count] : next) EXPECT_EQ(count, 200) << tag;
}

TEST(EventWriter, FilesThatCannotBeWritten) {
  const std::string folder = NewFolder("unwritable");
  std::filesystem::create_directories(folder);
  WriteFileAtomically(folder + "/file", "x");
  EXPECT_NE(MessageOf<DataError>([&] { EventWriter writer(folder + "/file"); }).find(folder + "/file"),
            std::string::npos);
  EXPECT_NE(MessageOf<DataError>([&] { EventWriter writer("/proc/none/here"); }).find("/proc/none/here"),
            std::string::npos);
  EventWriter first(folder), second(folder);
  EXPECT_NE(first.path(), second.path()) << "two writers of one process and second";
}

}  // namespace
}  // namespace bindery
