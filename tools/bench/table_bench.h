// Steps of training a table of which a batch looks up some rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device.h"

namespace bindery::bench {

struct TableBenchOptions {
  int64_t rows = 1'000'000, width = 64;
  int64_t indices = 1024;  // of a step; a tenth of them repeat others
  std::string optimizer = "sgd(lr=0.1)";
  std::vector<Device> devices = {Cpu(0)};
  int threads = 0;  // per device; 0: the cores, shared out
  int steps = 20, warmup = 3;
};

struct TableBenchResult {
  double min_ms = 0, median_ms = 0;
  double allocations_ours = 0;  // per step
};

// With gradients of the whole table, or by rows (docs/sparse.md). Throws Error as binding does.
TableBenchResult RunTableBench(const TableBenchOptions& options, bool by_rows);

}  // namespace bindery::bench
