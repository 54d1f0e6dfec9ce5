#include "symbol/model.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <set>

#include "base/files.h"
#include "symbol/model/graph.h"
#include "symbol/model/source.h"
#include "symbol/model/tensor.h"
#include "symbol/model/text.h"
#include "symbol/model/wire.h"
#include "symbol/mxnet/mxnet.h"
#include "symbol/onnx/onnx.h"

namespace bindery {
namespace {

constexpr char kProducer[] = "bindery 0.1";
// Tensors up to this size are in the message in any case; text stays readable.
constexpr int64_t kInlineBytes = 1024, kInlineBytesOfText = 64;

using TensorMessages = google::protobuf::RepeatedPtrField<proto::Tensor>;

bool IsTextName(const std::string& path) { return path.ends_with(".prototxt"); }
bool IsOnnxName(const std::string& path) { return path.ends_with(".onnx"); }

// Where the name leads if it is a link: data files belong beside the file itself.
std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real == nullptr ? path : real.get();
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The tensors stay the caller's.
void WriteTensors(const HostTensorMap& tensors, TensorWriter* writer, TensorMessages* messages) {
  for (const auto& [name, tensor] : tensors) {
    if (name.empty()) Throw<ModelError>("a parameter has no name");
    proto::Tensor* message = messages->Add();
    message->set_name(name);
    writer->Write(TensorPtr(std::shared_ptr<void>(), &tensor), message);
  }
}

// Refuses what could not be read again.
void WriteModel(const Model& model, bool text, TensorWriter* writer, proto::Model* message) {
  message->set_version(kModelVersion);
  message->set_producer(kProducer);
  if (!model.symbol.empty()) {
    proto::Graph* graph = message->mutable_graph();
    WriteGraph(model.symbol, writer, graph);
    size_t next = 0;
    ReadGraph(*graph, {}, ModelSource("cannot save the model", text),
              [&](const proto::Tensor&) { return writer->tensors()[next++]; });
  }
  WriteTensors(model.params, writer, message->mutable_param());
  WriteTensors(model.aux, writer, message->mutable_aux());
  for (const auto& [key, value] : model.metadata) {
    proto::Text* entry = message->add_metadata();
    entry->set_key(key);
    entry->set_value(value);
  }
  for (const auto& [name, tensor] : model.aux) {
    if (model.params.contains(name)) {
      Throw<ModelError>("\"{}\" is among the parameters and among the auxiliary states", name);
    }
  }
  if (!message->has_graph() && message->param_size() == 0 && message->aux_size() == 0) {
    Throw<ModelError>("cannot save a model with neither a graph nor parameters");
  }
}

std::string Encode(const proto::Model& message, bool text) {
  if (text) return PrintText(message);
  // protobuf cannot read more than this, and writes sizes as int.
  if (message.ByteSizeLong() > size_t{std::numeric_limits<int>::max()} - 64) {
    Throw<ModelError>("the message would take {} bytes, and 2 GiB are too many", message.ByteSizeLong());
  }
  std::string bytes;
  Check(message.SerializeToString(&bytes), "a message of allowed size can be serialized");
  AppendChecksum(&bytes);
  return bytes;
}

void Decode(std::string_view bytes, const ModelLimits& limits, ModelSource* source, proto::Model* message) {
  if (source->text()) return ParseText(bytes, limits, source, message);
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    source->Fail({}, "a message of 2 GiB or more cannot be read");
  }
  CheckWire(bytes, limits, *source);
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetRecursionLimit(limits.recursion);
  if (!message->ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) source->Fail({}, "damaged or cut off");
}

void ReadTensors(const TensorMessages& messages, const char* field, const ModelSource& source, TensorReader* reader,
                 std::set<std::string>* names, HostTensorMap* tensors) {
  for (int i = 0; i < messages.size(); ++i) {
    const proto::Tensor& message = messages[i];
    source.At({{field, i}}, fmt::format("{} {}", field, QuotedName(message.name())), [&] {
      if (message.name().empty()) Throw<ModelError>("it has no name");
      if (!names->insert(message.name()).second) Throw<ModelError>("something else has this name");
      tensors->emplace(message.name(), reader->Read(message));
    });
  }
}

Model Parse(std::string_view bytes, bool text, const std::string& name, const std::string& folder,
            const ModelLimits& limits) {
  ModelSource source(name, text);
  try {
    proto::Model message;
    Decode(bytes, limits, &source, &message);
    TensorReader reader(limits, folder);
    Model model;
    if (message.has_graph()) {
      model.symbol = ReadGraph(message.graph(), limits, source, [&](const proto::Tensor& tensor) {
        return std::make_shared<const HostTensor>(reader.Read(tensor));
      });
    }
    std::set<std::string> names;
    ReadTensors(message.param(), "param", source, &reader, &names, &model.params);
    ReadTensors(message.aux(), "aux", source, &reader, &names, &model.aux);
    for (int i = 0; i < message.metadata_size(); ++i) {
      const proto::Text& entry = message.metadata(i);
      if (!model.metadata.emplace(entry.key(), entry.value()).second) {
        source.Fail({{"metadata", i}}, fmt::format("metadata {} is there twice", QuotedName(entry.key())));
      }
    }
    if (!message.has_graph() && names.empty()) source.Fail({}, "it has neither a graph nor parameters");
    return model;
  } catch (const std::bad_alloc&) {
    Throw<ModelError>("{}: the model does not fit in memory", name);
  }
}

// `<name>.<16 hex digits>.data`: only files that SaveModel made for this very name are ever removed.
bool IsDataFileOf(const std::string& file, const std::string& name) {
  constexpr std::string_view kEnding = ".data";
  if (file.size() != name.size() + 1 + 16 + kEnding.size() || !file.starts_with(name + ".") ||
      !file.ends_with(kEnding)) {
    return false;
  }
  for (size_t i = name.size() + 1; i < file.size() - kEnding.size(); ++i) {
    if (!std::isxdigit(static_cast<unsigned char>(file[i]))) return false;
  }
  return true;
}

// The data files of the model that is at `path` now; none if there is none that can be read.
std::set<std::string> DataFilesOf(const std::string& path) {
  std::set<std::string> files;
  try {
    const std::string bytes = ReadFile(path, ModelLimits{}.file_bytes);
    const auto add_file = [&](const std::string& file) {
      if (IsDataFileOf(file, NameOf(path))) files.insert(file);
    };
    if (IsOnnxName(path)) {
      for (const std::string& file : OnnxDataFiles(bytes)) add_file(file);
      return files;
    }
    ModelSource source(path, IsTextName(path));
    proto::Model message;
    Decode(bytes, {}, &source, &message);
    const auto add = [&](const proto::Tensor& tensor) {
      if (tensor.has_external()) add_file(tensor.external().file());
    };
    for (const proto::Tensor& tensor : message.param()) add(tensor);
    for (const proto::Tensor& tensor : message.aux()) add(tensor);
    for (const proto::Node& node : message.graph().node()) {
      for (const proto::Attr& attr : node.attr()) add(attr.t());
    }
  } catch (const Error&) {
    // Not a model, or a damaged one: it is replaced, and what lies beside it is not ours to remove.
    files.clear();
  }
  return files;
}

// The message at `path` and its data file beside it, if it has a name, in the place of those that are there.
void WriteFiles(const std::string& path, const std::string& data_file,
                const std::function<void(const ByteSink&)>& write_data, const std::function<std::string()>& message) {
  std::set<std::string> old_files = DataFilesOf(path);
  const auto beside = [&](const std::string& file) { return FolderOf(path) + "/" + file; };
  if (!data_file.empty()) WriteFileAtomically(beside(data_file), write_data);
  // From here on the new data is on the disk, beside the old; the message decides which of the two counts.
  try {
    WriteFileAtomically(path, message());
  } catch (...) {
    if (!data_file.empty() && !old_files.contains(data_file)) ::unlink(beside(data_file).c_str());
    throw;
  }
  old_files.erase(data_file);
  for (const std::string& file : old_files) ::unlink(beside(file).c_str());
}

}  // namespace

