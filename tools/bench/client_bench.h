// Clients of one set of weights: how many requests a second they get together, beside one of them alone.
#pragma once

#include <cstdint>
#include <string>

#include "base/device.h"

namespace bindery::bench {

struct ClientBenchOptions {
  std::string model;
  int64_t batch_size = 1;  // of a request
  int clients = 2;         // threads that ask at once
  Device device = Cpu(0);
  int threads = 1;  // of a CPU, for each request
  int rounds = 9;
  double seconds = 0.3;  // of a round, for one client and again for all
};

// One client and all of them take turns, round by round, on the same Predictor, which lets all of them run.
struct ClientBenchResult {
  double one_per_second = 0, all_per_second = 0;  // requests; medians over rounds
  double ratio = 0;                               // median over rounds of all / one
  double allocations_ours = 0;                    // per request of all
  double slowest_over_mean = 0;                   // time of the slowest request of all / the mean; median over rounds
  int64_t different = 0;                          // requests whose outputs are not, to the bit, those of the first one
};

// Throws Error for less than 1 client, and as a Predictor does.
ClientBenchResult RunClientBench(const ClientBenchOptions& options);

}  // namespace bindery::bench
