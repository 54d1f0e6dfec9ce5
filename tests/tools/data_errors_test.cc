// Files that cannot be used: status 3, 4 or 5 by what they are, a message that names file and place, and nothing
// half-written left behind.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/files.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/tools/program.h"
#include "train/data/digits.h"
#include "train/data/gunzip.h"
#include "train/data/idx.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class DataErrorsTest : public ProgramTest {
 protected:
  // Changes one byte, or cuts the file there.
  void Damage(const std::string& name, size_t at) const {
    std::string bytes = Read(name);
    ASSERT_LT(at, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
    Write(name, bytes);
  }
  void Cut(const std::string& name, size_t size) const { fs::resize_file(PathOf(name), size); }
  // The program under a limit of the size of files, as on a disk that fills up.
  Outcome WithLittleSpace(const Words& arguments) const {
    return Process(Words{"/bin/sh", "-c", "ulimit -f 100; exec \"$@\"", "sh"} + Command(arguments), folder()).Wait();
  }
  bool HasTemporaries() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder())) {
      if (entry.path().filename().string().starts_with(".bindery-")) return true;
    }
    return false;
  }
};

TEST_F(DataErrorsTest, FoldersOfImages) {
  const auto path = [&](const std::string& name) { return PathOf("data/" + name); };
  const ImageSet train = DrawDigits(20, 1), test = DrawDigits(10, 1, 20);
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  const auto pack = [&](const std::string& packed) {
    fs::remove(path(images));
    Write("data/" + images + ".gz", packed);
  };
  struct Case {
    std::string message;
    std::function<void()> damage;
  };
  const std::vector<Case> cases = {
      {"has none of train-images-idx3-ubyte, train-images-idx3-ubyte.gz", [&] { fs::remove(path(images)); }},
      {images + "\": cut off: (20, 28, 28) of uint8 take 15680 bytes", [&] { Cut("data/" + images, 1000); }},
      {images + "\": cut off within its header", [&] { Cut("data/" + images, 7); }},
      {images + "\": cut off within its header", [&] { Cut("data/" + images, 0); }},
      {images + "\": bytes are left after its 15680 elements",
       [&] { Write("data/" + images, Read("data/" + images) + "x"); }},
      {images + "\": not an IDX file", [&] { Write("data/" + images, "PNG or whatever this is"); }},
      {images + "\": expected images, uint8 (N, rows, columns), got uint8 (20)",
       [&] { Write("data/" + images, Read("data/" + labels)); }},
      {images + "\" has 20 images, but \"data/" + labels + "\" has 10 labels",
       [&] { fs::copy(path("t10k-labels-idx1-ubyte"), path(labels), fs::copy_options::overwrite_existing); }},
      // What is a class, the training labels say.
      {"t10k-labels-idx1-ubyte\": label 0 is 87, expected 0 to 9", [&] { Damage("data/t10k-labels-idx1-ubyte", 8); }},
      {images + ".gz\": not an IDX file", [&] { pack("no gzip at all"); }},
      {images + ".gz\": damaged: ", [&] { pack("\x1f\x8b and then garbage"); }},
      {images + ".gz\": cut off: the gzip stream does not end",
       [&] { pack(Gzip(Read("data/" + images)).substr(0, 2000)); }},
      {images + "\": not a regular file",
       [&] {
         fs::remove(path(images));
         fs::create_directory(path(images));
       }},
      {"\"data\" has no training images, or empty ones: (0, 1, 28, 28)",
       [&] { WriteIdxImages(DrawDigits(0, 1), path(images), path(labels)); }},
      {"\"data\" has no test images, or empty ones: (10, 1, 0, 28)",
       [&] {
         WriteIdx(HostTensor(DType::kUInt8, {10, 0, 28}), path("t10k-images-idx3-ubyte"));
       }},
      {"10 images of (1, 28, 29) do not fit model \"mlp\", which takes (1, 28, 28)",
       [&] {
         WriteIdx(HostTensor(DType::kUInt8, {10, 28, 29}), path("t10k-images-idx3-ubyte"));
       }},
  };
  for (const Case& c : cases) {
    fs::remove_all(PathOf("data"));
    fs::create_directory(PathOf("data"));
    WriteIdxImages(train, path(images), path(labels));
    WriteIdxImages(test, path("t10k-images-idx3-ubyte"), path("t10k-labels-idx1-ubyte"));
    c.damage();
    Fails(4, c.message, {"train", "--model", "mlp", "--data", "data"});
  }
  EXPECT_EQ(Files(), Words{"data"});
}

