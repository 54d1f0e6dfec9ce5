// What is checked before a message is parsed, so that a hostile file cannot make the parser allocate more than some
// tens of times the file's own size, as messages of two bytes do, and so that nothing in a file is ignored.
#pragma once

#include <cstdint>
#include <string_view>

#include "symbol/model.h"
#include "symbol/model/source.h"

namespace bindery {

inline constexpr int kModelVersion = 2;

// Binary: begins with a version that we read, ends with the checksum, and in between holds fields that
// proto/model.proto knows, of the right kind, no more of them than the limits allow. Throws ModelError saying where:
// "graph.node[3].attr[0]".
void CheckWire(std::string_view bytes, const ModelLimits& limits, const ModelSource& source);

// A serialized onnx::ModelProto (proto/onnx.proto): fields of other numbers are skipped, as ONNX wants it.
void CheckOnnxWire(std::string_view bytes, const ModelLimits& limits, const ModelSource& source);

// Appends the field `checksum` to a serialized message without one.
void AppendChecksum(std::string* bytes);

// Text: no more fields than the limits allow.
void CheckTextSize(std::string_view text, const ModelLimits& limits, const ModelSource& source);

// Throws if `version` is not one that we read.
void CheckVersion(int64_t version, const ModelSource& source);

}  // namespace bindery
