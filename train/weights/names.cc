// Weights by the names of a model.
#include "base/names.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <regex>
#include <utility>

#include "base/error.h"
#include "base/split_text.h"
#include "symbol/infer.h"
#include "train/weights/weights.h"

namespace bindery {
namespace {

constexpr size_t kLongestName = 4096;  // std::regex goes deeper by a call for each character
constexpr size_t kMostListed = 8;

struct Rule {
  std::string text;
  std::regex expression;
  std::string name;
  bool used = false;
};

// N where the name has \N, else 0.
size_t ReferenceAt(const std::string& name, size_t i) {
  const bool is_one = name[i] == '\\' && i + 1 < name.size() && name[i + 1] >= '1' && name[i + 1] <= '9';
  return is_one ? static_cast<size_t>(name[i + 1] - '0') : 0;
}

Rule ParseRule(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    Throw("a rule for names: expected EXPRESSION=NAME, as \"backbone\\.(.*)=\\1\", got \"{}\"", text);
  }
  Rule rule{.text = text, .expression = {}, .name = text.substr(equals + 1)};
  try {
    rule.expression = std::regex(text.substr(0, equals));
  } catch (const std::regex_error& e) {
    Throw("a rule for names: \"{}\" is no regular expression: {}", text.substr(0, equals), e.what());
  }
  for (size_t i = 0; i < rule.name.size(); ++i) {
    const size_t bracket = ReferenceAt(rule.name, i);
    if (bracket <= rule.expression.mark_count()) continue;
    Throw("a rule for names: there is no \\{} in \"{}\", whose expression has brackets {} times", bracket, text,
          rule.expression.mark_count());
  }
  return rule;
}

// The name, with \1 ... \9 in it replaced by what was in brackets.
std::string Replaced(const std::string& name, const std::smatch& match) {
  std::string result;
  for (size_t i = 0; i < name.size(); ++i) {
    const size_t bracket = ReferenceAt(name, i);
    if (bracket > 0) {
      result += match.str(bracket);
      ++i;
    } else {
      result += name[i];
    }
  }
  return result;
}

// A line each, but not too many.
std::string List(const std::vector<std::string>& misfits) {
  const size_t listed = std::min(misfits.size(), kMostListed);
  std::string text;
  for (size_t i = 0; i < listed; ++i) text += fmt::format("\n  {}", misfits[i]);
  if (listed < misfits.size()) text += fmt::format("\n  and {} more", misfits.size() - listed);
  return text;
}

}  // namespace

std::vector<std::string> ChooseNames(const std::vector<std::string>& names, const std::string& patterns) {
  std::vector<bool> chosen(names.size());
  for (const std::string_view part : SplitText(patterns, ',')) {
    const std::string pattern(part);
    bool fits = false;
    for (size_t i = 0; i < names.size(); ++i) {
      const bool is_one = names[i] == pattern || fnmatch(pattern.c_str(), names[i].c_str(), FNM_NOESCAPE) == 0;
      if (is_one) chosen[i] = fits = true;
    }
    if (!fits) Throw("no parameter is \"{}\"{}", pattern, NameHint(pattern, names));
  }
  std::vector<std::string> result;
  for (size_t i = 0; i < names.size(); ++i) {
    if (chosen[i]) result.push_back(names[i]);
  }
  return result;
}

Weights MapNames(Weights weights, const std::vector<std::string>& rules) {
  std::vector<Rule> parsed;
  for (const std::string& rule : rules) parsed.push_back(ParseRule(rule));
  Weights mapped{.metadata = std::move(weights.metadata)};
  std::map<std::string, std::string> origins;  // of names that are given
  for (auto& [name, tensor] : weights.tensors) {
    std::string to = name;
    for (Rule& rule : parsed) {
      std::smatch match;
      if (name.size() > kLongestName) Throw<CheckpointError>("a name of {} characters cannot be mapped", name.size());
      if (!std::regex_match(name, match, rule.expression)) continue;
      rule.used = true;
      to = Replaced(rule.name, match);
      break;
    }
    if (to.empty()) continue;
    const auto [origin, is_new] = origins.emplace(to, name);
    if (!is_new) Throw<CheckpointError>("\"{}\" and \"{}\" would both be called \"{}\"", origin->second, name, to);
    mapped.tensors.emplace(to, std::move(tensor));
  }
  for (const Rule& rule : parsed) {
    if (!rule.used) Throw<CheckpointError>("the rule \"{}\" renames nothing: no name matches it", rule.text);
  }
  return mapped;
}

Model ModelOf(const Symbol& symbol, Weights weights, const std::string& source) {
  const std::vector<std::string> arguments = symbol.ListArguments(), auxiliary = symbol.ListAuxiliaryStates();
  std::vector<std::string> all = arguments, misfits;
  all.insert(all.end(), auxiliary.begin(), auxiliary.end());
  const size_t count = weights.tensors.size();
  Model model{.symbol = symbol, .metadata = std::move(weights.metadata)};
  for (auto& [name, tensor] : weights.tensors) {
    if (std::ranges::find(auxiliary, name) != auxiliary.end()) {
      model.aux.emplace(name, std::move(tensor));
    } else if (std::ranges::find(arguments, name) != arguments.end()) {
      model.params.emplace(name, std::move(tensor));
    } else {
      const std::string nearest = misfits.size() < kMostListed ? NearestName(name, all) : "";
      misfits.push_back(
          fmt::format("\"{}\"{}", name, nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
    }
  }
  if (misfits.empty()) return model;
  Throw<CheckpointError>(
      "{}: {} of its {} tensors are not in the model; rules for names can rename them or leave them "
      "out:{}",
      source, misfits.size(), count, List(misfits));
}

void CheckShapes(const Model& model, const std::string& source) {
  const InferredShapes shapes = InferShapesPartial(model.symbol, {});
  std::vector<std::string> misfits;
  const auto check = [&](const std::vector<std::string>& names, const std::vector<std::optional<Shape>>& known,
                         const HostTensorMap& values) {
    for (size_t i = 0; i < names.size(); ++i) {
      const auto value = values.find(names[i]);
      if (value == values.end() || !known[i] || !known[i]->IsKnown() || *known[i] == value->second.shape()) continue;
      misfits.push_back(fmt::format("\"{}\" is {}, the model's is {}", names[i], value->second.shape(), *known[i]));
    }
  };
  check(model.symbol.ListArguments(), shapes.arguments, model.params);
  check(model.symbol.ListAuxiliaryStates(), shapes.auxiliary, model.aux);
  if (misfits.empty()) return;
  Throw<CheckpointError>("{}: {} of its tensors do not fit the model; rules for names can leave them out:{}", source,
                         misfits.size(), List(misfits));
}

Weights WeightsOf(Model model) {
  Weights weights{.tensors = std::move(model.params), .metadata = std::move(model.metadata)};
  weights.tensors.merge(model.aux);
  return weights;
}

}  // namespace bindery
