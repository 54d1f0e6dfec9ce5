// bench: steps of the models by name, and the cost of a step's bookkeeping. Absolute times depend on the machine and
// its neighbours; the ratios, counts and bytes do not.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/memory.h"
#include "engine/team.h"
#include "tools/bench/client_bench.h"
#include "tools/bench/model_bench.h"
#include "tools/bench/roofline.h"
#include "tools/bench/table_bench.h"
#include "train/call_text.h"
#include "train/zoo.h"

namespace bindery::bench {
namespace {

const std::map<std::string, int64_t> kBatch = {{"mlp", 64}, {"lenet", 64}, {"resnet20", 128}};
constexpr int64_t kOtherBatch = 16;

nlohmann::json ToJson(const ModelBenchResult& r) {
  nlohmann::json json = {{"model", r.options.model},
                         {"batch", r.options.batch_size},
                         {"micro_batches", r.options.micro_batches},
                         {"phase", r.options.training ? "train" : "predict"},
                         {"devices", r.options.devices.size()},
                         {"resident", r.options.resident},
                         {"threads", r.threads},
                         {"bind_ms", r.bind_ms},
                         {"step_min_ms", r.min_ms},
                         {"step_median_ms", r.median_ms},
                         {"allocations_ours", r.allocations_ours},
                         {"allocations_libraries", r.allocations_libraries},
                         {"page_faults", r.page_faults},
                         {"arena_bytes", r.arena_bytes},
                         {"peak_live_bytes", r.peak_live_bytes},
                         {"plans_equal", r.plans_equal},
                         {"steps", r.calls_in_plan},
                         {"reorders", r.reorders}};
  for (const auto& [what, times] : r.of_gpus) json[std::string("gpu_") + what] = times;
  if (r.has_kernels)
    json.update({{"kernels_min_ms", r.kernels_min_ms},
                 {"kernels_median_ms", r.kernels_median_ms},
                 {"step_over_kernels", r.ratio}});
  for (const KernelTime& k : r.kernels)
    json["kernels"].push_back({{"op", k.op},
                               {"node", k.node},
                               {"implementation", k.implementation},
                               {"ms", k.milliseconds},
                               {"operations", k.operations},
                               {"bytes", k.bytes}});
  return json;
}

void Print(const ModelBenchResult& r, const Roofline* roofline) {
  const double mib = 1 << 20;
  fmt::print("{:9} batch {:3}{} {:8} {}x{}: step min {:.3f} median {:.3f} ms", r.options.model, r.options.batch_size,
             r.options.resident ? " on the device" : "", r.options.training ? "training" : "predict",
             r.options.devices.size(), r.threads, r.min_ms, r.median_ms);
  if (r.has_kernels)
    fmt::print(", kernels min {:.3f} median {:.3f} ms, step/kernels {:.3f}", r.kernels_min_ms, r.kernels_median_ms,
               r.ratio);
  fmt::print("\n");
  fmt::print(
      "          per step: allocations ours {:g}, libraries {:g}, page faults {:g}; arena {:.2f} MiB = {:.4f} of peak "
      "live; bind {:.0f} ms; {} steps, {} reorders; plans of two binds {}\n",
      r.allocations_ours, r.allocations_libraries, r.page_faults, static_cast<double>(r.arena_bytes) / mib,
      static_cast<double>(r.arena_bytes) / static_cast<double>(std::max<int64_t>(1, r.peak_live_bytes)), r.bind_ms,
      r.calls_in_plan, r.reorders, r.plans_equal ? "equal" : "DIFFER");
  if (!r.has_kernels) {
    fmt::print("          of GPUs per step:");
    for (const auto& [what, times] : r.of_gpus) fmt::print(" {} {:g}", what, times);
    fmt::print("\n");
  }
  if (roofline) return PrintRoofline(r.kernels, *roofline);
  for (const KernelTime& k : r.kernels)
    fmt::print("          {:9.4f} ms  {:24} {:32} {}\n", k.milliseconds, k.op, k.node, k.implementation);
}

// "1000000x64"
void ParseTable(const std::string& text, TableBenchOptions* options) {
  char rest = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 "x%" SCNd64 "%c", &options->rows, &options->width, &rest) != 2) {
    Throw("--table: expected rows and their length, as in 1000000x64, got \"{}\"", text);
  }
}

