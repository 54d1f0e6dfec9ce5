// Attributes of a node, which are texts in MXNet's files.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/split_text.h"
#include "symbol/model/source.h"
#include "symbol/mxnet/importer.h"

namespace bindery::mxnet {
namespace {

// Python 2 wrote "3L".
std::optional<int64_t> ParseInt(std::string_view text) {
  text = Trim(text);
  if (text.ends_with('L')) text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<double> ParseDouble(std::string_view text) {
  text = Trim(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

[[noreturn]] void Refuse(const char* key, const char* expected, const std::string& got) {
  Throw<ModelError>("attribute \"{}\": expected {}, got {}", key, expected, QuotedName(got));
}

// "(3, 3)", "[3, 3]", "(3,)", "3", "()": the parts between the commas.
std::optional<std::vector<std::string_view>> Parts(std::string_view text) {
  text = Trim(text);
  if (text.empty()) return std::nullopt;
  if (text.front() == '(' || text.front() == '[') {
    if (text.back() != (text.front() == '(' ? ')' : ']') || text.size() < 2) return std::nullopt;
    text = Trim(text.substr(1, text.size() - 2));
    if (text.ends_with(',')) text.remove_suffix(1);
    if (text.empty()) return std::vector<std::string_view>{};
  }
  std::vector<std::string_view> parts;
  for (size_t comma; (comma = text.find(',')) != std::string_view::npos; text.remove_prefix(comma + 1)) {
    parts.push_back(Trim(text.substr(0, comma)));
  }
  parts.push_back(Trim(text));
  return parts;
}

std::optional<Shape> ParseShape(const std::string& text) {
  const auto parts = Parts(text);
  if (!parts || parts->size() > Shape::kMaxRank) return std::nullopt;
  std::vector<int64_t> extents;
  for (const std::string_view part : *parts) {
    const auto extent = ParseInt(part);
    if (!extent || *extent < -1) return std::nullopt;
    extents.push_back(*extent == 0 ? kUnknownDim : *extent);  // as MXNet says that it does not know
  }
  return Shape(extents);
}

// MXNet's numbers of element types, and their names.
std::optional<DType> ParseType(const std::string& text) {
  struct Name {
    const char *number, *name;
    DType dtype;
  };
  static constexpr Name kNames[] = {
      {"0", "float32", DType::kFloat32},   {"1", "float64", DType::kFloat64}, {"2", "float16", DType::kFloat16},
      {"3", "uint8", DType::kUInt8},       {"4", "int32", DType::kInt32},     {"5", "int8", DType::kInt8},
      {"6", "int64", DType::kInt64},       {"7", "bool", DType::kBool},       {"8", "int16", DType::kInt16},
      {"9", "uint16", DType::kUInt16},     {"10", "uint32", DType::kUInt32},  {"11", "uint64", DType::kUInt64},
      {"12", "bfloat16", DType::kBFloat16}};
  for (const Name& name : kNames) {
    if (text == name.number || text == name.name) return name.dtype;
  }
  return std::nullopt;
}

// '["xavier", {"magnitude": 3, "rnd_type": "gaussian"}]', or "zeros", as an initializer's text; empty where ours has no
// such, as one of a list of numbers.
std::string InitializerOf(const std::string& text) {
  const auto setting = [&](const std::string& key, const std::string& otherwise) {
    const size_t at = text.find('"' + key + '"');
    if (at == std::string::npos) return otherwise;
    size_t begin = text.find(':', at);
    if (begin == std::string::npos) return otherwise;
    const size_t end = text.find_first_of(",}", ++begin);
    std::string value(Trim(std::string_view(text).substr(begin, end - begin)));
    std::erase(value, '"');
    return value;
  };
  bool is_read = true;
  const auto number = [&](const std::string& key, double otherwise) {
    const std::optional<double> value = ParseDouble(setting(key, fmt::format("{}", otherwise)));
    is_read = is_read && value;
    return value.value_or(otherwise);
  };
  const size_t begin = text.find('"') + 1;  // 0: the name alone
  const std::string kind(Trim(std::string_view(text).substr(begin, text.find('"', begin) - begin)));
  std::string found;
  if (kind == "zero" || kind == "zeros") found = "zero";
  if (kind == "one" || kind == "ones") found = "one";
  if (kind == "constant") found = fmt::format("constant({})", number("value", 0));
  if (kind == "uniform") found = fmt::format("uniform({})", number("scale", 0.07));
  if (kind == "normal") found = fmt::format("normal({})", number("sigma", 0.01));
  if (kind == "orthogonal" && setting("rand_type", "uniform") == "uniform") {
    found = fmt::format("orthogonal({})", number("scale", 1.414));
  }
  if (kind == "xavier") {
    found = fmt::format("xavier({}, {}, {})", setting("rnd_type", "uniform"), setting("factor_type", "avg"),
                        number("magnitude", 3));
  }
  if (kind == "msraprelu") found = fmt::format("msra({}, {})", setting("factor_type", "avg"), number("slope", 0.25));
  if (kind == "bilinear") found = "bilinear";
  if (kind == "lstmbias") found = fmt::format("lstm_bias({})", number("forget_bias", 1));
  return is_read ? found : "";
}

constexpr const char* kHidden[] = {"ctx_group",       "lr_mult",      "wd_mult",       "init",
                                   "force_mirroring", "mirror_stage", "profiler_scope"};

}  // namespace

const std::string* Importer::Find(const char* key) const {
  asked_.insert(key);
  const std::string* found = nullptr;
  for (const auto& [name, value] : node_->attrs) {
    if (name == key) found = value == "None" ? nullptr : &value;
  }
  return found;
}

bool Importer::IsNone(const char* key) const {
  return std::ranges::any_of(node_->attrs,
                             [&](const auto& attr) { return attr.first == key && attr.second == "None"; });
}

const std::string& Importer::Required(const char* key) const {
  const std::string* found = Find(key);
  if (found == nullptr) Throw<ModelError>("attribute \"{}\" is missing", key);
  return *found;
}

int64_t Importer::Int(const char* key, std::optional<int64_t> otherwise) const {
  if (!Has(key) && otherwise) return *otherwise;
  const std::string& text = Required(key);
  const auto value = ParseInt(text);
  if (!value) Refuse(key, "a whole number", text);
  return *value;
}

double Importer::Float(const char* key, std::optional<double> otherwise) const {
  if (!Has(key) && otherwise) return *otherwise;
  const std::string& text = Required(key);
  if (text == "True" || text == "False") return text == "True" ? 1 : 0;
  const auto value = ParseDouble(text);
  if (!value) Refuse(key, "a number", text);
  return *value;
}

bool Importer::Flag(const char* key, bool otherwise) const {
  const std::string* text = Find(key);
  if (text == nullptr) return otherwise;
  if (*text == "True" || *text == "true" || *text == "1") return true;
  if (*text == "False" || *text == "false" || *text == "0") return false;
  Refuse(key, "True or False", *text);
}

std::string Importer::String(const char* key, const std::string& otherwise) const {
  const std::string* text = Find(key);
  return text == nullptr ? otherwise : *text;
}

std::vector<std::optional<int64_t>> Importer::Places(const char* key) const {
  const std::string* text = Find(key);
  if (text == nullptr) return {};
  const auto parts = Parts(*text);
  if (!parts) Refuse(key, "whole numbers", *text);
  std::vector<std::optional<int64_t>> places;
  for (const std::string_view part : *parts) {
    places.push_back(ParseInt(part));
    if (!places.back() && part != "None") Refuse(key, "whole numbers", *text);
  }
  return places;
}

std::vector<int64_t> Importer::Ints(const char* key) const {
  std::vector<int64_t> numbers;
  for (const auto& place : Places(key)) {
    if (!place) Refuse(key, "whole numbers", *Find(key));
    numbers.push_back(*place);
  }
  return numbers;
}

DType Importer::Type(const char* key, DType otherwise) const {
  const std::string* text = Find(key);
  if (text == nullptr) return otherwise;
  const auto dtype = ParseType(*text);
  if (!dtype) Refuse(key, "an element type", *text);
  return *dtype;
}

int Importer::NumberOf(const char* key, int otherwise, std::span<const EnumName> names) const {
  const std::string* text = Find(key);
  if (text == nullptr) return otherwise;
  std::string all;
  for (const EnumName& name : names) {
    if (*text == name.name) return name.value;
    all += (all.empty() ? "one of " : ", ") + std::string(name.name);
  }
  Refuse(key, all.c_str(), *text);
}

void Importer::Expect(const char* key, std::initializer_list<const char*> values) const {
  const std::string* text = Find(key);
  if (text == nullptr || std::ranges::any_of(values, [&](const char* value) { return *text == value; })) return;
  Throw<ModelError>("attribute \"{}\" of {} cannot be imported", key, QuotedName(*text));
}

// --- What attribute scopes give.

bool IsAnnotation(const std::string& key) {
  return (key.size() > 4 && key.starts_with("__") && key.ends_with("__")) ||
         std::ranges::any_of(kHidden, [&](const char* hidden) { return key == hidden; });
}

namespace {

// "lr_mult" and "__lr_mult__" alike.
std::string Bare(const std::string& key) {
  return key.starts_with("__") && key.ends_with("__") && key.size() > 4 ? key.substr(2, key.size() - 4) : key;
}

}  // namespace

// Multipliers mean here what they mean there. All else is kept by the name that MXNet has for it, "__ctx_group__", and
// asks for nothing.
Annotations AnnotationsOf(const JsonNode& node) {
  Annotations annotations;
  for (const auto& [key, value] : node.attrs) {
    if (!IsAnnotation(key)) continue;
    const std::string bare = Bare(key);
    if (bare == "lr_mult" || bare == "wd_mult") {
      if (const auto number = ParseDouble(value); !number || !std::isfinite(*number)) {
        Refuse(key.c_str(), "a number", value);
      }
      annotations[bare] = Trim(value);
    } else {
      annotations["__" + bare + "__"] = value;
    }
  }
  return annotations;
}

VariableOptions OptionsOf(const JsonNode& variable) {
  VariableOptions options{.annotations = AnnotationsOf(variable)};
  for (const auto& [key, value] : variable.attrs) {
    const std::string bare = Bare(key), kept = "__" + bare + "__";
    if (!IsAnnotation(key)) continue;  // those of the operator that the variable was made for are copied to it
    if (bare == "shape") {
      options.shape = ParseShape(value);
      if (!options.shape) Refuse(key.c_str(), "a shape", value);
      if (options.shape->rank() == 0) options.shape.reset();
      options.annotations.erase(kept);
    } else if (bare == "dtype") {
      if (value != "-1") options.dtype = ParseType(value);
      if (value != "-1" && !options.dtype) Refuse(key.c_str(), "an element type", value);
      options.annotations.erase(kept);
    } else if (bare == "init") {
      options.init = InitializerOf(value);
      if (!options.init.empty()) options.annotations.erase(kept);
    } else if (bare == "layout") {
      if (value.find('N') != std::string::npos) options.layout = value;
      options.annotations.erase(kept);
    } else if (bare == "storage_type") {
      if (value != "0" && value != "-1" && value != "default") {
        Throw<ModelError>("a variable of sparse storage cannot be imported");
      }
      options.annotations.erase(kept);
    }
  }
  return options;
}

void MoveAnnotations(JsonGraph* graph) {
  for (JsonNode& node : graph->nodes) {
    // Its inputs of names that begin with its own, by what follows, once they are asked for.
    std::optional<std::unordered_map<std::string_view, JsonNode*>> variables;
    const auto find = [&](std::string_view name) {
      if (!variables) {
        variables.emplace();
        const std::string prefix = node.name + "_";
        for (const JsonEntry& entry : node.inputs) {
          JsonNode& input = graph->nodes[static_cast<size_t>(entry.node)];
          if (input.op != "null" || !input.name.starts_with(prefix)) continue;
          variables->emplace(std::string_view(input.name).substr(prefix.size()), &input);
        }
      }
      const auto found = variables->find(name);
      return found == variables->end() ? nullptr : found->second;
    };
    std::erase_if(node.attrs, [&](const auto& attr) {
      for (const char* hidden : kHidden) {
        const std::string ending = std::string("_") + hidden;
        if (!attr.first.ends_with(ending) || attr.first.size() == ending.size()) continue;
        JsonNode* const target = find(std::string_view(attr.first).substr(0, attr.first.size() - ending.size()));
        if (target == nullptr) continue;
        target->attrs.emplace_back(std::string("__") + hidden + "__", attr.second);
        return true;
      }
      return false;
    });
  }
}

}  // namespace bindery::mxnet
