#include "symbol/model/wire.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstring>
#include <optional>
#include <string>

#include "base/files.h"
#include "proto/model.pb.h"
#include "proto/onnx.pb.h"

namespace bindery {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are copied as they are");

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr int kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5;
constexpr size_t kChecksumBytes = 9;  // a tag and eight bytes
constexpr char kChecksumTag = proto::Model::kChecksumFieldNumber << 3 | kFixed64;
constexpr char kVersionTag = proto::Model::kVersionFieldNumber << 3 | kVarint;

// A node has a handful of inputs and attributes; more than this many fields for every allowed node is no model.
int64_t MaxFields(const ModelLimits& limits) { return (int64_t{1} << 20) + 64 * limits.nodes; }

std::optional<uint64_t> TakeVarint(std::string_view* bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < 10 && i < bytes->size(); ++i) {
    const auto byte = static_cast<unsigned char>((*bytes)[i]);
    value |= uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      bytes->remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

int WireType(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64: return kFixed64;
    case FieldDescriptor::TYPE_FLOAT: return kFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE: return kDelimited;
    default: return kVarint;
  }
}

// From the whole message to the one being looked at.
struct WirePath {
  const WirePath* outer;
  const FieldDescriptor* field;
  int index;
  int depth = outer == nullptr ? 1 : outer->depth + 1;
};

std::string ToString(const WirePath* path) {
  if (path == nullptr) return "";
  std::string text = ToString(path->outer);
  text += (text.empty() ? "" : ".") + path->field->name();
  return path->field->is_repeated() ? fmt::format("{}[{}]", text, path->index) : text;
}

// Walks the bytes with the messages' descriptions, as deep as the limits allow: a graph of ONNX may be in a node of
// one.
class WireChecker {
 public:
  WireChecker(const ModelLimits& limits, const ModelSource& source, bool skip_unknown)
      : limits_(limits), source_(source), skip_unknown_(skip_unknown), max_fields_(MaxFields(limits)) {}

  void CheckMessage(std::string_view bytes, const Descriptor& type, const WirePath* path) {
    std::array<int, 32> seen{};  // by field number, which are all below 32
    while (!bytes.empty()) {
      const auto tag = TakeVarint(&bytes);
      if (!tag) FailDamaged(path);
      const FieldDescriptor* field =
          *tag >> 3 < seen.size() ? type.FindFieldByNumber(static_cast<int>(*tag >> 3)) : nullptr;
      if (++fields_ > max_fields_) Fail(path, fmt::format("more than {} fields", max_fields_));
      const int wire = static_cast<int>(*tag & 7);
      if (field == nullptr) {
        if (!skip_unknown_) {
          Fail(path, fmt::format("unknown field {}: damaged, or written by a newer version", *tag >> 3));
        }
        if (wire == kDelimited) {
          Take(&bytes, path);
        } else {
          SkipNumber(&bytes, wire, path);
        }
        continue;
      }
      const bool packed = field->is_repeated() && field->is_packable() && wire == kDelimited;
      if (wire != WireType(*field) && !packed) Fail(path, fmt::format("field \"{}\" has another type", field->name()));
      const int index = seen[static_cast<size_t>(field->number())]++;
      if (wire == kDelimited) {
        CheckDelimited(Take(&bytes, path), *field, path, index);
      } else if (wire != kVarint || field->enum_type() == nullptr) {
        SkipNumber(&bytes, wire, path);
      } else {
        const auto value = TakeVarint(&bytes);
        if (!value) FailDamaged(path);
        if (*value > 1000 || field->enum_type()->FindValueByNumber(static_cast<int>(*value)) == nullptr) {
          Fail(path, fmt::format("field \"{}\": unknown value {}", field->name(), *value));
        }
      }
    }
  }

 private:
  void SkipNumber(std::string_view* bytes, int wire, const WirePath* path) const {
    const size_t size = wire == kFixed64 ? 8 : wire == kFixed32 ? 4 : 0;
    if (bytes->size() < size || (size == 0 && (wire != kVarint || !TakeVarint(bytes)))) FailDamaged(path);
    bytes->remove_prefix(size);
  }

  std::string_view Take(std::string_view* bytes, const WirePath* path) {
    const auto size = TakeVarint(bytes);
    if (!size || *size > bytes->size()) FailDamaged(path);
    const std::string_view taken = bytes->substr(0, *size);
    bytes->remove_prefix(*size);
    return taken;
  }

