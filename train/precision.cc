#include "train/precision.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "executor/units.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "train/call_text.h"

namespace bindery {
namespace {

Precision ParseList(const CallText& call, const std::string& op, const std::string& word) {
  if (word == "low") return Precision::kLow;
  if (word == "float32") return Precision::kFloat32;
  if (word == "follow") return Precision::kFollow;
  call.Fail(fmt::format("{} must be low, float32 or follow, got \"{}\"", op, word));
}

}  // namespace

std::optional<MixedPrecisionOptions> ParsePrecision(std::string_view text) {
  if (text.empty()) return std::nullopt;
  CallText call("precision", text);
  const std::vector<std::string> known = {"float32", "bfloat16", "float16"};
  if (call.name() == known[0]) {
    call.Declare({});
    return std::nullopt;
  }
  MixedPrecisionOptions options;
  if (call.name() == known[2]) {
    options.dtype = DType::kFloat16;
  } else if (call.name() != known[1]) {
    Throw("unknown precision \"{}\"{}", call.name(), NameHint(call.name(), known));
  }
  std::vector<std::string> operators;
  for (const OpDef* op : ListOps()) operators.push_back(op->name);
  call.Declare(operators);
  for (const std::string& op : operators) {
    if (const std::optional<std::string> word = call.Word(op)) options.operators[op] = ParseList(call, op, *word);
  }
  CheckMixedPrecision(options);
  return options;
}

std::string LossScaleFor(std::string_view precision, const std::string& given) {
  const std::optional<MixedPrecisionOptions> options = ParsePrecision(precision);
  return given.empty() && options && options->dtype == DType::kFloat16 ? "dynamic" : given;
}

Symbol InPrecision(const Symbol& symbol, std::string_view precision, const std::vector<DataDesc>& data,
                   const std::vector<DataDesc>& labels) {
  const std::optional<MixedPrecisionOptions> options = ParsePrecision(precision);
  if (!options) return symbol;
  DTypeMap dtypes;
  for (const auto* descs : {&data, &labels}) {
    for (const DataDesc& desc : *descs) dtypes[desc.name] = desc.dtype;
  }
  for (const NodePtr& node : Graph::Of(symbol).nodes) {  // inputs are cast to what is declared
    if (node->is_variable() && node->declared_dtype) dtypes.erase(node->name());
  }
  return MixedPrecision(symbol, *options, dtypes);
}

void LogWithoutUnits(std::string_view precision, const std::vector<Device>& devices) {
  const std::optional<MixedPrecisionOptions> options = ParsePrecision(precision);
  if (!options) return;
  for (const Device& device : devices) {
    if (HasUnitsFor(device.kind, options->dtype)) continue;
    LogLine(
        LogLevel::kInfo,
        fmt::format("{0} has no units for {1}: what runs in {1} is computed in float32 and rounded; that takes less "
                    "memory, but more time than float32",
                    device, options->dtype));
    return;
  }
}

}  // namespace bindery
