#include "base/error.h"

namespace bindery {

void CheckFailed(const char* condition, const char* file, int line) {
  Throw("internal error, please report it: {} does not hold ({}:{})", condition, file, line);
}

}  // namespace bindery
