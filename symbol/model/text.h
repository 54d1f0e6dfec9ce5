// Messages as text, by protobuf's text format.
#pragma once

#include <string>
#include <string_view>

#include "proto/model.pb.h"
#include "symbol/model.h"
#include "symbol/model/source.h"

namespace bindery {

// Throws ModelError with line and column. Fills in the source's locations.
void ParseText(std::string_view text, const ModelLimits& limits, ModelSource* source, proto::Model* message);

// Attributes and other small messages are on one line.
std::string PrintText(const proto::Model& message);

}  // namespace bindery