// As TensorFlow's models are exported.
TEST_F(DataErrorsTest, ModelsWhoseChannelsComeLast) {
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 28, 28, 1}});
  SaveModel({.symbol = SoftmaxOutput(FullyConnected(data, {.num_hidden = 10}, "fc"), {}, "softmax")}, PathOf("tf.pb"));
  Fails(4,
        "of (1, 28, 28) do not fit model \"tf.pb\", which takes (28, 28, 1): its channels must come first; tf2onnx has "
        "--inputs-as-nchw for that",
        {"train", "--model", "tf.pb", "--data", "digits"});
}

TEST_F(DataErrorsTest, WhatIsNoFolderOfImages) {
  Write("file", "");
  fs::create_symlink(PathOf("loop"), PathOf("loop"));
  for (const std::string& name :
       {std::string("nowhere"), std::string("file"), std::string("loop"), std::string(), std::string(5000, 'a')}) {
    Fails(4, "--data: \"" + name + "\" is neither a folder nor \"digits\" nor text:FILE", {"train", "--data", name});
  }
  fs::create_directory(PathOf("empty"));
  Fails(4, "folder \"empty\" has none of train-images-idx3-ubyte", {"train", "--data", "empty"});
}

// A path alone is what people try first.
TEST_F(DataErrorsTest, KindsOfDataThatWereNotSaid) {
  const auto hints = [&](const std::string& path, const std::string& hint) {
    Fails(4, "; did you mean " + hint + "?", {"train", "--data", path});
  };
  for (const char* name : {"csv", "npy", "npz", "tar", "tfrecord"}) {
    const std::string file = std::string("data.") + name;
    Write(file, "");
    hints(file, name + (":" + file));
  }
  Write("input.txt", "");
  hints("input.txt", "text:input.txt");
  fs::create_directories(PathOf("photos/cat"));
  hints("photos", "images:photos");
  Write("photos/cat/1.jpg", "");
  hints("photos/cat", "images:photos/cat");
  hints("photos/cat/1.jpg", "images:photos/cat/1.jpg");
  Write("photos/train-images.idx3-ubyte", "");
  Fails(4, "folder \"photos\" has none of train-labels-idx1-ubyte", {"train", "--data", "photos"});
}

TEST_F(DataErrorsTest, ModelFiles) {
  Succeeds(Training(1, {"--save", "text.prototxt"}));
  Succeeds(Training(1, {"--save", "binary.pb", "--checkpoints="}));
  const auto data_file = [&](const std::string& name) {
    for (const std::string& file : Files()) {
      if (file.starts_with(name + ".") && file.ends_with(".data")) return file;
    }
    return std::string();
  };
  const std::string text = Read("text.prototxt");
  const size_t line =
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find("name: \"fc2\"")), '\n') + 1;
  std::string wrong = text;
  wrong.replace(wrong.find("name: \"fc2\""), 4, "nama");
  Write("wrong.prototxt", wrong);
  Fails(3, "wrong.prototxt:" + std::to_string(line) + ":", {"inspect", "--model", "wrong.prototxt"});
  wrong = text;
  wrong.erase(wrong.find('}'), 1);
  Write("wrong.prototxt", wrong);
  Fails(3, "wrong.prototxt:", {"inspect", "--model", "wrong.prototxt"});
  Write("empty.prototxt", "");
  Fails(3, "empty.prototxt: it has neither a graph nor parameters", {"inspect", "--model", "empty.prototxt"});

  const std::string binary = Read("binary.pb");
  Write("cut.pb", binary.substr(0, binary.size() / 2));
  for (const char* command : {"inspect", "test", "predict", "train"}) {
    Fails(3, "cut.pb: cut off: it does not end with its checksum", {command, "--model", "cut.pb"});
    Fails(3, "cut.pb: cut off", {command, "--weights", "cut.pb"});
  }
  Write("empty.pb", "");
  Fails(3, "empty.pb: not a binary Bindery model", {"inspect", "--model", "empty.pb"});
  Fails(4, "cannot read \"none.pb\": No such file", {"test", "--weights", "none.pb"});
  Fails(4, "\".\" is a folder without a checkpoint", {"inspect", "--model", "."});

  const std::string values = data_file("text.prototxt");
  Damage(values, Read(values).size() / 2);
  Fails(3, values, {"test", "--weights", "text.prototxt"});
  Cut(values, 100);
  Fails(3, values, {"test", "--weights", "text.prototxt"});
  fs::remove(PathOf(values));
  Fails(3, "cannot open data file \"" + values + "\"", {"test", "--weights", "text.prototxt"});
}

