// Every kind of data through the commands: trained on with events for TensorBoard, which are read back, tested, and
// asked about; each as its own checkpoint says, without being named again.
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/tools/program.h"
#include "tests/train/events/read_events.h"
#include "train/weights/weights.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

// A file in a tar archive, as POSIX has it (ustar): a header of 512 bytes, and the content in blocks of as many.
std::string TarEntry(const std::string& name, const std::string& content) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  char size[13];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  put(0, name);
  put(100, "0000644");
  put(124, size);
  put(136, "00000000000");
  put(148, "        ");  // the sum is one with blanks in its place
  put(156, "0");
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(size, sizeof size, "%06o", sum);
  put(148, std::string(size, 7));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

// Version 1.0 of NumPy's format.
std::string Npy(const std::string& type, const std::string& shape, const std::string& bytes) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(128 - 10 - 1, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + bytes;
}

class KindsTest : public ProgramTest {
 protected:
  static constexpr int kSamples = 40;  // 36 in three steps, and 4 to test on

  KindsTest() {
    std::string rows = "length,width,kind\n", text, pixels, labels, archive;
    HostTensor x(DType::kFloat32, {kSamples, 3, 4}), y(DType::kInt32, {kSamples});
    for (int i = 0; i < kSamples; ++i) {
      rows += std::to_string(i % 3) + "," + std::to_string(i % 5) + "," + (i % 3 == 0 ? "iris" : "rose") + "\n";
      text += "abcab\n";
      for (int k = 0; k < 12; ++k) {
        x.Set(i * 12 + k, i % 3 + 0.1 * k);
        pixels += static_cast<char>(80 * (i % 3) + k);
      }
      y.Set(i, i % 3);
      labels += static_cast<char>(i % 3);
    }
    Write("rows.csv", rows);
    Write("text", text);
    Write("x.npy", Npy("|u1", "(40, 3, 4)", pixels));
    Write("y.npy", Npy("|u1", "(40,)", labels));
    SaveWeights({.tensors = {{"x", x}, {"y", y}}}, PathOf("xy.npz"));
    fs::copy("tests/train/stored/python.tfrecord", PathOf("python.tfrecord"));
    // Digits as they are drawn, as PNG files in folders, as IDX files, and the PNG files in an archive.
    for (const char* to : {"images:pictures", "idx"}) {
      Succeeds({"train", "--model", "mlp", "--epochs", "1", "--train-digits", "40", "--test-digits", "20",
                "--write-digits", to, "--checkpoints=", "--progress", "none"});
    }
    int number = 0;
    for (const auto& entry : fs::recursive_directory_iterator(PathOf("pictures/train"))) {
      if (entry.path().extension() != ".png") continue;
      const std::string name = "digits/" + std::to_string(1000 + number++);
      archive += TarEntry(name + ".png", ReadFile(entry.path()));
      archive += TarEntry(name + ".cls", entry.path().parent_path().filename());
    }
    Write("digits.tar", archive + std::string(1024, '\0'));
  }
};

