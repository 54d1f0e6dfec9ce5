#include "tools/cli/rate.h"

#include <fmt/format.h>

#include <cmath>

namespace bindery::cli {

std::string Rate(double per_second) {
  if (!(per_second >= 0 && std::isfinite(per_second))) return "--";
  return per_second < 9.95 ? fmt::format("{:#.2g}", per_second) : fmt::format("{:.0f}", per_second);
}

}  // namespace bindery::cli
