// Processes: whose the cores are. Unbound processes of one machine may all run on all of its cores, and with as many
// threads each they would wait for each other.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/files.h"
#include "engine/team.h"
#include "kvstore/processes.h"

namespace bindery {
namespace {

struct Seat {
  std::array<char, 36> machine = {};  // the number of its boot, the same in all its containers
  cpu_set_t cores = {};               // that the process may run on
};

Seat OwnSeat() {
  Seat seat;
  CPU_ZERO(&seat.cores);
  sched_getaffinity(0, sizeof(seat.cores), &seat.cores);  // fails, and leaves none, where there are more than 1024
  const std::string boot = ReadFile("/proc/sys/kernel/random/boot_id");
  std::copy_n(boot.begin(), std::min(boot.size(), seat.machine.size()), seat.machine.begin());
  return seat;
}

}  // namespace

Processes::Processes(int rank, int size) : rank_(rank), size_(size), cores_(NumCores()) {}

void Processes::ShareCores() {
  const Seat mine = OwnSeat();
  std::vector<Seat> all(static_cast<size_t>(size_));
  AllGather(&mine, all.data(), sizeof(mine));
  double share = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &mine.cores)) continue;
    share += 1.0 / static_cast<double>(std::ranges::count_if(all, [&](const Seat& other) {
               return other.machine == mine.machine && CPU_ISSET(core, &other.cores);
             }));
  }
  if (CPU_COUNT(&mine.cores) > 0) cores_ = std::max(1, static_cast<int>(share + 1e-6));
}

}  // namespace bindery
