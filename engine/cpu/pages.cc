#include "engine/cpu/pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/checked.h"
#include "base/split_text.h"

namespace bindery {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
// Committed between two looks at the system's figures, which cost nothing beside touching the pages, and spare the
// process the kernel's out-of-memory killer.
constexpr int64_t kBetweenLooks = int64_t{16} << 20;
std::atomic<int64_t> since_look = 0;

// "max", absent or not a number: kUnlimited.
int64_t NumberIn(const std::string& path) {
  int64_t value;
  std::ifstream file(path);
  return file >> value ? value : kUnlimited;
}

// The value after `key` in a file of lines "key value ...".
int64_t NumberAfter(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  for (int64_t value; file >> word;) {
    if (word == key && file >> value) return value;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnlimited;
}

// A hierarchy of groups of processes: where it is mounted, and its folders' files.
struct ControlGroups {
  std::string root;
  const char *limit, *used;
  const char* cache;  // in memory.stat: what is given up when memory is wanted
};

// What a group (a folder) may still take.
int64_t AvailableInControlGroup(const ControlGroups& groups, const std::string& group) {
  const std::string folder = groups.root + group + '/';
  const int64_t limit = NumberIn(folder + groups.limit), used = NumberIn(folder + groups.used);
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  const int64_t cache = NumberAfter(folder + "memory.stat", groups.cache);
  return std::max<int64_t>(limit - used + (cache == kUnlimited ? 0 : cache), 0);
}

bool Touch(char* begin, int64_t bytes) {
  int result;
  do {
    result = madvise(begin, bytes, MADV_POPULATE_WRITE);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  if (result == 0) return true;
  if (errno != EINVAL) return false;
  // A kernel before 5.14. The pages are new, so writing zeros changes nothing.
  for (int64_t i = 0; i < bytes; i += PageBytes()) static_cast<volatile char*>(begin)[i] = 0;
  return true;
}

bool TouchByThreads(char* begin, int64_t bytes, int threads) {
  const int64_t share = RoundUp(CeilDiv(bytes, threads), kHugePageBytes);
  std::vector<char> touched(CeilDiv(bytes, share), 1);
  std::vector<std::thread> helpers;
  const auto touch = [&](size_t part) {
    const int64_t offset = static_cast<int64_t>(part) * share;
    touched[part] = Touch(begin + offset, std::min(share, bytes - offset));
  };
  for (size_t part = 1; part < touched.size(); ++part) {
    try {
      helpers.emplace_back(touch, part);
    } catch (const std::system_error&) {  // no more threads: this one does it
      touch(part);
    }
  }
  touch(0);
  for (std::thread& helper : helpers) helper.join();
  return std::find(touched.begin(), touched.end(), 0) == touched.end();
}

}  // namespace

int64_t PageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

char* ReservePages(int64_t bytes) {
  if (bytes > kUnlimited - kHugePageBytes) return nullptr;
  const int64_t spare = bytes < kHugePageBytes ? 0 : kHugePageBytes;
  void* const memory = mmap(nullptr, bytes + spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* const mapped = static_cast<char*>(memory);
  if (spare == 0) return mapped;
  const int64_t before = -reinterpret_cast<uintptr_t>(mapped) & (kHugePageBytes - 1);
  if (before > 0) munmap(mapped, before);
  if (before < kHugePageBytes) munmap(mapped + before + bytes, kHugePageBytes - before);
  return mapped + before;
}

bool CommitPages(char* begin, int64_t bytes, int threads) {
  if (since_look.fetch_add(bytes) + bytes >= kBetweenLooks) {
    if (std::max(bytes, kBetweenLooks) > AvailableMemory()) return false;
    since_look = 0;
  }
  if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  madvise(begin, bytes, MADV_HUGEPAGE);  // advice: a system without huge pages may refuse
  if (TouchByThreads(begin, bytes, threads)) return true;
  madvise(begin, bytes, MADV_DONTNEED);
  mprotect(begin, bytes, PROT_NONE);
  return false;
}

void ReleasePages(char* begin, int64_t bytes) {
  // Within a mapping it makes two of one, and a process may have so many: then the memory alone goes back.
  if (munmap(begin, bytes) != 0) madvise(begin, bytes, MADV_DONTNEED);
}

int64_t MachineMemory() {
  struct sysinfo info;
  if (sysinfo(&info) != 0) return int64_t{1} << 40;
  return static_cast<int64_t>(info.totalram + info.totalswap) * info.mem_unit;
}

int64_t AvailableAddressSpace() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const int64_t pages = NumberIn("/proc/self/statm");  // its first number: the size of the address space
  const int64_t allowed = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited));
  return pages == kUnlimited ? allowed : std::max<int64_t>(allowed - pages * PageBytes(), 0);
}

int64_t AvailableInControlGroups(const std::string& root, const std::string& own) {
  const ControlGroups v1{root + "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
  const ControlGroups v2{root, "memory.max", "memory.current", "inactive_file"};
  int64_t available = std::min(AvailableInControlGroup(v1, ""), AvailableInControlGroup(v2, ""));
  std::ifstream lines(own);
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,memory:/a/group" of v1, "0::/a/group" of v2
    const std::vector<std::string_view> parts = SplitText(line, ':');
    if (parts.size() < 3 || !parts[2].starts_with('/')) continue;
    const bool is_v1 = std::ranges::count(SplitText(parts[1], ','), "memory") > 0;
    if (!is_v1 && !line.starts_with("0::")) continue;
    for (std::string group = line.substr(line.find('/')); group.size() > 1; group.resize(group.rfind('/'))) {
      available = std::min(available, AvailableInControlGroup(is_v1 ? v1 : v2, group));
    }
  }
  return available;
}

int64_t AvailableMemory() {
  const int64_t kibibytes = NumberAfter("/proc/meminfo", "MemAvailable:");
  const int64_t machine = kibibytes == kUnlimited ? kUnlimited : kibibytes * 1024;
  return std::min(machine, AvailableInControlGroups("/sys/fs/cgroup", "/proc/self/cgroup"));
}

}  // namespace bindery
