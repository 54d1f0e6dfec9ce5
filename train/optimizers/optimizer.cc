#include "train/optimizers/optimizer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "train/call_text.h"

namespace bindery {
namespace {

// The settings of OptimizerOptions: the rate comes before a rule's own by position, the others after them.
constexpr const char* kRate = "lr";
constexpr const char* kOthers[] = {"wd", "clip_gradient", "rescale", "clip_norm"};

void CheckNumber(const std::string& name, double value, double below = INFINITY) {
  if (!(value >= 0 && value < below)) {
    if (std::isinf(below)) Throw("optimizer: {} must be a number >= 0, got {}", name, value);
    Throw("optimizer: {} must be in [0, {}), got {}", name, below, value);
  }
}

// The built-in rules and the user's.
struct Rules {
  std::mutex mutex;
  std::vector<UpdateRule> all = UpdateRules();
};
Rules& TheRules() {
  static Rules& rules = *new Rules;
  return rules;
}

UpdateRule FindRule(const std::string& name) {
  Rules& rules = TheRules();
  const std::lock_guard lock(rules.mutex);
  const auto found = std::ranges::find(rules.all, name, &UpdateRule::name);
  if (found != rules.all.end()) return *found;
  std::vector<std::string> known;
  for (const UpdateRule& rule : rules.all) known.push_back(rule.name);
  Throw("unknown optimizer \"{}\"{}", name, NameHint(name, known));
}

}  // namespace

Optimizer::Optimizer(const UpdateRule& rule, const OptimizerOptions& options, std::vector<double> settings)
    : rule_(rule), options_(options), settings_(std::move(settings)) {
  CheckNumber("learning_rate", options.learning_rate);
  CheckNumber("weight_decay", options.weight_decay);
  CheckNumber("clip_gradient", options.clip_gradient);
  CheckNumber("clip_norm", options.clip_norm);
  if (options.rescale_gradient && !std::isfinite(*options.rescale_gradient)) {
    Throw("optimizer: rescale must be a finite number, got {}", *options.rescale_gradient);
  }
  if (settings_.size() > rule_.settings.size()) {
    Throw("optimizer: {} has {} settings, got {}", rule_.name, rule_.settings.size(), settings_.size());
  }
  for (size_t i = 0; i < rule_.settings.size(); ++i) {
    const UpdateSetting& setting = rule_.settings[i];
    if (i == settings_.size()) settings_.push_back(setting.value);
    CheckNumber(setting.name, settings_[i], setting.below);
    // 0 / 0 would fill the padding of weights, whose gradients are 0, with NaN.
    if (setting.name == "epsilon" && setting.value > 0) settings_[i] = std::max<double>(settings_[i], FLT_MIN);
  }
  without_first_ = rule_.without_first && settings_[0] == 0;
}

std::string Optimizer::Text() const {
  CallPrinter printer(name());
  printer.Add("lr", options_.learning_rate);
  for (size_t i = 0; i < settings_.size(); ++i) {
    if (settings_[i] != rule_.settings[i].value) printer.Add(rule_.settings[i].name, settings_[i]);
  }
  if (options_.weight_decay != 0) printer.Add("wd", options_.weight_decay);
  if (options_.clip_gradient != 0) printer.Add("clip_gradient", options_.clip_gradient);
  if (options_.rescale_gradient) printer.Add("rescale", *options_.rescale_gradient);
  if (options_.clip_norm != 0) printer.Add("clip_norm", options_.clip_norm);
  return printer.Text();
}

std::vector<std::string> Optimizer::state_names() const {
  return {rule_.states.begin() + without_first_, rule_.states.end()};
}

void Optimizer::Update(DType dtype, UpdateArgs args, std::span<const void* const> grads, void* weight,
                       std::span<void* const> states, std::span<void* const> copies, int64_t n) const {
  Update(dtype, args,
         {.gradients = grads,
          .weight = weight,
          .new_weight = weight,
          .states = states,
          .new_states = states,
          .copies = copies,
          .elements = n});
}

void Optimizer::Update(DType dtype, UpdateArgs args, const UpdateArrays& arrays) const {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64)
    Throw("{} updates float32 or float64 parameters, got {}", name(), dtype);
  args.clip = options_.clip_gradient;
  args.settings = settings_;
  kernel()(dtype, args, arrays);
}

UpdateSquares Optimizer::Measure(DType dtype, UpdateArgs args, std::span<const void* const> grads, const void* weight,
                                 std::span<void* const> states, int64_t n) const {
  args.clip = options_.clip_gradient;
  args.settings = settings_;
  return measure()(dtype, args,
                   {.gradients = grads, .weight = weight, .states = states, .new_states = states, .elements = n});
}

Optimizer Sgd(const OptimizerOptions& options, double momentum) {
  return Optimizer(FindRule("sgd"), options, {momentum});
}

std::unique_ptr<Optimizer> MakeOptimizer(std::string_view text) {
  CallText call("optimizer", text);
  const UpdateRule rule = FindRule(call.name());
  std::vector<std::string> names = {kRate};
  for (const UpdateSetting& setting : rule.settings) names.push_back(setting.name);
  names.insert(names.end(), std::begin(kOthers), std::end(kOthers));
  call.Declare(std::move(names));
  OptimizerOptions options;
  options.learning_rate = call.Number("lr").value_or(rule.rate);
  options.weight_decay = call.Number("wd").value_or(options.weight_decay);
  options.clip_gradient = call.Number("clip_gradient").value_or(options.clip_gradient);
  options.rescale_gradient = call.Number("rescale");
  options.clip_norm = call.Number("clip_norm").value_or(options.clip_norm);
  std::vector<double> settings;
  for (const UpdateSetting& setting : rule.settings) {
    settings.push_back(call.Number(setting.name).value_or(setting.value));
  }
  return std::make_unique<Optimizer>(rule, options, std::move(settings));
}

void AddOptimizer(UpdateRule rule) {
  const std::string& name = rule.name;
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || !std::ranges::all_of(name, is_plain)) {
    Throw("AddOptimizer: a name has lower-case letters, digits and \"_\", got \"{}\"", name);
  }
  if (!rule.kernel) Throw("AddOptimizer: \"{}\" has no kernel", name);
  if (rule.states.size() > kMaxUpdateStates) {
    Throw("AddOptimizer: \"{}\" has {} states, at most {} are possible", name, rule.states.size(), kMaxUpdateStates);
  }
  if (rule.without_first && (rule.settings.empty() || rule.states.empty())) {
    Throw("AddOptimizer: \"{}\" has no setting that could be 0, or no state that it could do without", name);
  }
  for (const UpdateSetting& setting : rule.settings) {
    if (setting.name == kRate || std::ranges::find(kOthers, setting.name) != std::end(kOthers)) {
      Throw("AddOptimizer: \"{}\": every optimizer has the setting \"{}\"", name, setting.name);
    }
  }
  for (const std::string& state : rule.states) {  // checkpoints have "<parameter>:<state>", and averages beside them
    if (state.empty() || state == "average" || state.find(':') != std::string::npos) {
      Throw("AddOptimizer: \"{}\": a state cannot be called \"{}\"", name, state);
    }
  }
  Rules& rules = TheRules();
  const std::lock_guard lock(rules.mutex);
  if (std::ranges::find(rules.all, name, &UpdateRule::name) != rules.all.end()) {
    Throw("AddOptimizer: there is an optimizer \"{}\"", name);
  }
  rules.all.push_back(std::move(rule));
}

}  // namespace bindery
