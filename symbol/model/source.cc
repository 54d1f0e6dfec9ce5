#include "symbol/model/source.h"

#include "proto/model.pb.h"

namespace bindery {
namespace {

constexpr size_t kMaxShown = 100, kMaxName = 4096;

}  // namespace

void ModelSource::Fail(FieldPath path, std::string_view message) const {
  const google::protobuf::TextFormat::ParseInfoTree* tree = &locations_;
  const google::protobuf::Descriptor* type = proto::Model::descriptor();
  google::protobuf::TextFormat::ParseLocation place;
  // The innermost step that the text has: a field that was left out is complained about where its message starts.
  for (const FieldStep& step : path) {
    if (!text_ || tree == nullptr || type == nullptr) break;
    const google::protobuf::FieldDescriptor* field = type->FindFieldByName(step.field);
    const auto found = tree->GetLocation(field, step.index);
    if (found.line < 0) break;
    place = found;
    tree = tree->GetTreeForNested(field, step.index);
    type = field->message_type();
  }
  if (place.line >= 0) FailAt(place.line, place.column, message);
  Throw<ModelError>("{}: {}", name_, message);
}

void ModelSource::FailAt(int line, int column, std::string_view message) const {
  Throw<ModelError>("{}:{}:{}: {}", name_, line + 1, column + 1, message);
}

std::string ShortName(std::string_view name) {
  std::string shown;
  for (const char c : name.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  if (name.size() > kMaxShown) shown += "...";
  return shown;
}

std::string QuotedName(std::string_view name) { return '"' + ShortName(name) + '"'; }

void CheckName(std::string_view name) {
  if (name.size() > kMaxName) Throw<ModelError>("name {} has more than {} bytes", QuotedName(name), kMaxName);
}

}  // namespace bindery
