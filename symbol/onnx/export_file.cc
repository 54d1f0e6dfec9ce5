// Messages as files, with what they cannot hold beside them.
#include <array>
#include <limits>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/exporter.h"
#include "symbol/onnx/onnx.h"
#include "symbol/onnx/reader.h"

namespace bindery {
namespace {

constexpr int64_t kPage = 4096;

void AddExternal(onnx::TensorProto* tensor, const char* key, const std::string& value) {
  onnx::StringStringEntryProto* entry = tensor->add_external_data();
  entry->set_key(key);
  entry->set_value(value);
}

std::string Encode(const onnx::ModelProto& message) {
  if (message.ByteSizeLong() > size_t{std::numeric_limits<int>::max()} - 64) {
    Throw<ModelError>("the message would take {} bytes, and 2 GiB are too many", message.ByteSizeLong());
  }
  std::string bytes;
  Check(message.SerializeToString(&bytes), "a message of allowed size can be serialized");
  return bytes;
}

void CheckGraph(const Model& model) {
  if (model.symbol.empty()) Throw<ModelError>("a model without a graph cannot be exported");
}

// Extents that the graph leaves open stay open if they can; else they are those that training had.
onnx::ModelProto Export(const Model& model, bool data_outside) {
  try {
    return onnx::Exporter(model, data_outside, false).Run();
  } catch (const Error&) {
    if (TrainedInputs(model).empty()) throw;
  }
  return onnx::Exporter(model, data_outside, true).Run();
}

}  // namespace

std::string SerializeOnnx(const Model& model) {
  CheckGraph(model);
  return Encode(Export(model, false));
}

OnnxFile WriteOnnx(const Model& model, const std::string& name, int64_t message_bytes) {
  CheckGraph(model);
  int64_t bytes = 0;
  for (const HostTensorMap* values : {&model.params, &model.aux}) {
    for (const auto& [parameter, value] : *values) bytes = CheckedAdd(bytes, value.bytes(), "bytes of parameters");
  }
  onnx::ModelProto message = Export(model, bytes > message_bytes);
  std::vector<const HostTensor*> outside;
  std::vector<uint64_t> content;
  for (const onnx::TensorProto& tensor : message.graph().initializer()) {
    if (tensor.data_location() != onnx::kExternal) continue;
    outside.push_back(onnx::ValueOf(model, tensor.name()));
    content.push_back(Checksum(outside.back()->raw(), outside.back()->bytes()));
    content.push_back(static_cast<uint64_t>(outside.back()->bytes()));
  }
  if (outside.empty()) return {.message = Encode(message)};
  const uint64_t checksum = Checksum(content.data(), static_cast<int64_t>(content.size() * sizeof(uint64_t)));
  OnnxFile file;
  file.data_file = fmt::format("{}.{:016x}.data", name, checksum);
  int64_t end = 0;
  for (onnx::TensorProto& tensor : *message.mutable_graph()->mutable_initializer()) {
    if (tensor.data_location() != onnx::kExternal) continue;
    const int64_t length = onnx::ValueOf(model, tensor.name())->bytes();
    AddExternal(&tensor, "location", file.data_file);
    AddExternal(&tensor, "offset", std::to_string(end));
    AddExternal(&tensor, "length", std::to_string(length));
    end = RoundUp(CheckedAdd(end, length), kPage);
  }
  file.message = Encode(message);
  file.write_data = [outside = std::move(outside)](const ByteSink& sink) {
    static constexpr std::array<char, kPage> kZeros{};
    for (const HostTensor* value : outside) {
      sink(value->raw(), value->bytes());
      sink(kZeros.data(), RoundUp(value->bytes(), kPage) - value->bytes());
    }
  };
  return file;
}

std::set<std::string> OnnxDataFiles(std::string_view bytes) {
  const onnx::ModelProto message = onnx::ReadMessage(bytes, "", {});
  std::set<std::string> files;
  for (const onnx::TensorProto& tensor : message.graph().initializer()) {
    for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
      if (entry.key() == "location") files.insert(entry.value());
    }
  }
  return files;
}

}  // namespace bindery
