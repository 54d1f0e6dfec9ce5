#include "examples/server/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace bindery::server {
namespace {

static_assert(std::endian::native == std::endian::little, "octets are little endian");

using Json = nlohmann::json;

// The shape that nested arrays begin with; whether all are of it, Fill checks.
Shape FirstShape(const std::string& name, const Json& value) {
  std::vector<int64_t> extents;
  const Json* inner = &value;
  while (inner->is_array()) {
    if (extents.size() == Shape::kMaxRank) {
      Throw<DataError>("input \"{}\": arrays nested more than {} deep", name, int{Shape::kMaxRank});
    }
    extents.push_back(static_cast<int64_t>(inner->size()));
    if (inner->empty()) break;
    inner = &inner->front();
  }
  return Shape(extents);
}

// The largest and smallest numbers that a dtype holds.
std::pair<double, double> RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return {std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
    case DType::kFloat16: return {-65504, 65504};
    case DType::kInt8: return {-128, 127};
    case DType::kUInt8: return {0, 255};
    case DType::kBool: return {0, 1};
    case DType::kInt16: return {-32768, 32767};
    case DType::kUInt16: return {0, 65535};
    case DType::kInt32: return {-2147483648.0, 2147483647.0};
    case DType::kUInt32: return {0, 4294967295.0};
    case DType::kInt64: return {-9007199254740992.0, 9007199254740992.0};  // what a double holds exactly
    case DType::kUInt64: return {0, 9007199254740992.0};
    default: return {std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()};
  }
}

void CheckNumber(const ValueSpec& input, double number, int64_t index) {
  const auto [low, high] = RangeOf(input.dtype);
  if (!std::isfinite(number)) Throw<DataError>("input \"{}\", element {}: not a finite number", input.name, index);
  if (number < low || number > high || (!IsFloat(input.dtype) && number != std::floor(number))) {
    Throw<DataError>("input \"{}\", element {}: {} is no {}", input.name, index, number, input.dtype);
  }
}

class Filler {
 public:
  Filler(const ServedModel& model, const ValueSpec& input, HostTensor* tensor)
      : model_(model), input_(input), tensor_(tensor) {}

  // `value` is the part of the tensor that begins at axis `axis`.
  void Fill(const Json& value, const Shape& shape, int axis) {
    if (axis == shape.rank()) {
      if (const ColumnCategories* const categories = model_.CategoriesOf(next_)) {
        if (!value.is_string() && !value.is_number()) {
          Throw<DataError>("input \"{}\", element {}: expected a category, got {}", input_.name, next_,
                           value.type_name());
        }
        tensor_->Set(next_++, categories->NumberOf(value.is_string() ? value.get<std::string>() : value.dump()));
        return;
      }
      if (value.is_null() && model_.missing) {
        tensor_->Set(next_++, std::numeric_limits<double>::quiet_NaN());
        return;
      }
      if (value.is_null()) {
        Throw<DataError>(
            "input \"{}\", element {}: expected a number, got null; the model's preprocessing says nothing "
            "(missing=) to take its place",
            input_.name, next_);
      }
      if (!value.is_number()) {
        Throw<DataError>("input \"{}\", element {}: expected a number, got {}", input_.name, next_, value.type_name());
      }
      const double number = value.get<double>();
      CheckNumber(input_, number, next_);
      if (tensor_->dtype() == DType::kFloat32) {
        static_cast<float*>(tensor_->raw())[next_++] = static_cast<float>(number);
      } else {
        tensor_->Set(next_++, number);
      }
      return;
    }
    if (!value.is_array()) {
      Throw<DataError>("input \"{}\", element {}: expected an array of {}, got {}", input_.name, next_, shape[axis],
                       value.type_name());
    }
    if (static_cast<int64_t>(value.size()) != shape[axis]) {
      Throw<DataError>("input \"{}\", at element {}: expected an array of {} along axis {}, got {}", input_.name, next_,
                       shape[axis], axis, value.size());
    }
    for (const Json& part : value) Fill(part, shape, axis + 1);
  }

