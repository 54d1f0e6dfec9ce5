// Graphs of thousands of nodes: binding takes time and memory by their size, not by its square.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "executor/program.h"
#include "symbol/ops.h"

namespace bindery {
namespace {

double CpuSeconds() {  // of this thread, whatever else the machine does
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Layers of two sizes in turn, so that memory can be cut to pieces.
Symbol Stack(int layers) {
  Symbol x = Variable("data");
  for (int i = 0; i < layers; ++i) {
    x = Tanh(FullyConnected(x, {.num_hidden = i % 3 == 0 ? 24 : 8}, "fc" + std::to_string(i)));
  }
  return SoftmaxOutput(x, {}, "softmax");
}

CompileOptions ForTraining(const Symbol& symbol) {
  CompileOptions options{.signature = Signature::Of(symbol)};
  for (Argument& a : options.signature.arguments) {
    if (a.name == "data") {
      a.shape = Shape{4, 8};
    } else if (a.name == "softmax_label") {
      a.shape = Shape{4};
    } else {
      a.request = GradReq::kWrite;
    }
    if (a.shape) a.role = Role::kData;
  }
  options.mode = Mode::kTrain;
  options.with_backward = true;
  options.switches.policy =
      KernelPolicy::kReference;  // the library's kernels take most of the time, and the same for each
  return options;
}

TEST(LargeGraphs, TheTimeToCompileGrowsWithTheGraph) {
  const auto seconds = [](int layers) {
    const Symbol symbol = Stack(layers);
    const CompileOptions options = ForTraining(symbol);
    const double start = CpuSeconds();
    Compile(symbol, options);
    return CpuSeconds() - start;
  };
  // The least of each: others on the machine can make a measurement too large only. By the square it would be 16 times.
  double small = 1e9, large = 1e9;
  int attempts = 0;
  do {
    small = std::min(small, seconds(1000));
    large = std::min(large, seconds(4000));
  } while (large >= 8 * small && ++attempts < 5);
  EXPECT_LT(large, 8 * small) << small << " s, four times the graph " << large << " s";
}

// So many storages that not all orders of placement are tried.
TEST(LargeGraphs, MemoryIsStillCloseToTheLeastPossible) {
  const Symbol symbol = Stack(3000);
  const auto program = Compile(symbol, ForTraining(symbol));
  const Plan& plan = program->plan;
  EXPECT_GT(plan.storages.size(), 4096u);
  EXPECT_LT(static_cast<double>(plan.arena_bytes), 1.05 * static_cast<double>(plan.peak_live_bytes));
}

}  // namespace
}  // namespace bindery