  void CheckDelimited(std::string_view bytes, const FieldDescriptor& field, const WirePath* path, int index) {
    const Descriptor* type = field.message_type();
    if (type == nullptr) return;
    const bool counts = type == proto::Node::descriptor() || type == proto::Variable::descriptor() ||
                        type == onnx::NodeProto::descriptor() || type == onnx::ValueInfoProto::descriptor();
    if (counts && ++nodes_ > limits_.nodes) {
      Throw<ModelError>("{}: more than {} nodes", source_.name(), limits_.nodes);
    }
    const WirePath inner{path, &field, index};
    if (inner.depth > limits_.recursion) Fail(nullptr, fmt::format("more than {} messages deep", limits_.recursion));
    CheckMessage(bytes, *type, &inner);
  }

  [[noreturn]] void Fail(const WirePath* path, const std::string& message) const {
    Throw<ModelError>("{}: {}{}{}", source_.name(), ToString(path), path == nullptr ? "" : ": ", message);
  }
  [[noreturn]] void FailDamaged(const WirePath* path) const { Fail(path, "damaged or cut off"); }

  const ModelLimits& limits_;
  const ModelSource& source_;
  const bool skip_unknown_;
  const int64_t max_fields_;
  int64_t fields_ = 0, nodes_ = 0;
};

bool LooksLikeText(std::string_view bytes) {
  for (const char c : bytes.substr(0, 64)) {
    if (!std::isprint(static_cast<unsigned char>(c)) && !std::isspace(static_cast<unsigned char>(c))) return false;
  }
  return !bytes.empty();
}

// What a file is that is no binary model, as far as can be told.
const char* WhatElse(const std::string& name, std::string_view bytes) {
  if (name.ends_with(".ckpt")) return "; LoadCheckpoint reads checkpoints";
  if (name.ends_with(".npz") || name.ends_with(".safetensors")) return "; LoadWeights reads files of values";
  return LooksLikeText(bytes) ? "; a model as text has a name that ends in .prototxt" : "";
}

}  // namespace

void CheckVersion(int64_t version, const ModelSource& source) {
  if (version == kModelVersion) return;
  if (version > kModelVersion) {
    source.Fail({{"version"}}, fmt::format("format version {}, but this program reads version {}: the file was "
                                           "written by a newer Bindery, please update",
                                           version, kModelVersion));
  }
  if (version < 1) source.Fail({{"version"}}, fmt::format("format version {} does not exist", version));
  source.Fail({{"version"}},
              fmt::format("format version {}, but this program reads version {}: the file was written by "
                          "an older Bindery, please write it again with this one",
                          version, kModelVersion));
}

void CheckWire(std::string_view bytes, const ModelLimits& limits, const ModelSource& source) {
  std::string_view rest = bytes;
  if (rest.empty() || rest[0] != kVersionTag) {
    Throw<ModelError>("{}: not a binary Bindery model{}", source.name(), WhatElse(source.name(), bytes));
  }
  rest.remove_prefix(1);
  const auto version = TakeVarint(&rest);
  if (!version) Throw<ModelError>("{}: damaged or cut off", source.name());
  CheckVersion(static_cast<int64_t>(*version), source);
  if (rest.size() < kChecksumBytes || rest[rest.size() - kChecksumBytes] != kChecksumTag) {
    Throw<ModelError>("{}: cut off: it does not end with its checksum", source.name());
  }
  const size_t content = bytes.size() - kChecksumBytes;
  uint64_t expected;
  std::memcpy(&expected, bytes.data() + content + 1, sizeof(expected));
  if (expected != 0 && expected != Checksum(bytes.data(), static_cast<int64_t>(content))) {
    Throw<ModelError>("{}: damaged: its checksum is not that of its content", source.name());
  }
  WireChecker(limits, source, false).CheckMessage(bytes, *proto::Model::descriptor(), nullptr);
}

void CheckOnnxWire(std::string_view bytes, const ModelLimits& limits, const ModelSource& source) {
  WireChecker(limits, source, true).CheckMessage(bytes, *onnx::ModelProto::descriptor(), nullptr);
}

void AppendChecksum(std::string* bytes) {
  const uint64_t checksum = Checksum(bytes->data(), static_cast<int64_t>(bytes->size()));
  char field[kChecksumBytes] = {kChecksumTag};
  std::memcpy(field + 1, &checksum, sizeof(checksum));
  bytes->append(field, kChecksumBytes);
}

void CheckTextSize(std::string_view text, const ModelLimits& limits, const ModelSource& source) {
  const int64_t max_fields = MaxFields(limits);
  int64_t fields = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {  // a string ends at its quote or, wrongly, at the line's end
      if (c == '\\') {
        ++i;
      } else if (c == quote || c == '\n') {
        quote = 0;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '{' || c == '<' || c == ':' || c == ',' || c == '[') {
      if (++fields > max_fields) Throw<ModelError>("{}: more than {} fields", source.name(), max_fields);
    }
  }
}

}  // namespace bindery
