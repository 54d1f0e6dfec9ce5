#include "train/initializer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/names.h"

namespace bindery {
namespace {

constexpr std::string_view kForms =
    "zero, one, constant(v), uniform(s), uniform(low, high), normal(sigma), xavier(uniform|gaussian, avg|in|out, "
    "magnitude), msra(avg|in|out, slope), he";

std::string Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  std::string trimmed(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
  std::transform(trimmed.begin(), trimmed.end(), trimmed.begin(), [](unsigned char c) { return std::tolower(c); });
  return trimmed;
}

enum class Fan { kAverage, kIn, kOut };

float Scale(const Shape& shape, Fan fan, double magnitude) {
  if (shape.rank() < 2) {
    Throw<ShapeError>("an initializer by fan needs a shape (out, in, kernel...), got {}", shape);
  }
  const double area = static_cast<double>(shape.CountFrom(2));
  const double in = static_cast<double>(shape[1]) * area, out = static_cast<double>(shape[0]) * area;
  const double fans = fan == Fan::kIn ? in : fan == Fan::kOut ? out : (in + out) / 2;
  return fans > 0 ? static_cast<float>(std::sqrt(magnitude / fans)) : 0;   // no fan: no element either
}

void FillUniform(float low, float high, PhiloxStream* random, std::span<float> values) {
  for (float& value : values) value = random->Uniform(low, high);
}

void FillNormal(float sigma, PhiloxStream* random, std::span<float> values) {
  for (float& value : values) value = sigma * random->Normal();
}

}  // namespace

// "name(argument, argument)"; arguments are taken from the front, each if it fits, so that leading ones may be left out.
class InitializerParser {
 public:
  explicit InitializerParser(std::string_view text) : text_(text) {
    const size_t open = text.find('(');
    name_ = Trim(text.substr(0, open));
    if (open == std::string_view::npos) return;
    const std::string arguments = Trim(text.substr(open + 1));
    if (arguments.empty() || arguments.back() != ')') Fail("it does not end with \")\"");
    std::string_view rest = std::string_view(arguments).substr(0, arguments.size() - 1);
    if (Trim(rest).empty()) return;
    for (size_t comma = 0; comma != std::string_view::npos;) {
      comma = rest.find(',');
      arguments_.push_back(Trim(rest.substr(0, comma)));
      if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
    }
  }

  Initializer::FillFn Parse() {
    Initializer::FillFn fill = ParseKind();
    if (next_ < arguments_.size()) Fail(fmt::format("argument {} (\"{}\") does not fit", next_ + 1, arguments_[next_]));
    return fill;
  }

 private:
  Initializer::FillFn ParseKind() {
    if (name_ == "zero" || name_ == "zeros") return Constant(0);
    if (name_ == "one" || name_ == "ones") return Constant(1);
    if (name_ == "constant") {
      const auto value = Number();
      if (!value) Fail("it needs a number");
      return Constant(*value);
    }
    if (name_ == "uniform") {
      const double first = Number().value_or(0.07);
      const std::optional<double> second = Number();
      const double low = second ? first : -first, high = second ? *second : first;
      if (low > high) Fail("its range is empty");
      return [low = static_cast<float>(low), high = static_cast<float>(high)](const Shape&, PhiloxStream* random,
                                                                            std::span<float> values) {
        FillUniform(low, high, random, values);
      };
    }
    if (name_ == "normal") {
      const double sigma = Positive(Number().value_or(0.01));
      return [sigma = static_cast<float>(sigma)](const Shape&, PhiloxStream* random, std::span<float> values) {
        FillNormal(sigma, random, values);
      };
    }
    if (name_ == "xavier") {
      const bool gaussian = Word({"uniform", "gaussian"}).value_or(0) == 1;
      const Fan fan = TakeFan();
      return ByFan(gaussian, fan, Positive(Number().value_or(3)));
    }
    if (name_ == "msra") {
      const Fan fan = TakeFan();
      const double slope = Number().value_or(0.25);
      return ByFan(true, fan, 2 / (1 + slope * slope));
    }
    if (name_ == "he") return ByFan(true, Fan::kIn, 2);
    Fail("unknown name");
  }

  static Initializer::FillFn Constant(double constant) {
    return [constant = static_cast<float>(constant)](const Shape&, PhiloxStream*, std::span<float> values) {
      std::fill(values.begin(), values.end(), constant);
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

  std::optional<double> Number() {
    if (next_ == arguments_.size()) return std::nullopt;
    const std::string& text = arguments_[next_];
    double value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
    ++next_;
    return value;
  }

  std::optional<int> Word(std::initializer_list<const char*> choices) {
    if (next_ == arguments_.size()) return std::nullopt;
    const auto found = std::find(choices.begin(), choices.end(), arguments_[next_]);
    if (found == choices.end()) return std::nullopt;
    ++next_;
    return static_cast<int>(found - choices.begin());
  }

  Fan TakeFan() { return static_cast<Fan>(Word({"avg", "in", "out"}).value_or(0)); }

  double Positive(double value) const {
    if (value < 0) Fail("it takes no negative number");
    return value;
  }

  [[noreturn]] void Fail(const std::string& why) const {
    Throw("initializer \"{}\": {}; the forms are {}", text_, why, kForms);
  }

  const std::string text_;
  std::string name_;
  std::vector<std::string> arguments_;
  size_t next_ = 0;
};

Initializer::Initializer(std::string_view text) : text_(text), fill_(InitializerParser(text).Parse()) {}

HostTensor Initializer::Make(const std::string& name, const Shape& shape, DType dtype, uint64_t seed) const {
  HostTensor values(DType::kFloat32, shape);
  PhiloxStream random(seed, "init:" + name);
  try {
    fill_(shape, &random, values.data<float>());
  } catch (const ShapeError& error) {
    Throw<ShapeError>("parameter \"{}\", initializer \"{}\": {}", name, text_, error.message());
  }
  return dtype == DType::kFloat32 ? std::move(values) : values.Cast(dtype);
}

HostTensor InitialValue(const std::string& name, const Shape& shape, DType dtype, const Initializer& weights,
                        uint64_t seed, std::string_view own) {
  if (!own.empty()) return Initializer(own).Make(name, shape, dtype, seed);
  if (name.ends_with("weight")) return weights.Make(name, shape, dtype, seed);
  for (const char* ending : {"bias", "beta", "running_mean", "moving_mean"}) {
    if (name.ends_with(ending)) return HostTensor(dtype, shape);
  }
  for (const char* ending : {"gamma", "running_var", "moving_var"}) {
    if (name.ends_with(ending)) return HostTensor::Full(dtype, shape, 1);
  }
  Throw("parameter \"{0}\": no initial value follows from its name, which ends in none of weight, bias, gamma, beta, "
        "running_mean, running_var; give the variable its own initializer, Variable(\"{0}\", {{.init = \"zero\"}}), or its "
        "value", name);
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

}  // namespace bindery
