// ReplicatedModule as a file: a model, whose metadata say how it is called and where its replicas were:
//
//   module.inputs      "(_, (_, _))"; of leaf 0: module.input.0.name, .shape "64,784", .dtype, .layout
//   module.outputs     the same; of leaf 0: module.output.0 its name. Absent: the only one, or all
//   module.devices     "cpu:0,cpu:1"; module.workload "1,2"; module.output_device; module.placement.NAME
//   module.fixed.0     names of fixed parameters
//   module.dimension, .input_gradients, .initializer, .seed, .steps (training runs so far), .training
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/parse_number.h"
#include "engine/backend.h"
#include "train/module/bound.h"

namespace bindery {
namespace {

constexpr std::string_view kPrefix = "module.";
constexpr int kMaxDepth = 100;

using Metadata = std::map<std::string, std::string>;

template <class List>
std::string Joined(const List& list) {
  std::string text;
  for (const auto& item : list) text += fmt::format("{}{}", text.empty() ? "" : ",", item);
  return text;
}

// What a file says. Everything it lacks or that makes no sense is a ModelError, which names file and key.
class Reader {
  static std::string Full(const std::string& key) { return std::string(kPrefix) + key; }
  [[noreturn]] void Fail(const std::string& key, const char* why) const {
    Throw<ModelError>("{}: \"{}\" of the file {}: \"{}\"", path_, Full(key), why, Text(key));
  }
  template <class F>
  auto Parse(const std::string& key, const F& parse) const {
    try {
      return parse(Text(key));
    } catch (const Error& e) {
      Throw<ModelError>("{}: \"{}\" of the file: {}", path_, Full(key), e.message());
    }
  }

 public:
  Reader(const Metadata& metadata, const std::string& path) : metadata_(metadata), path_(path) {}

  bool Has(const std::string& key) const { return metadata_.contains(Full(key)); }
  const std::string& Text(const std::string& key) const {
    const auto found = metadata_.find(Full(key));
    if (found == metadata_.end()) Throw<ModelError>("{}: the file has no \"{}\": it is no module's", path_, Full(key));
    return found->second;
  }
  template <class T>
  T Number(const std::string& key) const {
    const std::optional<T> number = ParseNumber<T>(Text(key));
    if (!number) Fail(key, "is no number");
    return *number;
  }
  template <class T>
  std::vector<T> Numbers(const std::string& key) const {
    std::vector<T> numbers;
    for (std::string_view text = Text(key); !text.empty();) {
      const size_t comma = text.find(',');
      const std::optional<T> number = ParseNumber<T>(text.substr(0, comma));
      if (!number) Fail(key, "is no list of numbers");
      numbers.push_back(*number);
      if (comma == std::string_view::npos) break;
      text.remove_prefix(comma + 1);
    }
    return numbers;
  }
  std::vector<Device> Devices(const std::string& key) const {
    if (Text(key).empty()) return {};
    return Parse(key, [](const std::string& text) { return ParseDevices(text); });
  }
  DType Type(const std::string& key) const {
    return Parse(key, [](const std::string& text) { return ParseDType(text); });
  }
  Shape Extents(const std::string& key) const {
    const std::vector<int64_t> extents = Numbers<int64_t>(key);
    return Parse(key, [&](const std::string&) { return Shape(std::span<const int64_t>(extents)); });
  }
  // leaf(i) makes leaf number i.
  template <class T, class F>
  Nest<T> Form(const std::string& key, const F& leaf) const {
    std::string_view rest = Text(key);
    int leaves = 0;
    Nest<T> nest = FormOf<T>(key, leaf, &rest, &leaves, 0);
    if (!rest.empty()) Fail(key, "is no form");
    return nest;
  }

