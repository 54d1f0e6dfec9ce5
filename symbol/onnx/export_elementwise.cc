// Element-wise operators, casts and constants.
#include <map>
#include <vector>

#include "symbol/onnx/exporter.h"
#include "symbol/onnx/reader.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// Operators that are ONNX' under another name or the same.
struct Renamed {
  const char *ours, *theirs;
};
constexpr Renamed kRenamed[] = {
    {"Abs", "Abs"},
    {"Acos", "Acos"},
    {"Acosh", "Acosh"},
    {"Add", "Add"},
    {"AddN", "Sum"},
    {"Asin", "Asin"},
    {"Asinh", "Asinh"},
    {"Atan", "Atan"},
    {"Atanh", "Atanh"},
    {"Ceil", "Ceil"},
    {"Cos", "Cos"},
    {"Cosh", "Cosh"},
    {"Div", "Div"},
    {"Equal", "Equal"},
    {"Erf", "Erf"},
    {"Exp", "Exp"},
    {"Floor", "Floor"},
    {"Greater", "Greater"},
    {"GreaterEqual", "GreaterOrEqual"},
    {"IsInf", "IsInf"},
    {"IsNaN", "IsNaN"},
    {"Less", "Less"},
    {"LessEqual", "LessOrEqual"},
    {"Log", "Log"},
    {"Maximum", "Max"},
    {"Minimum", "Min"},
    {"Mul", "Mul"},
    {"Negative", "Neg"},
    {"PRelu", "PRelu"},
    {"Power", "Pow"},
    {"Reciprocal", "Reciprocal"},
    {"Round", "Round"},
    {"Sign", "Sign"},
    {"Sin", "Sin"},
    {"Sinh", "Sinh"},
    {"Sqrt", "Sqrt"},
    {"Sub", "Sub"},
    {"Tan", "Tan"},
    {"Where", "Where"},
};

void ExportRenamed(Exporter& ex) {
  for (const auto& [ours, theirs] : kRenamed) {
    if (ex.node().op().name == ours) return ex.Out(theirs, ex.AllInputs());
  }
}

// ONNX' logic is of bool alone; of our numbers, 0 is false.
void ExportLogic(Exporter& ex) {
  std::vector<std::string> inputs;
  for (int i = 0; i < static_cast<int>(ex.node().inputs().size()); ++i) inputs.push_back(ex.In(i, DType::kBool));
  ex.Out(ex.node().op().name.c_str(), inputs);
}

void ExportNotEqual(Exporter& ex) { ex.Out("Not", {ex.Add("Equal", ex.AllInputs())}); }

void ExportSquare(Exporter& ex) { ex.Out("Mul", {ex.In(0), ex.In(0)}); }

void ExportExpm1(Exporter& ex) { ex.Out("Sub", {ex.Add("Exp", {ex.In(0)}), ex.Number(1, ex.DTypeOfInput(0))}); }

void ExportLog1p(Exporter& ex) { ex.Out("Log", {ex.Add("Add", {ex.In(0), ex.Number(1, ex.DTypeOfInput(0))})}); }

// ONNX' Mod with the divisor's sign is of integers alone: a - floor(a / b) b.
void ExportMod(Exporter& ex) {
  if (!IsFloat(ex.DTypeOfInput(0))) return ex.Out("Mod", ex.AllInputs());
  const std::string times = ex.Add("Floor", {ex.Add("Div", ex.AllInputs())});
  ex.Out("Sub", {ex.In(0), ex.Add("Mul", {times, ex.In(1)})});
}

void ExportFmod(Exporter& ex) {
  ex.Out("Mod", ex.AllInputs());
  ex.Set("fmod", int64_t{1});
}

// Towards 0.
void ExportTrunc(Exporter& ex) {
  ex.Out("Mul", {ex.Add("Sign", {ex.In(0)}), ex.Add("Floor", {ex.Add("Abs", {ex.In(0)})})});
}

void ExportCast(Exporter& ex) {
  ex.Out("Cast", {ex.In(0)});
  ex.Set("to", int64_t{NumberOf(ex.attrs<CastAttrs>().dtype)});
}

void ExportIdentity(Exporter& ex) { ex.Alias(ex.In(0)); }

void ExportConstant(Exporter& ex) { ex.Alias(ex.Constant(*ConstantValue(ex.node()), "value")); }

}  // namespace

std::span<const ExportRow> ElementwiseExports() {
  static const std::vector<ExportRow> rows = [] {
    std::vector<ExportRow> all = {
        {"And", ExportLogic},   {"Cast", ExportCast},         {"Constant", ExportConstant}, {"Expm1", ExportExpm1},
        {"Fmod", ExportFmod},   {"Identity", ExportIdentity}, {"Log1p", ExportLog1p},       {"Mod", ExportMod},
        {"Not", ExportLogic},   {"NotEqual", ExportNotEqual}, {"Or", ExportLogic},          {"Square", ExportSquare},
        {"Trunc", ExportTrunc}, {"Xor", ExportLogic},
    };
    for (const Renamed& renamed : kRenamed) all.push_back({renamed.ours, ExportRenamed});
    return all;
  }();
  return rows;
}

}  // namespace bindery::onnx
