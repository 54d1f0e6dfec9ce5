#include "train/zoo.h"

#include <algorithm>

#include "base/error.h"
#include "base/names.h"
#include "symbol/ops.h"
#include "train/call_text.h"
#include "train/zoo/models.h"

namespace bindery {
namespace {

struct ZooEntry {
  const char* name;
  Symbol (*make)(const ZooOptions&);
  ZooOptions own;
  std::vector<std::string> settings = {};  // beside `classes`
  bool one_answer = false;                 // for a sample: of an image. It may be numbers in place of classes
};

const std::vector<ZooEntry>& Zoo() {
  static const std::vector<ZooEntry> zoo = {
      {"mlp", zoo::Mlp, {.input = {1, 28, 28}, .num_classes = 10}, {}, true},
      {"lenet", zoo::LeNet, {.input = {1, 28, 28}, .num_classes = 10}, {}, true},
      {"resnet20", zoo::ResNet20, {.input = {3, 32, 32}, .num_classes = 10}, {}, true},
      {"resnet18", zoo::ResNet18, {.input = {3, 224, 224}, .num_classes = 1000}, {}, true},
      {"resnet34", zoo::ResNet34, {.input = {3, 224, 224}, .num_classes = 1000}, {}, true},
      {"resnet50", zoo::ResNet50, {.input = {3, 224, 224}, .num_classes = 1000}, {}, true},
      {"mobilenetv2", zoo::MobileNetV2, {.input = {3, 224, 224}, .num_classes = 1000}, {}, true},
      {"vgg11", zoo::Vgg11, {.input = {3, 224, 224}, .num_classes = 1000}, {}, true},
      {"unet", zoo::UNet, {.input = {1, 64, 64}, .num_classes = 2}},
      {"gpt",
       zoo::Gpt,
       {.input = {64}, .num_classes = 256, .layers = 4, .width = 128, .heads = 4},
       {"layers", "width", "heads", "context", "tied"}},
      {"lstm",
       zoo::Lstm,
       {.input = {64}, .num_classes = 256, .layers = 2, .width = 256},
       {"layers", "width", "context", "tied", "time_first"}},
      {"transformer",
       zoo::Transformer,
       {.input = {32}, .num_classes = 256, .layers = 2, .width = 128, .heads = 4},
       {"layers", "width", "heads", "context", "tied"}},
  };
  return zoo;
}

const ZooEntry& FindModel(std::string_view name) {
  for (const ZooEntry& entry : Zoo()) {
    if (name == entry.name) return entry;
  }
  Throw("unknown model \"{}\"{}", name, NameHint(name, ModelNames()));
}

constexpr int64_t kMost = 1 << 20;  // of anything that is counted: products of two stay far from 2^63

// Whole numbers that an option or a setting gives, each by the setting's name.
struct Count {
  const char* setting;
  int64_t ZooOptions::*value;
  int64_t most = kMost;
};
constexpr Count kCounts[] = {
    {"layers", &ZooOptions::layers, 1000}, {"width", &ZooOptions::width}, {"heads", &ZooOptions::heads}};
struct Choice {
  const char* setting;
  bool ZooOptions::*value;
};
constexpr Choice kChoices[] = {{"tied", &ZooOptions::tied}, {"time_first", &ZooOptions::time_first}};

struct Resolved {
  const ZooEntry& entry;
  bool is_regression;
};

// The model, and all that is open in `options` taken from the name's settings, else from the model's own.
Resolved Resolve(const std::string& text, ZooOptions* options) {
  if (!IsModelName(text)) FindModel(text.substr(0, text.find('(')));  // throws
  CallText call("model", text);
  const ZooEntry& entry = FindModel(call.name());
  std::vector<std::string> settings = {"classes"};
  settings.insert(settings.end(), entry.settings.begin(), entry.settings.end());
  if (entry.one_answer) settings.insert(settings.end(), {"head", "outputs"});
  const auto has = [&](const char* setting) { return std::ranges::find(settings, setting) != settings.end(); };
  call.Declare(settings);
  const auto count = [&](const char* setting, int64_t most) -> int64_t {
    const std::optional<int64_t> value = has(setting) ? call.Integer(setting) : std::nullopt;
    if (value && (*value < 1 || *value > most)) {
      call.Fail(fmt::format("\"{}\" must be from 1 to {}, got {}", setting, most, *value));
    }
    return value.value_or(0);
  };
  const std::string head = has("head") ? call.Word("head").value_or("softmax") : "softmax";
  if (head != "softmax" && head != "regression") {
    call.Fail(fmt::format("\"head\" must be softmax or regression, got \"{}\"", head));
  }
  const bool is_regression = head == "regression";
  const int64_t classes = count("classes", kMost), outputs = count("outputs", kMost);
  if (is_regression ? classes > 0 : outputs > 0) {
    call.Fail(is_regression ? "a regression has \"outputs\", not \"classes\""
                            : "\"outputs\" are of head=regression; a softmax has \"classes\"");
  }
  if (options->num_classes == 0) options->num_classes = is_regression ? std::max<int64_t>(outputs, 1) : classes;
  if (options->num_classes == 0) options->num_classes = entry.own.num_classes;
  const int64_t context = count("context", kMost);
  if (options->input.rank() == 0) options->input = context > 0 ? Shape{context} : entry.own.input;
  for (const auto& [setting, value, most] : kCounts) {
    int64_t& option = options->*value;
    if (option != 0 && !has(setting)) Throw("model \"{}\" has no {}", entry.name, setting);
    if (option < 0 || option > most) {
      Throw("model \"{}\": {} must be from 1 to {}, got {}", entry.name, setting, most, option);
    }
    if (option == 0) option = count(setting, most);
    if (option == 0) option = entry.own.*value;
  }
  for (const auto& [setting, value] : kChoices) {
    if (options->*value && !has(setting)) Throw("model \"{}\" cannot be {}", entry.name, setting);
    if (!has(setting)) continue;
    const int64_t given = call.Integer(setting).value_or(0);
    if (given != 0 && given != 1) call.Fail(fmt::format("\"{}\" must be 0 or 1, got {}", setting, given));
    options->*value |= given == 1;
  }
  return {entry, is_regression};
}

}  // namespace

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : Zoo()) names.emplace_back(entry.name);
  return names;
}