 private:
  const ServedModel& model_;  // of one with `missing`, null is NaN
  const ValueSpec& input_;
  HostTensor* tensor_;
  int64_t next_ = 0;
};

void CheckSamples(const ValueSpec& input, int64_t samples, int64_t max_batch) {
  if (samples < 1) Throw<DataError>("input \"{}\": no samples", input.name);
  if (samples > max_batch) {
    Throw<DataError>("input \"{}\": {} samples, at most {} are taken at once", input.name, samples, max_batch);
  }
}

// Is it a sample's shape, or its end behind extents of 1, (4) of (1, 1, 4)?
bool IsOfSample(const Shape& shape, const Shape& sample) {
  if (shape.rank() > sample.rank() || (shape.rank() == 0 && sample.rank() > 0)) return false;
  const auto lacking = sample.dims().first(static_cast<size_t>(sample.rank() - shape.rank()));
  const bool are_ones = std::ranges::all_of(lacking, [](int64_t extent) { return extent == 1; });
  return are_ones && std::ranges::equal(shape, sample.dims().subspan(lacking.size()));
}

HostTensor TensorOf(const ServedModel& model, const ValueSpec& of, const Json& value, int64_t max_batch) {
  const ValueSpec input = model.Asked(of);
  const Shape shape = FirstShape(input.name, value);
  const bool one = IsOfSample(shape, input.sample);  // what is of both is one sample either way
  if (!one && (shape.rank() == 0 || !IsOfSample(shape.Erase(0), input.sample))) {
    Throw<DataError>("input \"{}\": expected samples of shape {}, one or an array of them, got {}", input.name,
                     input.sample, shape);
  }
  const int64_t samples = one ? 1 : shape[0];
  CheckSamples(input, samples, max_batch);
  HostTensor tensor(input.dtype, input.sample.Insert(0, samples));
  Filler(model, input, &tensor).Fill(value, shape, 0);
  return tensor;
}

// Appends the part of `tensor` that begins at `axis` and, counted in elements, at `next`.
void Print(const HostTensor& tensor, int axis, int64_t* next, std::string* text) {
  if (axis == tensor.shape().rank()) {
    const double number = tensor.At((*next)++);
    if (!std::isfinite(number)) {
      *text += "null";
    } else if (tensor.dtype() == DType::kFloat64) {
      fmt::format_to(std::back_inserter(*text), "{}", number);
    } else if (IsFloat(tensor.dtype())) {  // in as few digits as give the same float again
      fmt::format_to(std::back_inserter(*text), "{}", static_cast<float>(number));
    } else {
      fmt::format_to(std::back_inserter(*text), "{:.0f}", number);
    }
    return;
  }
  for (int64_t i = 0; i < tensor.shape()[axis]; ++i) {
    *text += i == 0 ? '[' : ',';
    Print(tensor, axis + 1, next, text);
  }
  *text += tensor.shape()[axis] == 0 ? "[]" : "]";
}

Json Described(const std::vector<ValueSpec>& values) {
  Json list = Json::array();
  for (const ValueSpec& value : values) {
    list.push_back({{"name", value.name}, {"dtype", ToString(value.dtype)}, {"sample_shape", value.sample.dims()}});
  }
  return list;
}

}  // namespace

