#include "tools/cli/solver.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <vector>

#include "base/files.h"
#include "proto/solver.pb.h"
#include "proto/text_format.h"
#include "tools/cli/arguments.h"

namespace bindery::cli {
namespace {

using google::protobuf::FieldDescriptor;

std::string TextOf(const proto::Solver& solver, const FieldDescriptor* field) {
  const google::protobuf::Reflection& values = *solver.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return fmt::format("{}", values.GetInt32(solver, field));
    case FieldDescriptor::CPPTYPE_INT64: return fmt::format("{}", values.GetInt64(solver, field));
    case FieldDescriptor::CPPTYPE_UINT64: return fmt::format("{}", values.GetUInt64(solver, field));
    case FieldDescriptor::CPPTYPE_DOUBLE: return fmt::format("{}", values.GetDouble(solver, field));
    case FieldDescriptor::CPPTYPE_BOOL: return values.GetBool(solver, field) ? "true" : "false";
    default: return values.GetString(solver, field);
  }
}

}  // namespace

std::map<std::string, std::string> ReadSolver(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 20;
  const std::string text = ReadFile(path, kMostBytes);
  proto::Solver solver;
  if (const auto error = ParseMessage(text, &solver)) {
    throw UsageError(fmt::format("--solver: {}:{}", path, error->ToString()));
  }
  std::vector<const FieldDescriptor*> fields;
  solver.GetReflection()->ListFields(solver, &fields);
  std::map<std::string, std::string> options;
  for (const FieldDescriptor* field : fields) {
    std::string name = "--" + field->name();
    std::ranges::replace(name, '_', '-');
    options[name] = TextOf(solver, field);
  }
  return options;
}

}  // namespace bindery::cli
