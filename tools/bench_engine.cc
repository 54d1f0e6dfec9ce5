// Prints what the engine and the flat loops cost on this machine: bazel run //tools:bench_engine [engine|flat]
// Each figure is the median of 9 runs; `min` beside it tells how quiet the machine was.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/update_kernels.h"
#include "engine/kernels/update_rules.h"
#include "engine/memory/storage.h"
#include "engine/team.h"

namespace {

using namespace bindery;

constexpr int kRuns = 9;

double SecondsOf(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One line: seconds of `run` times `scale`, in `unit`.
void Print(const std::string& what, const char* unit, double scale, const std::function<void()>& run) {
  run();
  std::vector<double> values;
  for (int i = 0; i < kRuns; ++i) values.push_back(SecondsOf(run) * scale);
  std::sort(values.begin(), values.end());
  fmt::print("{:<58} {:>9.1f} {:<4} (min {:.1f})\n", what, values[kRuns / 2], unit, values[0]);
}

void BenchEngine(Engine& engine) {
  const VarPtr data = engine.NewVar(), weight = engine.NewVar(), out = engine.NewVar();
  std::atomic<int64_t> runs{0};
  const PreparedPtr none = engine.Prepare({"empty", Cpu(0), {}, {}, {}, [](const OpContext&) {}});
  const PreparedPtr three = engine.Prepare({"empty", Cpu(0), {data, weight}, {}, {out}, [](const OpContext&) {}});
  const PreparedPtr other = engine.Prepare({"empty", Cpu(1), {out}, {}, {data}, [](const OpContext&) {}});
  const PreparedPtr count = engine.Prepare(
      {"count", Cpu(0), {}, {}, {out}, [&](const OpContext&) { runs.fetch_add(1, std::memory_order_release); }});
  constexpr int kPushes = 20'000;
  const std::string name = std::string(engine.name()) + ": ";
  const double each = 1e9 / kPushes;
  Print(name + "push and run, no variables", "ns", each, [&] {
    for (int i = 0; i < kPushes; ++i) engine.Push(none);
    engine.WaitAll();
  });
  Print(name + "push and run, 3 variables", "ns", each, [&] {
    for (int i = 0; i < kPushes; ++i) engine.Push(three);
    engine.WaitAll();
  });
  if (name != "inline: ") {
    Print(name + "push and run, alternating between 2 devices", "ns", each, [&] {
      for (int i = 0; i < kPushes; i += 2) {
        engine.Push(three);
        engine.Push(other);
      }
      engine.WaitAll();
    });
  }
  Print(name + "from Push to its effect, worker awake", "ns", each, [&] {
    for (int i = 0; i < kPushes; ++i) {
      const int64_t before = runs.load(std::memory_order_relaxed);
      engine.Push(count);
      while (runs.load(std::memory_order_acquire) == before) {
      }
    }
  });
  Print(name + "Push and Wait, worker awake", "ns", each, [&] {
    for (int i = 0; i < kPushes; ++i) {
      engine.Push(count);
      engine.Wait(out);
    }
  });
  if (name != "inline: ") {
    std::vector<double> values;
    for (int i = 0; i < 200; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      values.push_back(1e6 * SecondsOf([&] {
                         engine.Push(count);
                         engine.Wait(out);
                       }));
    }
    std::sort(values.begin(), values.end());
    fmt::print("{:<58} {:>9.1f} {:<4} (min {:.1f})\n", name + "Push and Wait, worker asleep", values[100], "us",
               values[0]);
  }
}

void BenchFlat(int threads) {
  const TeamScope scope(threads);
  constexpr int64_t kElements = 32 << 20;
  const int64_t bytes = kElements * sizeof(float);
  std::vector<std::shared_ptr<Chunk>> chunks;
  for (int i = 0; i < 4; ++i) {
    chunks.push_back(DefaultStorage()->Allocate(Cpu(0), bytes));
    flat::Fill(DType::kFloat32, chunks.back()->data(), kElements, 1e-3);
  }
  void* const weight = chunks[0]->data();
  void* const state = chunks[1]->data();
  const void* const grads[] = {chunks[2]->data(), chunks[3]->data()};
  const auto rate = [&](const char* what, int64_t arrays, const std::function<void()>& run) {
    run();
    std::vector<double> values;
    for (int i = 0; i < kRuns; ++i) values.push_back(1e-9 * static_cast<double>(arrays * bytes) / SecondsOf(run));
    std::sort(values.begin(), values.end());
    fmt::print("{:<58} {:>9.1f} {:<4} (max {:.1f})\n", fmt::format("flat, {} threads: {}", threads, what),
               values[kRuns / 2], "GB/s", values.back());
  };
  rate("copy", 2, [&] { flat::Copy(weight, chunks[3]->data(), bytes); });
  rate("add", 3, [&] { flat::Add(DType::kFloat32, state, weight, kElements); });
  const auto update = [&](std::span<const void* const> gradients, std::span<void* const> copies) {
    const double momentum = 0.9;
    BuiltInKernelOf<update_rules::Momentum>()(DType::kFloat32, {.weight_decay = 1e-4, .settings = {&momentum, 1}},
                                              {.gradients = gradients,
                                               .weight = weight,
                                               .new_weight = weight,
                                               .states = {&state, 1},
                                               .new_states = {&state, 1},
                                               .copies = copies,
                                               .elements = kElements});
  };
  void* const replica = chunks[3]->data();
  rate("sgd, momentum, 1 gradient", 5, [&] { update({grads, 1}, {}); });
  rate("sgd, momentum, 2 gradients", 6, [&] { update(grads, {}); });
  rate("sgd, momentum, 1 gradient, 1 replica", 6, [&] { update({grads, 1}, {&replica, 1}); });
  rate("sum of squares", 1, [&] { flat::SumOfSquares(DType::kFloat32, weight, kElements); });
  rate("all finite", 1, [&] { flat::AllFinite(DType::kFloat32, weight, kElements); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  if (only != "flat") {
    BenchEngine(*MakeThreadedEngine());
    BenchEngine(*MakeInlineEngine());
  }
  if (only == "engine") return 0;
  for (int threads = 1; threads <= NumCores(); threads *= 2) BenchFlat(threads);
}