// Valid models that the program cannot use as they are.
TEST_F(DataErrorsTest, ModelsThatDoNotTakeImagesAndLabels) {
  const auto write = [&](const std::string& data, const std::string& label, const std::string& weight,
                         const std::string& heads) {
    Write("model.prototxt",
          "version: 2 graph { variable { name: \"" + data + "\" shape { dim: [-1, 1, 28, 28] } } variable { name: \"" +
              label + "\" } variable { " + weight + " } node { op: \"FullyConnected\" name: \"fc\" input: \"" + data +
              "\" input: \"w\" attr { name: \"num_hidden\" i: 10 } attr { name: \"no_bias\" b: true } } "
              "node { op: \"SoftmaxOutput\" name: \"softmax\" input: \"fc\" input: \"" +
              label + "\" } node { op: \"Sum\" name: \"sum\" input: \"fc\" } " + heads + " }");
  };
  const auto train = [](const Words& more = {}) {
    return Words{"train",    "--model", "model.prototxt", "--train-digits", "70", "--test-digits", "20",
                 "--epochs", "1",       "--checkpoints="} +
           more;
  };
  const std::string w = "name: \"w\" annotation { key: \"init\" value: \"zero\" }", softmax = "output: \"softmax\"";
  write("data", "softmax_label", w, softmax);
  Succeeds(train());
  write("image", "softmax_label", w, softmax);
  Fails(3, "the model has no argument \"data\", which takes the samples; its arguments are image, w, softmax_label",
        train());
  Succeeds({"inspect", "--model", "model.prototxt", "--shape", "1,1,28,28"});
  write("data", "label", w, softmax);
  Fails(3, "the model has no argument \"softmax_label\", which takes the labels", train());
  write("data", "softmax_label", "name: \"w\"", softmax);
  Fails(3, "parameter \"w\": no initial value follows from its name", train());
  write("data", "softmax_label", "name: \"w\" annotation { key: \"init\" value: \"glorot\" }", softmax);
  Fails(3, "parameter \"w\", annotation \"init\": initializer \"glorot\"", train());
  write("data", "softmax_label", w, softmax + " output: \"sum\"");
  Fails(3, "head \"sum_output\" of shape () has no batch axis",
        train({"--metrics", "accuracy(output=softmax_output)"}));
}

TEST_F(DataErrorsTest, WeightsOfAnotherModel) {
  Succeeds(Training(1, {"--save", "mlp.pb"}));
  const Words lenet = {"--model", "lenet", "--weights", "mlp.pb"};
  const std::string others = "\"mlp.pb\": 2 of its 6 tensors are not in the model; rules for names can rename them";
  Fails(5, others, Words{"test"} + lenet);
  Fails(5, others, Words{"train", "--train-digits", "100", "--test-digits", "50", "--checkpoints="} + lenet);
  Fails(5, "\"mlp.pb\": 2 of its tensors do not fit the model; rules for names can leave them out:",
        {"train", "--model", "mlp(classes=2)", "--data", "digits", "--weights", "mlp.pb", "--checkpoints="});
  Fails(5, "the newest checkpoint in \"bindery-checkpoints\" has no value for \"conv1_weight\"",
        {"predict", "--model", "lenet"});
  // A model without parameters must not be tested with random ones.
  Succeeds(Training(1, {"--save", "text.prototxt", "--checkpoints="}));
  const std::string text = Read("text.prototxt");
  Write("graph.prototxt", text.substr(0, text.find("\nparam {") + 1));
  Succeeds({"inspect", "--model", "graph.prototxt"});
  Fails(5, "\"graph.prototxt\" has no value for \"fc1_weight\"", {"test", "--weights", "graph.prototxt"});
  Write("values.prototxt", text.substr(0, text.find("graph {")) + text.substr(text.find("\nparam {") + 1));
  Fails(3, "\"values.prototxt\" holds parameters but no graph", {"test", "--weights", "values.prototxt"});
}

