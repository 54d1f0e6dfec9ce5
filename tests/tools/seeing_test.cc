// What one sees of a training and of a model, by the program: events, lines of JSON, traces, times, plots, pages.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/tools/program.h"
#include "tests/tools/schema.h"
#include "tests/train/events/read_events.h"
#include "tests/train/trace/check_trace.h"
#include "train/data/images/decode.h"

namespace bindery {
namespace {

class SeeingTest : public ProgramTest {
 protected:
  static json Schema(const std::string& name) {
    const std::string docs = std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/docs/";
    return json::parse(ReadFile(docs + name + ".schema.json"));
  }
  // The events of the lines, each of them as docs/train_events.schema.json wants it.
  static Words Events(const std::string& text) {
    const json schema = Schema("train_events");
    Words events;
    for (const json& line : Lines(text)) {
      EXPECT_EQ(Breach(schema, line), "") << line;
      events.push_back(line.at("event"));
    }
    return events;
  }
  static bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
};

const Words kTestDigits = {"--test-digits", "50", "--threads", "1"};

TEST_F(SeeingTest, EveryLineOfJsonIsAsTheSchemaSays) {
  const Outcome good = Succeeds(Training(2, {"--json", "--json-every", "2"}));
  EXPECT_EQ(Events(good.out), (Words{"start", "step", "epoch", "step", "epoch", "end"}));
  const json start = Lines(good.out)[0];
  EXPECT_EQ(start.at("parameters"), 109386);
  EXPECT_EQ(start.at("samples"), 100);
  EXPECT_EQ(start.at("metrics"), json({"accuracy", "cross-entropy"}));

  const Outcome diverged = Bindery(Training(3, {"--json", "--overwrite", "--optimizer", "sgd(lr=1e30)"}));
  EXPECT_EQ(diverged.status, 7) << diverged;
  EXPECT_EQ(Events(diverged.out).front(), "start");
  EXPECT_EQ(Events(diverged.out).back(), "error");
  EXPECT_EQ(Lines(diverged.out).back().at("kind"), "numeric");

  const Outcome usage = Fails(2, "--optimizer", Training(1, {"--json", "--optimizer", "sdg \"x\" <&>"}));
  EXPECT_EQ(Events(usage.out), Words{"error"});
  EXPECT_EQ(Lines(usage.out)[0].at("kind"), "usage");
  const Outcome data = Fails(4, "none.csv", Training(1, {"--json", "--data", "csv:none.csv?label=x"}));
  EXPECT_EQ(Lines(data.out).back().at("kind"), "data");
}

TEST_F(SeeingTest, EveryLineOfALogIsAsItsSchemaSays) {
  const json schema = Schema("train_log");
  Succeeds(Training(2, {"--log", "log.jsonl"}));
  Succeeds(Training(3, {"--log", "log.jsonl", "--resume"}));
  const std::vector<json> lines = Lines(Read("log.jsonl"));
  ASSERT_EQ(lines.size(), 3u);
  for (const json& line : lines) {
    EXPECT_EQ(Breach(schema, line), "") << line;
    for (const char* name :
         {"train/accuracy", "train/cross-entropy", "validation/accuracy", "validation/cross-entropy"}) {
      EXPECT_TRUE(line.at(name).is_number()) << name << line;
    }
  }
  EXPECT_EQ(lines[2].at("epoch"), 3);
  EXPECT_EQ(lines[2].at("iteration"), 6);
  EXPECT_GE(lines[2].at("seconds"), lines[1].at("seconds"));
  // It finds what is wrong.
  for (const auto& [name, value] : std::map<std::string, json>{{"epoch", 1.5}, {"seconds", -1}, {"train/f1", "high"}}) {
    json bad = lines[0];
    bad[name] = value;
    EXPECT_NE(Breach(schema, bad), "") << name;
  }
  json bad = lines[0];
  bad.erase("iteration");
  EXPECT_NE(Breach(schema, bad), "");
}

// Words, settings and variables that are not understood are no run yet.
TEST_F(SeeingTest, WrongCommandLinesAreAnEventToo) {
  Write("unknown.conf", "[train]\nepoch = 3\n");
  Write("json.conf", "[train]\njson = true\nepochs = many\n");
  const std::vector<std::pair<std::string, Words>> cases = {
      {"unknown option \"--epoch\"", {"--json", "--epoch", "3"}},
      {"unknown option \"--epoch\"", {"--epoch", "3", "--json"}},
      {"--epochs: expected a whole number", {"--json", "--epochs", "many"}},
      {"--epochs: its value is missing", {"--epochs", "--json"}},
      {"\"epoch\"", {"--config", "unknown.conf", "--json"}},
      {"--epochs: expected a whole number", {"--config", "json.conf"}},
  };
  for (const auto& [message, words] : cases) {
    const Outcome outcome = Fails(2, message, Words{"train"} + words);
    ASSERT_EQ(Events(outcome.out), Words{"error"}) << outcome;
    const json line = Lines(outcome.out)[0];
    EXPECT_EQ(line.at("kind"), "usage");
    EXPECT_EQ("bindery: " + line.at("message").get<std::string>() + "\n", outcome.err);
  }
  ::setenv("BINDERY_EPOCHS", "many", 1);
  const Outcome variable = Fails(2, "BINDERY_EPOCHS", {"train", "--json"});
  ::unsetenv("BINDERY_EPOCHS");
  EXPECT_EQ(Events(variable.out), Words{"error"});
  EXPECT_EQ(Fails(2, "unknown option", {"test", "--json", "--epoch"}).out, "") << "what others print is no event";
  EXPECT_EQ(Fails(2, "unknown option", {"train", "--epoch"}).out, "");
}

TEST_F(SeeingTest, TensorBoard) {
  const json epoch = Lines(Succeeds(Training(1, {"--json", "--tensorboard", "runs/a"})).out)[1];
  std::map<std::string, events::Summary::Value> values;
  bool graph = false;
  for (const events::Event& event : ReadEventsIn(PathOf("runs/a"))) {
    graph |= event.what_case() == events::Event::kGraphDef;
    for (const auto& value : event.summary().value()) values[value.tag()] = value;
  }
  EXPECT_TRUE(graph);
  EXPECT_EQ(values.at("validation/accuracy").simple_value(), epoch.at("test").at("accuracy").get<float>());
  EXPECT_EQ(values.at("train/cross-entropy").simple_value(), epoch.at("train").at("cross-entropy").get<float>());
  EXPECT_TRUE(values.at("main/fc1_weight").has_histo());
  EXPECT_EQ(values.at("test/0").image().width(), 28);
  EXPECT_TRUE(values.contains("_hparams_/session_start_info"));
  Write("file", "");
  Fails(4, "--tensorboard", Training(1, {"--tensorboard", "file"}));
}

TEST_F(SeeingTest, TraceOfATraining) {
  const json plain = Lines(Succeeds(Training(4, {"--json"})).out).back();
  const json traced =
      Lines(Succeeds(Training(4, {"--json", "--overwrite", "--trace", "trace.json", "--trace-steps", "3"})).out).back();
  EXPECT_EQ(traced.at("test"), plain.at("test"));
  std::map<std::string, int> kinds;
  std::set<std::string> operators;
  for (const json& slice : CheckTrace(Read("trace.json"))) {
    ++kinds[slice.at("cat")];
    if (slice.at("cat") == "operator") operators.insert(slice.at("args").at("operator"));
  }
  EXPECT_EQ(kinds["step"], 3);
  EXPECT_GT(kinds["operation"], 3 * 3);
  EXPECT_TRUE(operators.contains("FullyConnected"));
  EXPECT_TRUE(operators.contains("FullyConnectedGradWeight"));
  Fails(4, "--trace: there is no folder", Training(1, {"--trace", "none/trace.json"}));
  Fails(2, "--trace-steps", Training(1, {"--trace", "trace.json", "--trace-steps", "0"}));
}

TEST_F(SeeingTest, TimesOfOperators) {
  const Words time = {"time", "--model",  "lenet", "--batch-size", "4", "--steps",
                      "3",    "--warmup", "1",     "--threads",    "1"};
  const Outcome text = Succeeds(time + Words{"--device", "cpu:0,cpu:1", "--trace", "trace.json", "--show", "5"});
  for (const char* part : {"GFLOP/s", "forward", "backward", "ConvolutionGradData", "operator and node", "kernel"}) {
    EXPECT_TRUE(Has(text.out, part)) << part << text;
  }
  EXPECT_TRUE(Has(text.out, "(5 of ")) << text;
  std::set<std::string> names, operators;
  for (const json& slice : CheckTrace(Read("trace.json"))) {
    (slice.at("cat") == "operator" ? operators : names).insert(slice.at("name"));
  }
  EXPECT_TRUE(operators.contains("Convolution conv1"));
  const auto any = [&](const char* part) {
    return std::ranges::any_of(names, [&](const std::string& name) { return Has(name, part); });
  };
  EXPECT_TRUE(any("forward cpu:0") && any("forward cpu:1") && any("load")) << json(names);

  const json training = Json(time + Words{"--json", "--optimizer", "adam(lr=0.01)"});
  EXPECT_EQ(training.at("batch"), 4);
  EXPECT_GT(training.at("step_milliseconds"), 0);
  double sum = 0, share = 0;
  bool seen = false;
  for (const json& call : training.at("calls")) {
    sum += call.at("milliseconds").get<double>();
    share += call.at("share").get<double>();
    EXPECT_NE(call.at("kernel"), "");
    if (call.at("node") != "conv1" || call.at("operator") != "Convolution") continue;
    seen = true;
    EXPECT_EQ(call.at("output"), "(4, 20, 24, 24)");
    EXPECT_EQ(call.at("operations"), 2.0 * 4 * 20 * 24 * 24 * 25);
  }
  EXPECT_TRUE(seen);
  EXPECT_NEAR(sum, training.at("calls_milliseconds").get<double>(), 1e-9 + sum * 1e-9);
  EXPECT_NEAR(share, 1, 1e-9);
  const json predicted = Json(time + Words{"--json", "--predict", "--precision", "bfloat16"});
  for (const json& call : predicted.at("calls")) EXPECT_NE(call.at("phase"), "backward");
  const json sequence = Json({"time", "--model", "gpt(layers=1, context=8, width=16, heads=2)", "--batch-size", "2",
                              "--steps", "1", "--warmup", "1", "--json"});
  EXPECT_EQ(sequence.at("batch"), 2);
  Fails(2, "--optimizer", {"time", "--model", "mlp", "--optimizer", "sdg"});
  Fails(2, "--precision", {"time", "--model", "mlp", "--precision", "float13"});
  Fails(4, "--trace", {"time", "--model", "mlp", "--trace", "none/trace.json"});
}

TEST_F(SeeingTest, Plots) {
  const Outcome outcome = Succeeds(Training(3, {"--plot", "loss.svg,loss.png,-"}));
  EXPECT_TRUE(Has(Read("loss.svg"), ">cross-entropy</text>"));
  EXPECT_TRUE(Has(Read("loss.svg"), ">test</text>"));
  EXPECT_EQ(DecodeImage(Read("loss.png"), 3, "loss.png").columns, 1280);
  EXPECT_TRUE(Has(outcome.err, "* train   o test")) << outcome;
  // As it is called everywhere else.
  const Outcome in_parts =
      Succeeds(Training(1, {"--plot", "loss.svg,-", "--validation-part", "0.2", "--checkpoints="}));
  EXPECT_TRUE(Has(Read("loss.svg"), ">validation</text>"));
  EXPECT_TRUE(Has(in_parts.err, "* train   o validation")) << in_parts;
  Fails(2, "--plot: expected names that end in .svg or .png", Training(1, {"--plot", "loss.gif"}));
  Fails(4, "--plot: there is no folder", Training(1, {"--plot", "none/loss.svg"}));
  Fails(2, "--save and --plot are the same", Training(1, {"--plot", "x.svg", "--save", "x.svg"}));
}

TEST_F(SeeingTest, PagesOfModels) {
  Succeeds({"inspect", "--model", "lenet", "--batch-size", "2", "--html", "lenet.html"});
  const std::string page = Read("lenet.html");
  for (const char* part :
       {"<!DOCTYPE html>", "conv1_weight (20, 1, 5, 5)", "431,080 parameters", "<svg", "backward begins"}) {
    EXPECT_TRUE(Has(page, part)) << part;
  }
  Succeeds({"inspect", "--model", "lenet", "--predict", "--html", "lenet.html"});
  EXPECT_FALSE(Has(Read("lenet.html"), "backward begins"));
  Succeeds({"inspect", "--model", "lenet", "--dot", "lenet.dot"});
  EXPECT_EQ(Read("lenet.dot"), Succeeds({"inspect", "--model", "lenet", "--dot", "-"}).out);
  Fails(4, "--html: there is no folder", {"inspect", "--model", "lenet", "--html", "none/lenet.html"});
  Succeeds(Training(1, {"--save", "model.pb", "--checkpoints="}));
  const auto before = ModelFiles("model.pb");
  Fails(2, "--model and --html are the same", {"inspect", "--model", "model.pb", "--html", "./model.pb"});
  Fails(2, "--weights and --report are the same",
        Words{"test", "--weights", "model.pb", "--report", "model.pb"} + kTestDigits);
  Fails(2, "--model and --trace are the same", {"time", "--model", "model.pb", "--trace", "model.pb"});
  Fails(2, "--model and --trace are the same", {"train", "--model", "model.pb", "--trace", "model.pb"});
  EXPECT_EQ(ModelFiles("model.pb"), before);
  Fails(2, "--html has layers, plan and memory", {"inspect", "--model", "lenet", "--html", "x.html", "--plan"});
}

// What a program reads of a model is what a person does.
TEST_F(SeeingTest, ModelsAsJson) {
  const json schema = Schema("model");
  // The number behind a name in a text.
  const auto number = [](const std::string& text, const std::string& name) {
    const size_t at = text.find(name);
    std::string digits;
    for (size_t i = at + name.size(); at != std::string::npos && i < text.size() && text[i] != '\n'; ++i) {
      if (text[i] >= '0' && text[i] <= '9') digits += text[i];
      if (text[i] == 'b') break;  // "bytes"
    }
    return digits.empty() ? 0 : std::stoll(digits);
  };
  const Words of_two = {"--devices", "cpu:0,cpu:1", "--workload", "3,1"};
  for (const Words& options : {Words{"--model", "lenet"},
                               {"--model", "resnet20", "--predict"},
                               {"--model", "mlp", "--precision", "bfloat16"},
                               {"--model", "lstm"}}) {
    const Words inspect = Words{"inspect", "--batch-size", "8", "--threads", "1"} + of_two + options;
    const json model = Json(inspect + Words{"--json"});
    EXPECT_EQ(Breach(schema, model), "") << model;
    const std::string summary = Succeeds(inspect).out;
    std::map<bool, int64_t> counts;
    std::set<std::string> names, parameters;
    for (const json& input : model.at("inputs")) names.insert(input.at("name"));
    for (const json& layer : model.at("layers")) {
      for (const json& input : layer.at("inputs")) {
        const std::string from = input.at("from");
        EXPECT_TRUE(names.contains(from) || parameters.contains(from)) << layer;
      }
      names.insert(layer.at("name"));
      EXPECT_TRUE(Has(summary, layer.at("operator"))) << layer;
      for (const json& parameter : layer.at("parameters")) {
        int64_t count = 1;
        for (const int64_t extent : parameter.at("shape")) count *= extent;
        EXPECT_EQ(parameter.at("count"), count);
        EXPECT_EQ(parameter.at("bytes"), 4 * count);
        EXPECT_TRUE(parameters.insert(parameter.at("name")).second) << "is counted twice: " << parameter;
        counts[parameter.at("auxiliary")] += count;
      }
    }
    EXPECT_EQ(counts[false], number(summary, "\nParameters: "));
    EXPECT_EQ(counts[true], number(summary, "\nAuxiliary states: "));
    EXPECT_EQ(model.at("parameters"), counts[false]);
    EXPECT_EQ(model.at("auxiliary"), counts[true]);
    for (const std::string name : model.at("arguments")) EXPECT_TRUE(names.contains(name) || parameters.contains(name));

    const std::string memory = Succeeds(inspect + Words{"--memory"}).out;
    ASSERT_EQ(model.at("devices").size(), 2u);
    for (const json& device : model.at("devices")) {
      EXPECT_EQ(device.at("samples"), device.at("device") == "cpu:0" ? 6 : 2);
      const size_t begin = memory.find(device.at("device").get<std::string>() + " (");
      ASSERT_NE(begin, std::string::npos) << memory;
      EXPECT_EQ(device.at("memory").at("total"), number(memory.substr(begin), "  total")) << memory;
      const json& calls = device.at("calls");
      int64_t most = 0;
      for (const json& call : calls) most = std::max(most, call.at("live_bytes").get<int64_t>());
      const int64_t peak = device.at("memory").at("peak_live");
      EXPECT_LE(most, peak);  // which is of whole cache lines
      EXPECT_GT(most, peak / 100 * 99);
      for (const json& range : device.at("arena")) {
        EXPECT_LE(range.at("offset").get<int64_t>() + range.at("bytes").get<int64_t>(),
                  device.at("memory").at("arena"));
        EXPECT_LT(range.at("last_call").get<int64_t>(), std::ssize(calls));
      }
    }
    EXPECT_EQ(model.at("purpose"), options.back() == "--predict" ? "prediction" : "training");
  }
  // What cannot be trained is told of all the same.
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 4}});
  SaveModel({.symbol = ArgMax(FullyConnected(data, {.num_hidden = 3}, "fc"), {.axis = 1})}, PathOf("answers.pb"));
  const json answers = Json({"inspect", "--json", "--model", "answers.pb"});
  EXPECT_EQ(answers.at("purpose"), "prediction");
  EXPECT_NE(Bindery({"inspect", "--plan", "--model", "answers.pb"}).status, 0);
  // LeNet's first layer, by hand.
  const json model = Json({"inspect", "--json", "--model", "lenet", "--batch-size", "8"});
  const json& conv = model.at("layers").at(0);
  EXPECT_EQ(conv.at("operator"), "Convolution");
  EXPECT_EQ(conv.at("attributes").at("kernel"), json({5, 5}));
  EXPECT_EQ(conv.at("inputs"), json::parse(R"([{"from": "data", "output": 0}])"));
  EXPECT_EQ(conv.at("outputs"), json::parse(R"([{"shape": [8, 20, 24, 24], "type": "float32"}])"));
  EXPECT_EQ(conv.at("parameters").at(0), json::parse(R"({"name": "conv1_weight", "shape": [20, 1, 5, 5],
            "type": "float32", "count": 500, "bytes": 2000, "auxiliary": false})"));
}

