#include "tools/bench/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/isa.h"
#include "engine/kernels/flat.h"
#include "engine/team.h"

namespace bindery::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Twelve chains of multiply-add, as many as hide its latency and fit in 16 registers; each returns operations.
constexpr int kChains = 12;
constexpr float kFactor = 0.999f, kAddend = 1e-3f;

double MultiplyAdds128(int64_t times) {
  typedef float Four __attribute__((vector_size(16)));
  Four sums[kChains], factor = Four{} + kFactor, addend = Four{} + kAddend;
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = Four{} + static_cast<float>(i);  // or compilers make one of two
  for (int64_t n = 0; n < times; ++n) {
#pragma GCC unroll 12
    for (Four& sum : sums) sum = sum * factor + addend;
    asm volatile("" : "+x"(factor), "+x"(addend));
  }
  Four all{};
#pragma GCC unroll 12
  for (const Four& sum : sums) all += sum;
  asm volatile("" : : "x"(all));
  return 2.0 * 4 * kChains * static_cast<double>(times);
}

#if defined(__x86_64__)
// In assembler: g++ 12 makes two instructions of one in vectors of 16, or keeps sums in memory.
// clang-format off
#define BINDERY_CHAINS(vector)                                                                         \
  asm volatile("vzeroall\n"                                                                            \
               "vbroadcastss %1, %%" vector "14\n"                                                     \
               "vbroadcastss %2, %%" vector "15\n"                                                     \
               "1: .irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"                                     \
               "vfmadd213ps %%" vector "14, %%" vector "15, %%" vector "\\i\n"                        \
               ".endr\n"                                                                               \
               "dec %0\n"                                                                              \
               "jnz 1b\n"                                                                              \
               "vzeroupper\n"                                                                          \
               : "+r"(times)                                                                           \
               : "m"(kAddend), "m"(kFactor)                                                            \
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
                 "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")
// clang-format on
double MultiplyAdds256(int64_t times) {
  const double operations = 2.0 * 8 * kChains * static_cast<double>(times);
  BINDERY_CHAINS("ymm");
  return operations;
}
double MultiplyAdds512(int64_t times) {
  const double operations = 2.0 * 16 * kChains * static_cast<double>(times);
  BINDERY_CHAINS("zmm");
  return operations;
}
#endif
using Multiplies = double (*)(int64_t times);
// More than one, for some processors do half as much in their longest vectors: Zen 4 at times puts all of such a loop
// on one of its two pipes.
std::vector<Multiplies> MultipliesOfMachine() {
  std::vector<Multiplies> all = {MultiplyAdds128};
#if defined(__x86_64__)
  if (MachineIsa() >= Isa::kAvx2) all.push_back(MultiplyAdds256);
  if (MachineIsa() == Isa::kAvx512) all.push_back(MultiplyAdds512);
#endif
  return all;
}

// The best of several runs of f, which returns how much it did, in thousands of millions a second.
template <class F>
double BestRate(const F& f) {
  double best = 0;
  for (int run = 0; run < 30; ++run) {
    const Clock::time_point start = Clock::now();
    const double amount = f();
    best = std::max(best, amount / std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return best;
}

Roofline Measure(int threads) {
  const TeamScope team(threads);
  Roofline roofline;
  for (const Multiplies multiply : MultipliesOfMachine()) {
    const double rate = BestRate([&] {
      std::atomic<double> operations = 0;
      ParallelFor(threads, 1, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) operations += multiply(1 << 21);
      });
      return operations.load();
    });
    roofline.operations = std::max(roofline.operations, rate);
  }
  constexpr int64_t kElements = 32 << 20;  // more than caches hold
  std::vector<float> in(kElements, 1.0f), out(kElements, 1.0f);
  roofline.bytes = BestRate([&] {
    flat::Add(DType::kFloat32, in.data(), out.data(), kElements);
    return 3.0 * sizeof(float) * static_cast<double>(kElements);
  });
  return roofline;
}

}  // namespace

double Roofline::Share(double operations_of_kernel, double bytes_of_kernel, double milliseconds) const {
  if (milliseconds <= 0) return 0;
  return std::max(operations_of_kernel / operations, bytes_of_kernel / bytes) * 1e-6 / milliseconds;
}

bool Roofline::IsBoundByMemory(double operations_of_kernel, double bytes_of_kernel) const {
  return bytes_of_kernel / bytes > operations_of_kernel / operations;
}

// In a thread of its own, whose team ends with it: OpenMP's threads do not wait for work but sleep at once where there
// are more of them than cores, and small networks would be measured with 40 us for each time that they are woken.
Roofline MeasureRoofline(int threads) {
  Roofline roofline;
  std::thread([&] { roofline = Measure(threads); }).join();
  return roofline;
}

void PrintRoofline(const std::vector<KernelTime>& kernels, const Roofline& roofline) {
  struct Sum {
    int calls = 0;
    double milliseconds = 0, operations = 0, ideal = 0;
  };
  std::map<std::string, Sum> operators;
  double all = 0;
  fmt::print("          {:>9} {:>8} {:>8} {:>9} {:>8} {:>6} of  {}\n", "ms", "MFLOP", "MiB", "GFLOP/s", "GB/s", "share",
             "kernel");
  for (const KernelTime& k : kernels) {
    if (k.milliseconds <= 0) continue;  // of values that are derived once
    const double share = roofline.Share(k.operations, k.bytes, k.milliseconds);
    fmt::print("          {:9.4f} {:8.1f} {:8.2f} {:9.1f} {:8.1f} {:6.2f} {}  {} {} {}\n", k.milliseconds,
               k.operations * 1e-6, k.bytes / (1 << 20), k.operations * 1e-6 / k.milliseconds,
               k.bytes * 1e-6 / k.milliseconds, share,
               roofline.IsBoundByMemory(k.operations, k.bytes) ? "memory" : "FMA   ", k.op, k.node, k.implementation);
    Sum& sum = operators[k.op];
    ++sum.calls;
    sum.milliseconds += k.milliseconds;
    sum.operations += k.operations;
    sum.ideal += share * k.milliseconds;
    all += k.milliseconds;
  }
  std::vector<std::pair<std::string, Sum>> longest(operators.begin(), operators.end());
  std::ranges::sort(longest, std::greater(), [](const auto& row) { return row.second.milliseconds; });
  fmt::print("          {:>9} {:>8} {:>9} {:>6}  {}\n", "ms", "of all", "GFLOP/s", "share", "operator, calls");
  for (const auto& [name, sum] : longest) {
    fmt::print("          {:9.4f} {:7.1f}% {:9.1f} {:6.2f}  {}, {}\n", sum.milliseconds, 100 * sum.milliseconds / all,
               sum.operations * 1e-6 / sum.milliseconds, sum.ideal / sum.milliseconds, name, sum.calls);
  }
}

}  // namespace bindery::bench
