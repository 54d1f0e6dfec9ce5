// Memory from the system by the page: for Arena and for large pieces of Storage. Private to engine/.
#pragma once

#include <cstdint>
#include <string>

namespace bindery {

inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

int64_t PageBytes();

// Address space without memory: `bytes` is a multiple of PageBytes(). Aligned to kHugePageBytes, unless it is less:
// then the system puts neighbours together, so that thousands of them are few of the mappings that a process may have.
// Null if refused.
char* ReservePages(int64_t bytes);

// Gives memory to reserved pages: huge ones where the system has them, touched by `threads`, zero. False if memory is
// short; then the pages are as before.
bool CommitPages(char* begin, int64_t bytes, int threads);

void ReleasePages(char* begin, int64_t bytes);

int64_t MachineMemory();  // all of it, with swap

// What this process may still take of address space (`ulimit -v`); INT64_MAX without a limit.
int64_t AvailableAddressSpace();

// What the machine, or the control groups this process is in, can still give.
int64_t AvailableMemory();
// Of that, what the control groups can, of version 1 and 2: `root` is where they are mounted, `own` the file that names
// those of the process. INT64_MAX without a limit.
int64_t AvailableInControlGroups(const std::string& root, const std::string& own);

}  // namespace bindery
