#include "train/initializer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "base/split_text.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/model.h"
#include "train/call_text.h"

namespace bindery {
namespace {

constexpr const char* kForms =
    "zero, one, constant(value), uniform(s), uniform(low, high), normal(sigma), xavier(uniform|gaussian, avg|in|out, "
    "magnitude), msra(avg|in|out, slope), he, orthogonal(scale), bilinear, lstm_bias(forget)";

enum class Fan { kAverage, kIn, kOut };

float Scale(const Shape& shape, Fan fan, double magnitude) {
  if (shape.rank() < 2) {
    Throw<ShapeError>("an initializer by fan needs a shape (out, in, kernel...), got {}", shape);
  }
  const double area = static_cast<double>(shape.CountFrom(2));
  const double in = static_cast<double>(shape[1]) * area, out = static_cast<double>(shape[0]) * area;
  const double fans = fan == Fan::kIn ? in : fan == Fan::kOut ? out : (in + out) / 2;
  return fans > 0 ? static_cast<float>(std::sqrt(magnitude / fans)) : 0;  // no fan: no element either
}

void FillUniform(float low, float high, PhiloxStream* random, std::span<float> values) {
  for (float& value : values) value = random->Uniform(low, high);
}

void FillNormal(float sigma, PhiloxStream* random, std::span<float> values) {
  for (float& value : values) value = sigma * random->Normal();
}

// Each of `count` rows of normal numbers less what it has of those before it; twice, for what rounding has left.
std::vector<double> OrthogonalRows(int64_t count, int64_t elements, PhiloxStream* random) {
  const auto n = static_cast<size_t>(elements);
  std::vector<double> rows(static_cast<size_t>(count) * n);
  for (double& value : rows) value = random->Normal();
  const auto dot = [&](size_t i, size_t j) {
    return std::inner_product(&rows[i * n], &rows[i * n] + n, &rows[j * n], 0.0);
  };
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < i; ++j) {
        const double part = dot(i, j);
        for (size_t k = 0; k < n; ++k) rows[i * n + k] -= part * rows[j * n + k];
      }
      const double length = std::sqrt(dot(i, i));
      for (size_t k = 0; k < n && length > 0; ++k) rows[i * n + k] /= length;
    }
  }
  return rows;
}

void FillOrthogonal(const Shape& shape, double scale, PhiloxStream* random, std::span<float> values) {
  if (shape.rank() < 2) Throw<ShapeError>("an orthogonal initializer needs a shape (out, in...), got {}", shape);
  const int64_t out = shape[0], in = shape.CountFrom(1);
  const bool by_columns = in < out;
  const std::vector<double> rows = OrthogonalRows(std::min(in, out), std::max(in, out), random);
  for (int64_t i = 0; i < out * in; ++i) {
    const int64_t from = by_columns ? i % in * out + i / in : i;
    values[static_cast<size_t>(i)] = static_cast<float>(scale * rows[static_cast<size_t>(from)]);
  }
}

void FillBilinear(const Shape& shape, std::span<float> values) {
  if (shape.rank() < 2) Throw<ShapeError>("a bilinear initializer needs a shape (..., height, width), got {}", shape);
  const auto weight = [](int64_t place, int64_t extent) {
    const double factor = static_cast<double>((extent + 1) / 2);
    const double center = (2 * factor - 1 - static_cast<double>((extent + 1) / 2 % 2)) / (2 * factor);
    return 1 - std::abs(static_cast<double>(place) / factor - center);
  };
  const int64_t height = shape[shape.rank() - 2], width = shape[shape.rank() - 1];
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t place = static_cast<int64_t>(i);
    values[i] = static_cast<float>(weight(place % width, width) * weight(place / width % height, height));
  }
}

