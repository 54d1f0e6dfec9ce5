#include "bindery/c_api/model.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "bindery/c_api/call.h"
#include "bindery/c_api/tensor.h"

namespace bindery::c_api {
namespace {

bindery_model* NewModel(Model loaded) {
  auto handle = std::make_unique<bindery_model>();
  const auto model = std::make_shared<const Model>(std::move(loaded));
  const auto keys = [](const HostTensorMap& values) {
    std::vector<std::string> names;
    for (const auto& [name, value] : values) names.push_back(name);
    return names;
  };
  handle->names[BINDERY_ARGUMENTS].names = model->symbol.ListArguments();
  handle->names[BINDERY_PARAMETERS].names = keys(model->params);
  handle->names[BINDERY_AUXILIARY_STATES].names = keys(model->aux);
  handle->names[BINDERY_OUTPUTS].names = model->symbol.ListOutputs();
  for (auto& [names, pointers] : handle->names) {
    for (const std::string& name : names) pointers.push_back(name.c_str());
  }
  handle->model = model;
  return handle.release();
}

// A tensor of the model's own memory.
bindery_tensor* ValueOf(const std::shared_ptr<const Model>& model, const std::string& name) {
  const auto param = model->params.find(name), aux = model->aux.find(name);
  if (param == model->params.end() && aux == model->aux.end()) {
    std::vector<std::string> names;
    for (const auto* values : {&model->params, &model->aux}) {
      for (const auto& [known, value] : *values) names.push_back(known);
    }
    Throw("the model has no value \"{}\"{}", name, NameHint(name, names));
  }
  const HostTensor& value = param != model->params.end() ? param->second : aux->second;
  const std::shared_ptr<Engine> engine = DefaultEngine();
  bindery_tensor* const handle = HandleOf(
      Tensor(engine, Cpu(0), value.dtype(), value.shape(), const_cast<void*>(value.raw()), model, engine->NewVar()));
  handle->is_read_only = true;
  return handle;
}

}  // namespace

std::vector<DataDesc> Describe(const bindery_input* inputs, size_t count) {
  if (count > 0) Given(inputs, "inputs");
  std::vector<DataDesc> descriptions;
  for (size_t i = 0; i < count; ++i) {
    const bindery_input& input = inputs[i];
    const bool is_unset = input.dtype.code == 0 && input.dtype.bits == 0 && input.dtype.lanes == 0;
    descriptions.push_back({.name = &Given(input.name, "an input's name"),
                            .shape = ShapeOf(input.rank, input.shape),
                            .dtype = is_unset ? DType::kFloat32 : DTypeOf(input.dtype)});
  }
  return descriptions;
}

Device DeviceOf(const char* text) { return text ? ParseDevice(text) : Cpu(0); }

}  // namespace bindery::c_api

using namespace bindery;         // NOLINT: these are its functions
using namespace bindery::c_api;  // NOLINT

bindery_status bindery_model_load(const char* path, bindery_model** model) {
  return Make(model, [&] { return NewModel(LoadModel(&Given(path, "path"))); });
}

bindery_status bindery_model_parse(const void* bytes, size_t size, int is_text, bindery_model** model) {
  return Make(model, [&] {
    const auto* const begin = static_cast<const char*>(bytes);
    if (size > 0) Given(begin, "bytes");
    return NewModel(ParseModel(std::string_view(begin, size), is_text != 0));
  });
}

bindery_status bindery_model_save(const bindery_model* model, const char* path) {
  return Try([&] { SaveModel(*Given(model, "model").model, &Given(path, "path")); });
}

bindery_status bindery_model_list(const bindery_model* model, int32_t which, const char* const** names, size_t* count) {
  return Try([&] {
    const auto& lists = Given(model, "model").names;
    const auto index = static_cast<size_t>(which);  // a negative one becomes too large
    if (index >= lists.size()) Throw("bindery_model_list: there is no list {}", which);
    Given(names, "names");
    Given(count, "count") = lists[index].names.size();
    *names = lists[index].pointers.data();
  });
}

bindery_status bindery_model_value(const bindery_model* model, const char* name, bindery_tensor** tensor) {
  return Make(tensor, [&] { return ValueOf(Given(model, "model").model, &Given(name, "name")); });
}

bindery_status bindery_model_metadata(const bindery_model* model, const char* name, const char** value) {
  return Make(value, [&] {
    const auto& metadata = Given(model, "model").model->metadata;
    const auto found = metadata.find(&Given(name, "name"));
    return found == metadata.end() ? nullptr : found->second.c_str();
  });
}

void bindery_model_free(bindery_model* model) { Free(model); }
