#include "tools/cli/exit_codes.h"

#include <cstdio>
#include <new>

#include "base/error.h"
#include "tools/cli/arguments.h"

namespace bindery::cli {

ExitCode ExitCodeOf(const std::exception& error) {
  const auto is = [&](auto* type) { return dynamic_cast<decltype(type)>(&error) != nullptr; };
  if (is(static_cast<const CLI::ParseError*>(nullptr)) || is(static_cast<const UsageError*>(nullptr))) return kUsage;
  if (is(static_cast<const ModelError*>(nullptr)) || is(static_cast<const ShapeError*>(nullptr))) return kModel;
  if (is(static_cast<const DataError*>(nullptr))) return kData;
  if (is(static_cast<const CheckpointError*>(nullptr))) return kCheckpoint;
  if (is(static_cast<const DeviceError*>(nullptr)) || is(static_cast<const std::bad_alloc*>(nullptr))) return kDevice;
  if (is(static_cast<const NumericError*>(nullptr))) return kNumeric;
  return std::ferror(stdout) ? kData : kFailed;
}

}  // namespace bindery::cli
