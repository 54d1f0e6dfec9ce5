#include "executor/plan/mirror.h"

#include "base/error.h"

namespace bindery {

void CheckMirror(const Mirror& mirror) {
  if (mirror.bytes < Mirror::kAutomatic) Throw("mirror: expected bytes of working memory, got {}", mirror.bytes);
  if (!(mirror.share > 0 && mirror.share <= 1)) {
    Throw("mirror: expected a share of the working memory above 0 and up to 1, got {}", mirror.share);
  }
}

}  // namespace bindery