// `pattern` with * and ?. The last star takes as little as will do.
bool Fits(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, after = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

// Makes the function that fills a tensor.
class InitializerParser {
 public:
  explicit InitializerParser(std::string_view text) : call_("initializer", text) {}

  Initializer::FillFn Parse() {
    const std::string& name = call_.name();
    if (name == "zero" || name == "zeros") return Constant(0);
    if (name == "one" || name == "ones") return Constant(1);
    if (name == "constant") return ParseConstant();
    if (name == "uniform") return ParseUniform();
    if (name == "normal") return ParseNormal();
    if (name == "xavier") return ParseXavier();
    if (name == "msra") return ParseMsra();
    if (name == "he") {
      call_.Declare({});
      return ByFan(true, Fan::kIn, 2);
    }
    if (name == "orthogonal") return ParseOrthogonal();
    if (name == "bilinear") {
      call_.Declare({});
      return [](const Shape& shape, PhiloxStream*, std::span<float> values) { FillBilinear(shape, values); };
    }
    if (name == "lstm_bias") return ParseLstmBias();
    const std::vector<std::string> names = {"zero", "one", "constant",   "uniform",  "normal",   "xavier",
                                            "msra", "he",  "orthogonal", "bilinear", "lstm_bias"};
    const std::string nearest = NearestName(name, names);
    call_.Fail(nearest.empty() ? fmt::format("unknown name; the forms are {}", kForms)
                               : fmt::format("unknown name; did you mean \"{}\"?", nearest));
  }

 private:
  Initializer::FillFn Constant(double constant) {
    call_.Declare({});
    return ConstantFill(constant);
  }

  static Initializer::FillFn ConstantFill(double constant) {
    return [constant = static_cast<float>(constant)](const Shape&, PhiloxStream*, std::span<float> values) {
      std::fill(values.begin(), values.end(), constant);
    };
  }

  Initializer::FillFn ParseConstant() {
    call_.Declare({"value"});
    const auto value = call_.Number("value");
    if (!value) call_.Fail("it needs a value, constant(0.25)");
    return ConstantFill(*value);
  }

  Initializer::FillFn ParseUniform() {
    call_.Declare({"low", "high"});
    const double first = call_.Number("low").value_or(0.07);
    const std::optional<double> second = call_.Number("high");
    const float low = static_cast<float>(second ? first : -first), high = static_cast<float>(second.value_or(first));
    if (low > high) call_.Fail("its range is empty");
    return [low, high](const Shape&, PhiloxStream* random, std::span<float> values) {
      FillUniform(low, high, random, values);
    };
  }

  Initializer::FillFn ParseNormal() {
    call_.Declare({"sigma"});
    const auto sigma = static_cast<float>(NotNegative("sigma", 0.01));
    return [sigma](const Shape&, PhiloxStream* random, std::span<float> values) { FillNormal(sigma, random, values); };
  }

  Initializer::FillFn ParseXavier() {
    call_.Declare({"distribution", "fan", "magnitude"});
    const bool gaussian = Choice("distribution", {"uniform", "gaussian"}) == 1;
    return ByFan(gaussian, TakeFan(), NotNegative("magnitude", 3));
  }

  Initializer::FillFn ParseMsra() {
    call_.Declare({"fan", "slope"});
    const double slope = call_.Number("slope").value_or(0.25);
    return ByFan(true, TakeFan(), 2 / (1 + slope * slope));
  }

  Initializer::FillFn ParseOrthogonal() {
    call_.Declare({"scale"});
    const double scale = NotNegative("scale", 1.414);
    return [scale](const Shape& shape, PhiloxStream* random, std::span<float> values) {
      FillOrthogonal(shape, scale, random, values);
    };
  }

  Initializer::FillFn ParseLstmBias() {
    call_.Declare({"forget"});
    const double forget = call_.Number("forget").value_or(1);
    return [forget = static_cast<float>(forget)](const Shape& shape, PhiloxStream*, std::span<float> values) {
      const auto size = static_cast<int64_t>(values.size());
      if (shape.rank() != 1 || size % 4 != 0) Throw<ShapeError>("a bias of four gates is needed, got {}", shape);
      std::ranges::fill(values, 0.0f);
      std::ranges::fill(values.subspan(values.size() / 4, values.size() / 4), forget);
    };
  }

  static Initializer::FillFn ByFan(bool gaussian, Fan fan, double magnitude) {
    return [gaussian, fan, magnitude](const Shape& shape, PhiloxStream* random, std::span<float> values) {
      const float scale = Scale(shape, fan, magnitude);
      if (gaussian) {
        FillNormal(scale, random, values);
      } else {
        FillUniform(-scale, scale, random, values);
      }
    };
  }

  // The number of the word among the choices; the first if none was given.
  int Choice(const char* setting, std::initializer_list<const char*> choices) const {
    const std::optional<std::string> word = call_.Word(setting);
    if (!word) return 0;
    const auto found = std::find(choices.begin(), choices.end(), *word);
    if (found == choices.end()) {
      call_.Fail(fmt::format("\"{}\" must be one of {}, got \"{}\"", setting, fmt::join(choices, ", "), *word));
    }
    return static_cast<int>(found - choices.begin());
  }

  Fan TakeFan() const { return static_cast<Fan>(Choice("fan", {"avg", "in", "out"})); }

  double NotNegative(const char* setting, double otherwise) const {
    const double value = call_.Number(setting).value_or(otherwise);
    if (value < 0) call_.Fail(fmt::format("\"{}\" must be at least 0, got {}", setting, value));
    return value;
  }

  CallText call_;
};

Initializer::Initializer(std::string_view text) : text_(text) {
  const std::vector<std::string> parts = SplitCalls(text);
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t colon = parts[i].find(':');
    const std::string_view pattern =
        colon == std::string::npos ? "" : Trim(std::string_view(parts[i]).substr(0, colon));
    const std::string own(Trim(std::string_view(parts[i]).substr(colon == std::string::npos ? 0 : colon + 1)));
    if (pattern.empty() && (colon != std::string::npos || i + 1 < parts.size())) {
      Throw("initializer \"{}\": \"{}\" needs a pattern, \"*_bias: {}\": only the last may be without", text, parts[i],
            own);
    }
    rules_.push_back({std::string(pattern), own, InitializerParser(own).Parse()});
  }
}

const Initializer::Rule* Initializer::RuleFor(const std::string& name) const {
  for (const Rule& rule : rules_) {
    if (rule.pattern.empty() || Fits(rule.pattern, name)) return &rule;
  }
  return nullptr;
}