TEST_F(DataErrorsTest, Checkpoints) {
  Succeeds(Training(3, {"--checkpoints", "all"}));
  const Words files = {"step-0000000002.ckpt", "step-0000000004.ckpt", "step-0000000006.ckpt"};
  ASSERT_EQ(Files("all"), files);
  Damage("all/" + files[2], 300'000);
  const Outcome resumed = Fails(0, "skipping a damaged checkpoint: \"all/" + files[2] + "\"",
                                Training(3, {"--checkpoints", "all", "--resume"}));
  EXPECT_NE(resumed.err.find("going on after step 4, in epoch 3"), std::string::npos) << resumed;
  Succeeds({"test", "--checkpoints", "all", "--test-digits", "50"});
  for (const std::string& file : files) Cut("all/" + file, 5000);
  const std::string none = "none of the 3 checkpoints in \"all\" can be read; the newest: \"all/" + files[2] +
                           "\": the file was cut off: it has 5000 of ";
  const Outcome refused = Fails(5, none, Training(4, {"--checkpoints", "all", "--resume"}));
  EXPECT_EQ(refused.err.find("training "), std::string::npos) << "as if there were a run: " << refused;
  Fails(5, none, {"test", "--checkpoints", "all"});
  Fails(5, none, {"predict", "--checkpoints", "all"});
  EXPECT_EQ(Files("all"), files);  // for someone who can mend them
}

TEST_F(DataErrorsTest, OutputsAreCheckedBeforeTheWork) {
  fs::create_directory(PathOf("folder.pb"));
  Write("file", "");
  // So many epochs that the test would run into its limit if they were trained.
  const auto long_training = [](const Words& more) { return Training(1'000'000, more); };
  Fails(4, "--save: there is no folder \"nowhere\"", long_training({"--save", "nowhere/model.pb"}));
  Fails(4, "--save: \"folder.pb\" is there and is not a file", long_training({"--save", "folder.pb"}));
  Fails(4, "--checkpoints: cannot make the folder \"/proc/x\"", long_training({"--checkpoints", "/proc/x"}));
  Fails(4, "--checkpoints: cannot make the folder \"file\"", long_training({"--checkpoints", "file"}));
  Fails(4, "--write-digits: cannot make the folder \"file\"", long_training({"--write-digits", "file"}));
  Fails(4, "--output: there is no folder \"nowhere\"", {"predict", "--output", "nowhere/list.csv"});
  Fails(4, "--output: \"folder.pb\" is there and is not a file", {"predict", "--output", "folder.pb"});
  EXPECT_EQ(Files(), (Words{"file", "folder.pb"}));
}

TEST_F(DataErrorsTest, AFullDiskLeavesWhatWasThere) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer writes files of its own, larger than the limit by which a full disk is simulated";
#endif
  Succeeds(Training(1, {"--checkpoints", "run", "--save", "model.pb"}));
  const auto model = ModelFiles("model.pb");
  const Words checkpoints = Files("run");
  for (const std::string target : {"model.pb", "new.pb", "model.prototxt"}) {
    const Outcome outcome = WithLittleSpace(Training(2, {"--checkpoints=", "--save", target}));
    EXPECT_EQ(outcome.status, 4) << outcome;
    EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome;
  }
  const Outcome outcome = WithLittleSpace(Training(2, {"--checkpoints", "run", "--resume"}));
  EXPECT_EQ(outcome.status, 4) << outcome;
  EXPECT_NE(outcome.err.find("cannot write \"run/step-0000000004.ckpt\": File too large"), std::string::npos)
      << outcome;
  EXPECT_EQ(ModelFiles("model.pb"), model);
  EXPECT_TRUE(ModelFiles("new.pb").empty());
  EXPECT_TRUE(ModelFiles("model.prototxt").empty());
  EXPECT_EQ(Files("run"), checkpoints);
  EXPECT_FALSE(HasTemporaries());
  EXPECT_EQ(WithLittleSpace({"predict", "--checkpoints", "run", "--output", "list.csv"}).status, 0);  // 50 kB will do
  EXPECT_EQ(WithLittleSpace(Training(1, {"--checkpoints=", "--write-digits", "digits"})).status, 4);
  EXPECT_TRUE(Files("digits").empty());
  Succeeds(Training(2, {"--checkpoints", "run", "--resume"}));  // with space again, it goes on
}

}  // namespace
}  // namespace bindery