void CompareTables(TableBenchOptions options, bool json) {
  for (const char* optimizer : {"sgd(lr=0.1)", "sgd(lr=0.1, momentum=0.9)", "adam(lr=0.001)"}) {
    options.optimizer = optimizer;
    const TableBenchResult whole = RunTableBench(options, false), rows = RunTableBench(options, true);
    if (json) {
      fmt::print("{}\n", nlohmann::json{{"table", {options.rows, options.width}},
                                        {"indices", options.indices},
                                        {"optimizer", optimizer},
                                        {"whole_min_ms", whole.min_ms},
                                        {"whole_median_ms", whole.median_ms},
                                        {"rows_min_ms", rows.min_ms},
                                        {"rows_median_ms", rows.median_ms},
                                        {"rows_allocations_ours", rows.allocations_ours}}
                             .dump());
      continue;
    }
    fmt::print(
        "table {}x{}, {} indices, {}: step with whole gradients min {:.3f} median {:.3f} ms, by rows min {:.3f} median "
        "{:.3f} ms, {:.0f} times; allocations ours {:g}\n",
        options.rows, options.width, options.indices, optimizer, whole.min_ms, whole.median_ms, rows.min_ms,
        rows.median_ms, whole.median_ms / rows.median_ms, rows.allocations_ours);
    std::fflush(stdout);
  }
}

// `against`: "float32", or "remade": the precision with casts of parameters that each run makes.
void ComparePrecision(const ModelBenchOptions& options, const std::string& against, bool json) {
  ModelBenchOptions others = options;
  if (against == "remade") {
    others.derive = false;
  } else {
    others.precision = against;
  }
  const PairBenchResult r = RunPairBench(options, others);
  const char* phase = options.training ? "train" : "predict";
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"model", options.model},
                                      {"batch", options.batch_size},
                                      {"micro_batches", options.micro_batches},
                                      {"phase", phase},
                                      {"precision", options.precision},
                                      {"step_min_ms", r.min_ms},
                                      {"step_median_ms", r.median_ms},
                                      {against + "_min_ms", r.other_min_ms},
                                      {against + "_median_ms", r.other_median_ms},
                                      {"times_as_fast", r.ratio}}
                           .dump());
  } else {
    fmt::print(
        "{:9} batch {:3}{} {:8} {}: step min {:.3f} median {:.3f} ms; {}: min {:.3f} median {:.3f} ms; {:.2f} times as "
        "fast\n",
        options.model, options.batch_size,
        options.micro_batches > 1 ? fmt::format(" in {}", options.micro_batches) : std::string(), phase,
        options.precision, r.min_ms, r.median_ms, against, r.other_min_ms, r.other_median_ms, r.ratio);
  }
}

// What it costs to get the same bits on any number of devices.
void CompareBlocks(const ModelBenchOptions& options, bool json) {
  ModelBenchOptions others = options;
  others.block = 0;
  const PairBenchResult r = RunPairBench(options, others);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"model", options.model},
                                      {"batch", options.batch_size},
                                      {"devices", options.devices.size()},
                                      {"block", options.block},
                                      {"step_min_ms", r.min_ms},
                                      {"step_median_ms", r.median_ms},
                                      {"whole_min_ms", r.other_min_ms},
                                      {"whole_median_ms", r.other_median_ms},
                                      {"times_as_long", 1 / r.ratio}}
                           .dump());
  } else {
    fmt::print(
        "{:9} batch {:3} train on {} in reproducible blocks of {}: step min {:.3f} median {:.3f} ms; whole: min {:.3f} "
        "median {:.3f} ms; {:.2f} times as long\n",
        options.model, options.batch_size, options.devices.size(), options.block, r.min_ms, r.median_ms, r.other_min_ms,
        r.other_median_ms, 1 / r.ratio);
  }
}