HostTensorMap InputsOfJson(const ServedModel& model, std::string_view body, int64_t max_batch) {
  Json message;
  try {
    message = Json::parse(body);
  } catch (const Json::exception& e) {
    Throw<DataError>("the body is no JSON: {}", std::string_view(e.what()).substr(0, 300));  // it quotes a whole token
  }
  if (!message.is_object()) Throw<DataError>("expected an object, got {}", message.type_name());
  for (const auto& [name, value] : message.items()) {
    if (name != "data" && name != "inputs")
      Throw<DataError>("unknown key \"{}\": expected \"data\" or \"inputs\"", name);
  }
  if (message.size() != 1) throw DataError("expected one of \"data\" and \"inputs\"");
  HostTensorMap inputs;
  if (message.contains("data")) {
    if (model.inputs.size() != 1) {
      Throw<DataError>("the model has {} inputs: give them by name in \"inputs\"", model.inputs.size());
    }
    inputs.emplace(model.inputs[0].name, TensorOf(model, model.inputs[0], message["data"], max_batch));
    return inputs;
  }
  const Json& named = message["inputs"];
  if (!named.is_object()) Throw<DataError>("\"inputs\": expected an object, got {}", named.type_name());
  for (const auto& [name, value] : named.items()) {
    const bool known = std::ranges::any_of(model.inputs, [&](const ValueSpec& input) { return input.name == name; });
    if (!known) Throw<DataError>("\"{}\" is not an input of the model", name);
  }
  int64_t samples = 0;
  for (const ValueSpec& input : model.inputs) {
    if (!named.contains(input.name)) Throw<DataError>("input \"{}\" is missing", input.name);
    const HostTensor& tensor =
        inputs.emplace(input.name, TensorOf(model, input, named[input.name], max_batch)).first->second;
    if (samples > 0 && tensor.shape()[0] != samples) {
      Throw<DataError>("input \"{}\": {} samples, \"{}\" has {}", input.name, tensor.shape()[0], model.inputs[0].name,
                       samples);
    }
    samples = tensor.shape()[0];
  }
  return inputs;
}

HostTensorMap InputsOfOctets(const ServedModel& model, std::string_view body, int64_t max_batch) {
  if (model.inputs.size() != 1) {
    Throw<DataError>("the model has {} inputs: octets are for models with one, send JSON", model.inputs.size());
  }
  const ValueSpec input = model.Asked(model.inputs[0]);
  const size_t sample_bytes = static_cast<size_t>(input.sample.Elements()) * sizeof(float);
  if (body.size() % sample_bytes != 0) {
    Throw<DataError>("input \"{}\": expected a multiple of {} bytes (float32, samples of shape {}), got {}", input.name,
                     sample_bytes, input.sample, body.size());
  }
  const auto samples = static_cast<int64_t>(body.size() / sample_bytes);
  CheckSamples(input, samples, max_batch);
  HostTensor tensor(DType::kFloat32, input.sample.Insert(0, samples));
  std::memcpy(tensor.raw(), body.data(), body.size());
  const auto numbers = tensor.data<float>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!(model.missing && std::isnan(numbers[i]))) CheckNumber(input, numbers[i], static_cast<int64_t>(i));
  }
  HostTensorMap inputs;
  inputs.emplace(input.name, input.dtype == DType::kFloat32 ? std::move(tensor) : tensor.Cast(input.dtype));
  return inputs;
}

std::string JsonOf(const ServedModel& model, const std::vector<HostTensor>& outputs) {
  std::string text = "{\"outputs\":";
  for (size_t i = 0; i < outputs.size(); ++i) {
    text += (i == 0 ? "{" : ",") + Json(model.outputs[i].name).dump() + ":";
    int64_t next = 0;
    Print(outputs[i], 0, &next, &text);
  }
  return text + "}}";
}

std::string OctetsOf(const std::vector<HostTensor>& outputs) {
  std::string bytes;
  for (const HostTensor& output : outputs) {
    const HostTensor floats = output.Cast(DType::kFloat32);
    bytes.append(static_cast<const char*>(floats.raw()), static_cast<size_t>(floats.bytes()));
  }
  return bytes;
}

std::string JsonOfModel(const ServedModel& model, int64_t max_batch) {
  std::vector<ValueSpec> asked = model.inputs;
  for (ValueSpec& input : asked) input.sample = model.Asked(input).sample;
  Json inputs = Described(asked);
  for (const ColumnCategories& one : model.categories) {
    inputs[0]["categories"][std::to_string(one.place)] = one.values;
  }
  // Names of categories are as their file has them, perhaps no UTF-8.
  return Json{{"inputs", std::move(inputs)}, {"outputs", Described(model.outputs)}, {"max_batch", max_batch}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

std::string JsonOfError(const std::string& message) {
  // A message may quote what came, which may be no UTF-8.
  return Json{{"error", message}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

size_t LargestBody(const ServedModel& model, int64_t max_batch) {
  return static_cast<size_t>(model.SampleElements() * max_batch) * 32 + 4096;
}

}  // namespace bindery::server
