#include "base/memory.h"

#include <malloc.h>

namespace bindery {

void KeepFreedMemory() {
  constexpr int kNever = 1 << 30;  // bytes
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TRIM_THRESHOLD, kNever);
}

}  // namespace bindery
