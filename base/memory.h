// The C library's heap.
#pragma once

namespace bindery {

// Tells malloc to keep freed memory for the next call instead of giving it back to the system, for the whole process.
// The libraries beneath (oneDNN packs matrices into buffers that it allocates in each call) then cost no page faults.
// For a program's main; the library itself never calls it.
void KeepFreedMemory();

}  // namespace bindery