// What recomputation costs, and spares.
void CompareMirror(const ModelBenchOptions& options, const std::string& mirror, bool json) {
  ModelBenchOptions others = options;
  others.mirror = {};
  const PairBenchResult r = RunPairBench(options, others);
  const double share = static_cast<double>(r.arena_bytes) / static_cast<double>(r.other_arena_bytes);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"model", options.model},
                                      {"batch", options.batch_size},
                                      {"mirror", mirror},
                                      {"step_min_ms", r.min_ms},
                                      {"step_median_ms", r.median_ms},
                                      {"off_min_ms", r.other_min_ms},
                                      {"off_median_ms", r.other_median_ms},
                                      {"times_as_long", 1 / r.ratio},
                                      {"arena_bytes", r.arena_bytes},
                                      {"off_arena_bytes", r.other_arena_bytes},
                                      {"calls_again", r.again},
                                      {"same_bits", r.same_bits}}
                           .dump());
  } else {
    fmt::print(
        "{:9} batch {:3} train, mirror {}: working memory {:.1f} MiB, {:.3f} of {:.1f} MiB without; step min {:.3f} "
        "median {:.3f} ms; without: min {:.3f} median {:.3f} ms; {:.3f} times as long; {} calls again; bits {}\n",
        options.model, options.batch_size, mirror, static_cast<double>(r.arena_bytes) / (1 << 20), share,
        static_cast<double>(r.other_arena_bytes) / (1 << 20), r.min_ms, r.median_ms, r.other_min_ms, r.other_median_ms,
        1 / r.ratio, r.again, r.same_bits ? "equal" : "DIFFER");
  }
}

// A share, as 50%, or "least".
Mirror ParseShare(const std::string& text) {
  if (text == "least") return {.least = true};
  double percent = 0;
  char sign = 0, rest = 0;
  if (std::sscanf(text.c_str(), "%lf%c%c", &percent, &sign, &rest) != 2 || sign != '%' || !(percent > 0)) {
    Throw("--mirror: expected a share of the working memory as 50%, or least, got \"{}\"", text);
  }
  return {.share = percent / 100};
}

void CompareClients(const ClientBenchOptions& options, bool json) {
  const ClientBenchResult r = RunClientBench(options);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"model", options.model},
                                      {"batch", options.batch_size},
                                      {"clients", options.clients},
                                      {"threads", options.threads},
                                      {"one_per_second", r.one_per_second},
                                      {"all_per_second", r.all_per_second},
                                      {"times_as_many", r.ratio},
                                      {"slowest_over_mean", r.slowest_over_mean},
                                      {"allocations_ours", r.allocations_ours},
                                      {"different", r.different}}
                           .dump());
  } else {
    fmt::print(
        "{:9} batch {:3} predict for {} clients: {:.0f} requests a second; for one: {:.0f}; {:.2f} times as many; "
        "the slowest took {:.1f} times the mean; per request: allocations ours {:g}; {}\n",
        options.model, options.batch_size, options.clients, r.all_per_second, r.one_per_second, r.ratio,
        r.slowest_over_mean, r.allocations_ours,
        r.different == 0 ? "all the same bits" : fmt::format("{} DIFFER", r.different));
  }
}