TEST_F(KindsTest, TrainWithTensorBoardTestAndPredict) {
  struct Kind {
    std::string name, data;
    int tested;   // samples
    bool images;  // are there some to show?
    Words more = {};
  };
  const std::vector<Kind> kinds = {
      {"csv", "csv:rows.csv?label=kind", 4, false},
      {"npy", "npy:x.npy?labels=y.npy", 4, true},
      {"npz", "npz:xy.npz", 4, true},
      {"images", "images:pictures/train?padding=2&crop=random", 4, true},
      {"tar", "tar:digits.tar?size=28&channels=1", 4, true},
      {"tfrecord", "tfrecord:python.tfrecord?data=x", 1, false, {"--test-part", "0.25"}},
      {"idx", "idx", 20, true},
      {"digits", "digits", 20, true, {"--train-digits", "40", "--test-digits", "20"}},
      {"text", "text:text", 2, false, {"--model", "gpt(layers=1, width=16, heads=2, context=8)"}},
  };
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const Words run = {"--checkpoints", "run-" + kind.name};
    Words train = Words{"train", "--data", kind.data, "--epochs", "1", "--batch-size", "12"} + run +
                  Words{"--threads", "1", "--tensorboard", "events/" + kind.name, "--progress", "none"} + kind.more;
    if (kind.name != "text") train = train + Words{"--model", "mlp"};
    Succeeds(train);

    std::map<std::string, events::Summary::Value> values;
    bool graph = false;
    for (const events::Event& event : ReadEventsIn(PathOf("events/" + kind.name))) {
      graph |= event.what_case() == events::Event::kGraphDef;
      for (const auto& value : event.summary().value()) values[value.tag()] = value;
    }
    EXPECT_TRUE(graph);
    ASSERT_TRUE(values.contains("train/cross-entropy") && values.contains("validation/cross-entropy"));
    EXPECT_TRUE(std::isfinite(values["train/cross-entropy"].simple_value()));
    EXPECT_EQ(values.contains("test/0"), kind.images);
    EXPECT_TRUE(values.contains("_hparams_/session_start_info"));

    const json tested = Json(Words{"test", "--json"} + run);
    EXPECT_EQ(tested.at("samples"), kind.tested);
    EXPECT_NEAR(tested.at("cross-entropy").get<double>(), values["validation/cross-entropy"].simple_value(), 1e-5);
    if (kind.name == "text") {
      EXPECT_EQ(Succeeds(Words{"generate", "--prompt", "ab", "--length", "3"} + run).out.substr(0, 2), "ab");
    } else {
      EXPECT_FALSE(Json(Words{"predict", "--json"} + run).empty());
    }
  }
}

// Tested on data that were never trained on, and of whatever kind: on all of these, not on the run's own.
TEST_F(KindsTest, TestDataOfAnyKind) {
  const Words quick = {"--epochs", "1", "--batch-size", "12", "--progress", "none", "--checkpoints"};
  Succeeds(Words{"train", "--model", "mlp", "--train-digits", "40", "--save", "m.pb"} + quick + Words{"digits"});
  Succeeds(Words{"train", "--model", "mlp", "--data", "idx"} + quick + Words{"idx-run"});
  Succeeds(Words{"train", "--model", "mlp", "--data", "images:pictures/train"} + quick + Words{"images"});
  for (const std::string run : {"digits", "idx-run", "images"}) {
    SCOPED_TRACE(run);
    const auto on = [&](const std::string& data, const std::string& command = "test") {
      return Words{command, "--json", "--checkpoints", run, "--test-data", data};
    };
    EXPECT_EQ(Json(on("images:pictures/train")).at("samples"), kSamples);
    const json images = Json(on("images:pictures/test"));
    EXPECT_EQ(images.at("samples"), 20);
    EXPECT_NEAR(images.at("cross-entropy").get<double>(), Json(on("idx")).at("cross-entropy").get<double>(), 1e-5);
    EXPECT_EQ(Json(on("digits")).at("samples"), 2000);
    const json predicted = Json(on("images:pictures/test", "predict"));
    EXPECT_TRUE(predicted.at(0).at("record").get<std::string>().starts_with("pictures/test/0/")) << predicted;
    Fails(4, "folder \"nowhere\"", on("images:nowhere"));
    Fails(4, "\"nowhere\" is neither a folder nor", on("nowhere"));
    Fails(2, "not windows of text", on("text:text"));
  }
  // A model's file says nothing of data, and none but these are asked for.
  Fails(4, "folder \"nowhere\"", {"test", "--model", "m.pb", "--test-data", "images:nowhere"});

  Succeeds(Words{"train", "--model", "gpt(layers=1, width=16, heads=2, context=8)", "--data", "text:text"} + quick +
           Words{"text-run"});
  Write("more", "abcabcabcabcabcab");
  EXPECT_EQ(Json({"test", "--json", "--checkpoints", "text-run", "--test-data", "text:more"}).at("samples"), 2);
  Fails(4, "cannot read \"nowhere\"", {"test", "--checkpoints", "text-run", "--test-data", "text:nowhere"});
}

}  // namespace
}  // namespace bindery