bool IsModelName(std::string_view text) {
  const std::string_view name = text.substr(0, text.find('('));
  return std::ranges::any_of(Zoo(), [&](const ZooEntry& entry) { return name == entry.name; });
}

Symbol ModelByName(const std::string& name, const ZooOptions& options) {
  ZooOptions resolved = options;
  const auto [entry, is_regression] = Resolve(name, &resolved);
  if (resolved.num_classes < 0) Throw("model \"{}\": num_classes must be >= 1, got {}", name, options.num_classes);
  if (!(options.dropout >= 0 && options.dropout < 1))
    Throw("model \"{}\": dropout must be in [0, 1), got {}", name, options.dropout);
  const bool images = entry.own.input.rank() == 3;
  if (resolved.input.rank() != entry.own.input.rank() || resolved.input.Elements() < 1) {
    Throw("model \"{}\": expected an input shape {}, got {}", name,
          images ? "(channels, rows, columns)" : "(characters)", resolved.input);
  }
  if (resolved.heads > 0 && resolved.width % resolved.heads != 0) {
    Throw("model \"{}\": width must be a multiple of heads, got {} and {}", name, resolved.width, resolved.heads);
  }
  const Symbol model = entry.make(resolved);
  if (!is_regression) return model;
  const Symbol scores(model.entry().node->inputs()[0]);  // of the softmax in whose place it is
  return LinearRegressionOutput(scores, Variable("softmax_label"), {}, "regression");
}

Shape ModelInputShape(const std::string& name) {
  ZooOptions resolved;
  Resolve(name, &resolved);
  return resolved.input;
}

int64_t ModelClasses(const std::string& name) {
  ZooOptions resolved;
  Resolve(name, &resolved);
  return resolved.num_classes;
}

}  // namespace bindery