void CheckModelName(const std::string& path) {
  if (IsMxnetName(path)) {
    Throw<ModelError>("\"{}\": MXNet's files are read, not written; a name that ends in .onnx can be read there", path);
  }
  if (path.ends_with(".pb") || IsTextName(path) || IsOnnxName(path)) return;
  Throw<ModelError>("expected a name that ends in .pb, .prototxt or .onnx, got \"{}\"", path);
}

void SaveModel(const Model& model, const std::string& path) {
  CheckModelName(path);
  const bool text = IsTextName(path);
  const std::string real = RealPath(path);
  if (IsOnnxName(path)) {
    const OnnxFile file = WriteOnnx(model, NameOf(real));
    return WriteFiles(real, file.data_file, file.write_data, [&] { return file.message; });
  }
  TensorWriter writer(text ? kInlineBytesOfText : kInlineBytes, text);
  proto::Model message;
  WriteModel(model, text, &writer, &message);
  if (!text) writer.TakeIn(kWholeBytes);
  const std::string data_file = writer.has_external() ? writer.NameDataFile(NameOf(real)) : "";
  WriteFiles(
      real, data_file, [&](const ByteSink& sink) { writer.WriteDataFile(sink); },
      [&] { return Encode(message, text); });
}

Model LoadModel(const std::string& path, const ModelLimits& limits) {
  if (IsMxnetName(path)) return LoadMxnet(path, limits);
  const std::string bytes = ReadFile(path, limits.file_bytes), folder = FolderOf(RealPath(path));
  if (IsOnnxName(path)) return ParseOnnx(bytes, path, folder, {}, limits);
  return Parse(bytes, IsTextName(path), path, folder, limits);
}

std::string SerializeModel(const Model& model, bool text) {
  TensorWriter writer(std::numeric_limits<int64_t>::max(), text);
  proto::Model message;
  WriteModel(model, text, &writer, &message);
  return Encode(message, text);
}

Model ParseModel(std::string_view bytes, bool text, const std::string& source_name, const ModelLimits& limits) {
  return Parse(bytes, text, source_name, "", limits);
}

}  // namespace bindery