int Main(int argc, char** argv) {
  KeepFreedMemory();
  CLI::App app(
      "Bindery's benchmarks: training and prediction steps of models by name, and a chain of one-element operators.",
      "bench");
  std::string models = "mlp,lenet,resnet20,resnet50", devices = "cpu:0", phase = "both", against = "float32", table,
              mirror, tune = "off";
  ModelBenchOptions options;
  int64_t batch = 0;
  int clients = 0;
  bool json = false, chain = true, by_roofline = false;
  app.add_option("--model", models, "models by name, with commas between, as in mlp,gpt(layers=6,width=384)")
      ->capture_default_str();
  app.add_option("--batch-size", batch, "default: 64 for mlp and lenet, 128 for resnet20, 16 for others");
  app.add_option("--micro-batches", options.micro_batches, "equal ones, that a batch is cut into")
      ->capture_default_str();
  app.add_option("--reproducible", options.block,
                 "training steps in blocks of so many samples, the same bits on any devices, and others, in turns")
      ->check(CLI::PositiveNumber);
  app.add_option("--mirror", mirror,
                 "training steps that compute values again in so much of the working memory, e.g. 50%, or least, and "
                 "others, in turns; with --per-kernel alone");
  app.add_option("--tune", tune,
                 "convolutions chosen by what they cost here; alone: measured; winograd: with Winograd's; off")
      ->expected(0, 1)
      ->default_str("measured")
      ->option_text("[TEXT]");
  app.add_option("--phase", phase, "train, predict or both")
      ->check(CLI::IsMember({"train", "predict", "both"}))
      ->capture_default_str();
  app.add_option("--device", devices, "e.g. cpu:0,cpu:1")->capture_default_str();
  app.add_flag("--resident", options.resident,
               "the batch is on the device from the beginning: a step copies nothing there");
  app.add_option("--threads", options.threads, "per device; 0: the cores, shared out")->capture_default_str();
  app.add_option("--steps", options.steps, "steps measured")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warmup", options.warmup, "steps before")->capture_default_str();
  app.add_option(
         "--precision", options.precision,
         "e.g. bfloat16, or int8 with --phase predict: steps in it and in float32, in turns; with --per-kernel in "
         "it alone")
      ->capture_default_str();
  app.add_option(
         "--against", against,
         "what steps in a precision take turns with: float32, or remade, the precision with casts of parameters "
         "that each run makes")
      ->check(CLI::IsMember({"float32", "remade"}))
      ->capture_default_str();
  app.add_flag("--per-kernel", options.per_kernel, "list every kernel");
  app.add_flag("--roofline", by_roofline,
               "list every kernel with its operations and bytes, and the share of what the machine's arithmetic or "
               "memory, measured first, could do at best; then all kernels of each operator together");
  app.add_flag("--chain,!--no-chain", chain, "measure the chain of one-element operators")->capture_default_str();
  app.add_option(
      "--table", table,
      "instead of models: steps with a table of this size, e.g. 1000000x64, by the gradient of all of it and "
      "by that of the rows looked up, --batch-size of them (1024)");
  app.add_option("--clients", clients,
                 "instead of steps: requests a second that so many threads get of one Predictor, beside one thread "
                 "alone, in turns; --batch-size of a request (1), --threads of each (1)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", json, "JSON lines");
  CLI11_PARSE(app, argc, argv);
  options.devices = ParseDevices(devices);
  if (!mirror.empty()) options.mirror = ParseShare(mirror);
  options.tuning = ParseTuning(tune);
  if (!table.empty()) {
    TableBenchOptions of_table{.indices = batch > 0 ? batch : 1024,
                               .devices = options.devices,
                               .threads = options.threads,
                               .steps = options.steps,
                               .warmup = options.warmup};
    ParseTable(table, &of_table);
    CompareTables(of_table, json);
    return 0;
  }
  std::optional<Roofline> roofline;
  if (by_roofline) {
    options.per_kernel = true;
    const int threads = options.threads > 0 ? options.threads : NumCores();
    roofline = MeasureRoofline(threads);
    if (json) {
      fmt::print("{}\n",
                 nlohmann::json{
                     {"threads", threads}, {"peak_gflops", roofline->operations}, {"memory_gb_per_s", roofline->bytes}}
                     .dump());
    } else {
      fmt::print("roofline of {} threads: {:.1f} GFLOP/s in float32, {:.1f} GB/s from and to memory\n", threads,
                 roofline->operations, roofline->bytes);
    }
  }
  if (chain && clients == 0) {
    const double ns = ChainNanoseconds(1000);
    if (json) {
      fmt::print("{}\n", nlohmann::json{{"chain_ns_per_operator", ns}, {"length", 1000}}.dump());
    } else {
      fmt::print("chain of 1000 one-element operators: {:.1f} ns each\n", ns);
    }
  }
  for (const std::string& model : SplitCalls(models)) {
    options.model = model;
    ModelInputShape(model);  // throws for an unknown name
    if (clients > 0) {
      CompareClients({.model = model,
                      .batch_size = batch > 0 ? batch : 1,
                      .clients = clients,
                      .device = options.devices.at(0),
                      .threads = options.threads > 0 ? options.threads : 1},
                     json);
      std::fflush(stdout);
      continue;
    }
    const auto own = kBatch.find(model);
    options.batch_size = batch > 0 ? batch : own == kBatch.end() ? kOtherBatch : own->second;
    for (const bool training : {true, false}) {
      if (phase == (training ? "predict" : "train")) continue;
      options.training = training;
      if (options.block > 0) {
        if (training) CompareBlocks(options, json);
        std::fflush(stdout);
        continue;
      }
      if (options.mirror.IsOn() && !options.per_kernel) {
        if (training) CompareMirror(options, mirror, json);
        std::fflush(stdout);
        continue;
      }
      if (options.precision != "float32" && !options.per_kernel) {
        ComparePrecision(options, against, json);
        std::fflush(stdout);
        continue;
      }
      const ModelBenchResult result = RunModelBench(options);
      if (json) {
        fmt::print("{}\n", ToJson(result).dump());
      } else {
        Print(result, roofline ? &*roofline : nullptr);
      }
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace bindery::bench

int main(int argc, char** argv) {
  try {
    return bindery::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench: {}\n", e.what());
    return 1;
  }
}
