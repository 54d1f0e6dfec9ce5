#include "base/error.h"

#include <fmt/format.h>

namespace bindery {

void CheckFailed(const char* condition, const char* file, int line) {
  Throw("internal error, please report it: {} does not hold ({}:{})", condition, file, line);
}

}  // namespace bindery

#if FMT_VERSION < 100000
// Declared in fmt/core.h, defined in the much larger fmt/format.h: instantiated here for base/error.h.
template fmt::format_context::iterator fmt::formatter<fmt::string_view>::format(const fmt::string_view&,
                                                                                fmt::format_context&) const;
#endif