bool Initializer::HasPatternFor(const std::string& name) const {
  const Rule* rule = RuleFor(name);
  return rule && !rule->pattern.empty();
}

HostTensor Initializer::Make(const std::string& name, const Shape& shape, DType dtype, uint64_t seed) const {
  const Rule* rule = RuleFor(name);
  if (!rule) Throw<ModelError>("parameter \"{}\", initializer \"{}\": no pattern fits the name", name, text_);
  HostTensor values(DType::kFloat32, shape);
  PhiloxStream random(seed, "init:" + name);
  try {
    rule->fill(shape, &random, values.data<float>());
  } catch (const ShapeError& error) {
    Throw<ShapeError>("parameter \"{}\", initializer \"{}\": {}", name, rule->text, error.message());
  }
  return dtype == DType::kFloat32 ? std::move(values) : values.Cast(dtype);
}

namespace {

Initializer OwnInitializer(const std::string& parameter, std::string_view text) {
  try {
    return Initializer(text);
  } catch (const Error& e) {
    Throw<ModelError>("parameter \"{}\", annotation \"init\": {}", parameter, e.message());
  }
}

}  // namespace

HostTensor InitialValue(const std::string& name, const Shape& shape, DType dtype, const Initializer& weights,
                        uint64_t seed, std::string_view own) {
  if (!own.empty()) return OwnInitializer(name, own).Make(name, shape, dtype, seed);
  if (name.ends_with("weight") || weights.HasPatternFor(name)) return weights.Make(name, shape, dtype, seed);
  for (const char* ending : {"bias", "beta", "min", "running_mean", "moving_mean", "moving_inv_var"}) {
    if (name.ends_with(ending)) return HostTensor(dtype, shape);
  }
  for (const char* ending : {"gamma", "max", "running_var", "moving_var"}) {
    if (name.ends_with(ending)) return HostTensor::Full(dtype, shape, 1);
  }
  Throw<ModelError>(
      "parameter \"{0}\": no initial value follows from its name, which ends in none of weight, bias, gamma, beta, "
      "running_mean, running_var; give the variable its own initializer, Variable(\"{0}\", {{.init = \"zero\"}}), or "
      "its "
      "value",
      name);
}

HostTensorMap InitialValues(const Symbol& symbol, const std::map<std::string, ValueType>& variables,
                            const Initializer& weights, uint64_t seed) {
  std::map<std::string, std::string> own;
  for (const auto& [name, annotations] : symbol.AllAnnotations()) {
    const auto init = annotations.find("init");
    if (init != annotations.end()) own.emplace(name, init->second);
  }
  HostTensorMap values;
  for (const auto& [name, type] : variables) {
    const auto found = own.find(name);
    values.emplace(name, InitialValue(name, type.shape, type.dtype, weights, seed,
                                      found == own.end() ? std::string_view() : std::string_view(found->second)));
  }
  return values;
}

Model InitialModel(const Symbol& symbol, const ShapeMap& inputs, const Initializer& weights, uint64_t seed) {
  const InferredShapes shapes = InferShapes(symbol, inputs);
  const InferredDTypes dtypes = InferDTypes(symbol, {});
  const auto values = [&](const std::vector<std::string>& names, const std::vector<std::optional<Shape>>& of_names,
                          const std::vector<DType>& types) {
    std::map<std::string, ValueType> variables;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!inputs.contains(names[i])) variables[names[i]] = {.dtype = types[i], .shape = *of_names[i]};
    }
    return InitialValues(symbol, variables, weights, seed);
  };
  return {.symbol = symbol,
          .params = values(symbol.ListArguments(), shapes.arguments, dtypes.arguments),
          .aux = values(symbol.ListAuxiliaryStates(), shapes.auxiliary, dtypes.auxiliary)};
}

void SetInitialParams(ExecutorGroup* group, const Model& values, const Initializer& weights, uint64_t seed) {
  std::map<std::string, ValueType> missing;
  std::set<std::string> auxiliary;
  for (DataParallelExecutorGroup* stage : group->stages()) {
    for (const StoredParameter& p : stage->store().parameters()) {
      const HostTensorMap& given = p.auxiliary ? values.aux : values.params;
      if (!given.contains(p.name)) missing[p.name] = {.dtype = p.dtype, .shape = p.shape};
      if (p.auxiliary) auxiliary.insert(p.name);
    }
  }
  HostTensorMap params = values.params, aux = values.aux;
  try {
    for (auto& [name, value] : InitialValues(group->symbol(), missing, weights, seed)) {
      (auxiliary.contains(name) ? aux : params)[name] = std::move(value);
    }
  } catch (const ModelError& e) {  // an array may have been forgotten
    std::string given;
    for (const auto* list : {&group->options().data, &group->options().labels}) {
      for (const DataDesc& desc : *list) given += fmt::format("{}\"{}\"", given.empty() ? "" : ", ", desc.name);
    }
    Throw<ModelError>("{}; only {} are data and labels", e.message(), given);
  }
  group->SetParams(params, aux);
}

}  // namespace bindery