TEST_F(SeeingTest, WhichClassIsTakenForWhich) {
  Succeeds(Training(1));
  const json tested = Json(Words{"test", "--json", "--confusion"} + kTestDigits);
  int64_t right = 0, all = 0;
  ASSERT_EQ(tested.at("confusion").size(), 10u);
  for (size_t label = 0; label < 10; ++label) {
    for (size_t answer = 0; answer < 10; ++answer) {
      const int64_t count = tested.at("confusion")[label][answer];
      all += count;
      right += label == answer ? count : 0;
    }
  }
  EXPECT_EQ(all, 50);
  EXPECT_NEAR(static_cast<double>(right) / 50, tested.at("accuracy").get<double>(), 1e-12);
  ASSERT_EQ(tested.at("classes").size(), 10u);
  double recalled = 0, recalls = 0;
  int64_t classes = 0;
  for (const json& one : tested.at("classes")) {
    if (one.at("samples") == 0) {
      EXPECT_TRUE(one.at("recall").is_null()) << one;
      continue;
    }
    recalled += one.at("recall").get<double>() * one.at("samples").get<double>();
    recalls += one.at("recall").get<double>();
    ++classes;
  }
  EXPECT_NEAR(recalled, static_cast<double>(right), 1e-9);
  EXPECT_NEAR(tested.at("macro_average").at("recall").get<double>(), recalls / static_cast<double>(classes), 1e-12);
  const Outcome text = Succeeds(Words{"test", "--confusion", "--report", "report.html", "--worst", "3"} + kTestDigits);
  EXPECT_TRUE(Has(text.out, std::to_string(right) + " of 50 right")) << text;
  EXPECT_TRUE(Has(text.out, "precision  recall      F1  samples\n0 ")) << text;
  EXPECT_TRUE(Has(text.out, "\nmacro average ")) << text;
  const std::string page = Read("report.html");
  size_t images = 0;
  for (size_t at = page.find("<img "); at != std::string::npos; at = page.find("<img ", at + 1)) ++images;
  EXPECT_EQ(images, std::min<size_t>(3, static_cast<size_t>(50 - right)));
  Fails(4, "--report: there is no folder", Words{"test", "--report", "none/x.html"} + kTestDigits);
  Write("text.txt", std::string(4000, 'a') + "b");
  Fails(2, "--confusion: samples of a text", {"test", "--data", "text:text.txt", "--confusion"});
}

}  // namespace
}  // namespace bindery
