#include "base/error.h"

#include <fmt/format.h>

#include <typeinfo>

namespace bindery {
namespace {

// `message` in an error of the same type as `error`, or null if that is none of E.
template <class... E>
std::exception_ptr SameType(const Error& error, const std::string& message) {
  std::exception_ptr result;
  static_cast<void>(((typeid(error) == typeid(E) && (result = std::make_exception_ptr(E(message)), true)) || ...));
  return result;
}

}  // namespace

std::exception_ptr CurrentErrorAfter(const std::string& prefix) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    try {
      if (!error.message().starts_with(prefix)) {
        if (auto same = SameType<Error, ShapeError, ModelError, DataError, CheckpointError, DeviceError, NumericError>(
                error, prefix + error.message())) {
          return same;
        }
      }
    } catch (...) {  // no memory for the message: the original will do
    }
    return std::current_exception();
  } catch (...) {
    return std::current_exception();
  }
}

void CheckFailed(const char* condition, const char* file, int line) {
  Throw("internal error, please report it: {} does not hold ({}:{})", condition, file, line);
}

}  // namespace bindery

#if FMT_VERSION < 100000
// Declared in fmt/core.h, defined in the much larger fmt/format.h: instantiated here for base/error.h.
template fmt::format_context::iterator fmt::formatter<fmt::string_view>::format(const fmt::string_view&,
                                                                                fmt::format_context&) const;
#endif