 private:
  template <class T, class F>
  Nest<T> FormOf(const std::string& key, const F& leaf, std::string_view* rest, int* leaves, int depth) const {
    const auto take = [&](std::string_view text) {
      if (!rest->starts_with(text)) return false;
      rest->remove_prefix(text.size());
      return true;
    };
    if (take("_")) return leaf((*leaves)++);
    if (depth == kMaxDepth || !take("(")) Fail(key, "is no form");
    std::vector<Nest<T>> items;
    while (!take(")")) {
      if (!items.empty() && !take(", ")) Fail(key, "is no form");
      items.push_back(FormOf<T>(key, leaf, rest, leaves, depth + 1));
    }
    return Nest<T>::FromItems(std::move(items));
  }

  const Metadata& metadata_;
  const std::string& path_;
};

bool IsThere(Device device) {
  try {
    Backend::Of(device);
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

Device InPlaceOf(Device missing) {
  const Device first{missing.kind, 0};
  return IsThere(first) ? first : Cpu();
}

// The devices of a file, as this machine has them.
void FitToMachine(const std::string& path, MissingDevices missing, ModuleOptions* options) {
  std::vector<Device> absent;
  for (const Device device : options->devices) {
    if (!IsThere(device)) absent.push_back(device);
  }
  if (options->output_device && !IsThere(*options->output_device)) absent.push_back(*options->output_device);
  for (const auto& [name, list] : options->placements) {
    if (list.size() != 1 && list.size() != options->devices.size()) {
      Throw<ModelError>("{}: placement \"{}\" of the file has {} devices for {} replicas", path, name, list.size(),
                        options->devices.size());
    }
    std::ranges::remove_copy_if(list, std::back_inserter(absent), IsThere);
  }
  if (!options->workload.empty() && options->workload.size() != options->devices.size()) {
    Throw<ModelError>("{}: the file has {} numbers of workload for {} replicas", path, options->workload.size(),
                      options->devices.size());
  }
  if (absent.empty()) return;
  if (missing == MissingDevices::kError) {
    Throw<DeviceError>(
        "{}: the module was saved on {}, and this machine has no {}: say which devices are to be used, "
        "or that missing ones are left out",
        path, Joined(options->devices), Joined(absent));
  }
  ModuleOptions fitting = *options;
  fitting.devices.clear();
  fitting.workload.clear();
  for (auto& [name, list] : fitting.placements) {
    if (list.size() > 1) list.clear();  // one for each replica
  }
  for (size_t i = 0; i < options->devices.size(); ++i) {
    if (!IsThere(options->devices[i])) continue;
    fitting.devices.push_back(options->devices[i]);
    if (!options->workload.empty()) fitting.workload.push_back(options->workload[i]);
    for (const auto& [name, list] : options->placements) {
      if (list.size() > 1) fitting.placements[name].push_back(list[i]);
    }
  }
  if (fitting.devices.empty() && !options->devices.empty()) {
    fitting.devices = {InPlaceOf(options->devices[0])};
    fitting.workload.clear();
    for (const auto& [name, list] : options->placements) fitting.placements[name] = {list[0]};
  }
  if (fitting.output_device && !IsThere(*fitting.output_device)) {
    fitting.output_device = InPlaceOf(*fitting.output_device);
  }
  for (auto& [name, list] : fitting.placements) {
    for (Device& device : list) {
      if (!IsThere(device)) device = InPlaceOf(device);
    }
  }
  LogLine(LogLevel::kWarning, fmt::format("{}: this machine has no {}: the module is on {}", path, Joined(absent),
                                          Joined(fitting.devices)));
  *options = std::move(fitting);
}

}  // namespace

Model ReplicatedModule::ToModel() {
  Contents contents = TakeContents();
  Model model{.symbol = model_.symbol,
              .params = std::move(contents.params),
              .aux = std::move(contents.aux),
              .metadata = model_.metadata};
  const auto put = [&](const std::string& key, std::string value) {
    model.metadata[std::string(kPrefix) + key] = std::move(value);
  };
  put("inputs", options_.inputs.Form());
  int leaf = 0;
  options_.inputs.ForEach([&](const DataDesc& desc) {
    const std::string key = fmt::format("input.{}.", leaf++);
    put(key + "name", desc.name);
    put(key + "shape", Joined(desc.shape.dims()));
    put(key + "dtype", ToString(desc.dtype));
    put(key + "layout", desc.layout);
  });
  if (options_.outputs) {
    put("outputs", options_.outputs->Form());
    leaf = 0;
    options_.outputs->ForEach([&](const std::string& name) { put(fmt::format("output.{}", leaf++), name); });
  }
  put("devices", Joined(options_.devices));
  put("workload", Joined(options_.workload));
  if (options_.output_device) put("output_device", ToString(*options_.output_device));
  for (const auto& [name, devices] : options_.placements) put("placement." + name, Joined(devices));
  for (size_t i = 0; i < options_.fixed_params.size(); ++i) put(fmt::format("fixed.{}", i), options_.fixed_params[i]);
  put("dimension", fmt::format("{}", options_.dimension));
  put("input_gradients", options_.input_gradients ? "1" : "0");
  put("initializer", options_.initializer);
  put("seed", fmt::format("{}", options_.seed));
  put("steps", fmt::format("{}", contents.steps));
  put("training", training_ ? "1" : "0");
  return model;
}

ReplicatedModule ReplicatedModule::Load(const std::string& path, const ModuleLoadOptions& load) {
  Model model = LoadModel(path);
  const Metadata metadata = model.metadata;
  std::erase_if(model.metadata, [](const auto& item) { return item.first.starts_with(kPrefix); });
  const Reader reader(metadata, path);
  ModuleOptions options;
  options.inputs = reader.Form<DataDesc>("inputs", [&](int leaf) {
    const std::string key = fmt::format("input.{}.", leaf);
    return DataDesc{.name = reader.Text(key + "name"),
                    .shape = reader.Extents(key + "shape"),
                    .dtype = reader.Type(key + "dtype"),
                    .layout = reader.Text(key + "layout")};
  });
  if (reader.Has("outputs")) {
    options.outputs =
        reader.Form<std::string>("outputs", [&](int leaf) { return reader.Text(fmt::format("output.{}", leaf)); });
  }
  options.devices = reader.Devices("devices");
  options.workload = reader.Numbers<double>("workload");
  if (reader.Has("output_device")) {
    const std::vector<Device> device = reader.Devices("output_device");
    if (!device.empty()) options.output_device = device[0];
  }
  const std::string placement = std::string(kPrefix) + "placement.";
  for (const auto& [key, value] : metadata) {
    if (!key.starts_with(placement)) continue;
    options.placements[key.substr(placement.size())] = reader.Devices(key.substr(kPrefix.size()));
  }
  for (int i = 0; reader.Has(fmt::format("fixed.{}", i)); ++i) {
    options.fixed_params.push_back(reader.Text(fmt::format("fixed.{}", i)));
  }
  options.dimension = reader.Number<int>("dimension");
  options.input_gradients = reader.Number<int>("input_gradients") != 0;
  options.initializer = reader.Text("initializer");
  options.seed = reader.Number<uint64_t>("seed");
  options.exchange = load.exchange;
  options.kvstore = load.kvstore;
  options.store = load.store;
  options.collectives = load.collectives;
  options.init = load.init;
  options.engine = load.engine;
  options.threads_per_device = load.threads_per_device;
  if (!load.devices.empty()) {
    if (options.devices.size() != load.devices.size()) options.workload.clear();
    options.devices = load.devices;
    if (options.output_device && !IsThere(*options.output_device)) options.output_device = load.devices[0];
  }
  FitToMachine(path, load.missing, &options);
  Contents contents{.params = std::move(model.params), .aux = std::move(model.aux)};
  contents.steps = reader.Number<uint64_t>("steps");
  const bool training = reader.Number<int>("training") != 0;
  ReplicatedModule module({.symbol = model.symbol, .metadata = model.metadata}, std::move(options),
                          std::move(contents));
  module.training_ = training;
  return module;
}

}  // namespace bindery
