// Counts heap allocations of the whole process, told apart by who asked: oneDNN, libgomp and the C library, or anything
// else (ours: this program and the C++ library and small libraries that it grows its own objects with). Works by
// defining malloc and operator new here.
#pragma once

#include <cstdint>

namespace bindery::bench {

struct Allocations {
  int64_t ours = 0, libraries = 0;
};
Allocations CountAllocations();  // so far, while counting was on
void SetCounting(bool on);

}  // namespace bindery::bench
