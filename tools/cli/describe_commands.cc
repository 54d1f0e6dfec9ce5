// bindery inspect, bindery devices: look without running.
#include <fmt/format.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "engine/cuda/report.h"
#include "engine/isa.h"
#include "engine/team.h"
#include "symbol/print/summary.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_lines.h"
#include "tools/cli/model_inputs.h"
#include "tools/cli/options.h"
#include "tools/pages/model_json.h"
#include "tools/pages/model_page.h"
#include "train/data/open.h"
#include "train/data/preprocessing.h"
#include "train/memory.h"
#include "train/precision.h"

namespace bindery::cli {
namespace {

struct InspectCommand {
  ModelOptions model;
  DeviceOptions device{.devices = "cpu:0"};
  GivenShapes shape;
  std::string precision = "float32", mirror = "off", tune = "off", memory_limit, optimizer, dot, html;
  int64_t batch_size = 64;
  bool plan = false, memory = false, predict = false, json = false;
  int Run() const;
  void CheckViews() const;
  int ShowLargestBatch(const Symbol& symbol, const std::vector<DataDesc>& inputs) const;
};

// Throws ShapeError unless the values that the model has are of the shapes that follow from its data's.
void CheckValuesFit(const Model& model, const ShapeMap& data) {
  const InferredShapes shapes = InferShapesPartial(model.symbol, data);
  const std::vector<std::string> names = model.symbol.ListArguments();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto value = model.params.find(names[i]);
    if (value == model.params.end() || !shapes.arguments[i] || !shapes.arguments[i]->IsKnown()) continue;
    if (*shapes.arguments[i] == value->second.shape()) continue;
    Throw<ShapeError>("data of {} do not fit the model: its \"{}\" is {}, they make it {}", data.begin()->second,
                      names[i], value->second.shape(), *shapes.arguments[i]);
  }
}

// What becomes of its data before it sees them, and what its classes are called.
void PrintWhatItKnows(const Model& model) {
  const SettingTexts settings = ParsePreprocessing(Preprocessing(model));
  if (!settings.empty()) fmt::print("\npreprocessing\n");
  size_t width = 10;
  for (const auto& [name, value] : settings) width = std::max(width, name.size());
  for (const auto& [name, value] : settings) fmt::print("  {:<{}} {}\n", name, width, value);
  const std::vector<std::string> classes = ClassNames(model);
  if (!classes.empty()) fmt::print("\nclasses\n");
  for (size_t i = 0; i < classes.size(); ++i) fmt::print("  {:<10} {}\n", i, classes[i]);
}

// What bytes of a device are for, and how many.
void PrintMemory(const MemoryNeed& need) {
  fmt::print("{}", ToString(need.program));
  if (need.optimizer == 0) return;
  fmt::print("  {:<28}{:>14} bytes  {:>9.2f} MiB\n  {:<28}{:>14} bytes  {:>9.2f} MiB\n", "optimizer, beside the total",
             need.optimizer, static_cast<double>(need.optimizer) / (1 << 20), "with it", need.total(),
             static_cast<double>(need.total()) / (1 << 20));
}

GroupOptions GroupFor(const InspectCommand& c, const std::vector<DataDesc>& inputs) {
  // Whatever it takes to fit a batch.
  Mirror mirror = ParseMirror(c.mirror);
  if (mirror.bytes == Mirror::kAutomatic) mirror = {.least = true};
  return {.devices = c.device.Devices(),
          .workload = c.device.workload,
          .data = inputs,
          .for_training = !c.predict,
          .mirror = mirror,
          .threads_per_device = c.device.threads,
          .switches = {.tuning = TuningOf(c.tune)}};
}

std::shared_ptr<const Optimizer> OptimizerOf(const InspectCommand& c) {
  if (c.optimizer.empty()) return nullptr;
  try {
    return MakeOptimizer(c.optimizer);
  } catch (const Error& e) {
    throw UsageError("--optimizer: " + e.message());
  }
}

int InspectCommand::ShowLargestBatch(const Symbol& symbol, const std::vector<DataDesc>& inputs) const {
  const int64_t limit = ParseBytes("--memory-limit", memory_limit);
  constexpr int64_t kMost = 1 << 20;
  const std::shared_ptr<const Optimizer> rule = OptimizerOf(*this);
  const auto plan = [&](int64_t samples) {
    std::vector<DataDesc> given = inputs;
    for (DataDesc& input : given) {
      if (input.BatchAxis() >= 0) input.shape.Set(input.BatchAxis(), samples);
    }
    return PlanMemory(symbol, GroupFor(*this, given), rule.get());
  };
  const int64_t largest =
      LargestThatFits(kMost, [&](int64_t samples) { return WhatIsShort(plan(samples), limit).empty(); });
  const char* const purpose = predict ? "prediction" : "training";
  if (largest == 0) {
    Throw<DeviceError>("no batch fits: of one sample, {}", WhatIsShort(plan(1), limit));
  }
  fmt::print("largest batch for {} in {} of each device: {}{}\n", purpose, Mebibytes(limit), largest,
             largest == kMost ? " or more" : "");
  for (const MemoryNeed& need : plan(largest)) {
    fmt::print("{} ({} samples, {})\n", need.device, need.samples, purpose);
    PrintMemory(need);
  }
  return kOk;
}

// A call shows one thing.
void InspectCommand::CheckViews() const {
  const std::string view = !dot.empty()    ? "--dot"
                           : !html.empty() ? "--html"
                           : plan          ? "--plan"
                           : memory        ? "--memory"
                                           : "";
  if (!dot.empty() && (plan || memory)) throw UsageError("--dot draws the graph; --plan and --memory are another call");
  if (!html.empty() && (plan || memory || !dot.empty())) {
    throw UsageError("--html has layers, plan and memory; --plan, --memory and --dot are another call");
  }
  if (!memory_limit.empty() && (plan || !dot.empty() || !html.empty())) {
    throw UsageError("--memory-limit asks for the largest batch; --plan, --dot and --html are another call");
  }
  if (!optimizer.empty() && (predict || (!memory && memory_limit.empty()))) {
    throw UsageError("--optimizer counts its state in the memory of a training: --memory or --memory-limit");
  }
  if (ParseMirror(mirror).IsOn() && (predict || (!memory && !plan && memory_limit.empty()))) {
    throw UsageError("--mirror changes the plan and the memory of a training: --plan, --memory or --memory-limit");
  }
  if (TuningOf(tune) != Tuning::kOff && !memory && !plan && !json && html.empty() && memory_limit.empty()) {
    throw UsageError("--tune changes the plan and its memory: --plan, --memory, --memory-limit, --html or --json");
  }
  if (mirror == "auto" && memory_limit.empty()) throw UsageError("--mirror auto needs a --memory-limit");
  if (json && !memory_limit.empty()) throw UsageError("--json has layers, plan and memory; --memory-limit is text");
  if (json && !view.empty())
    throw UsageError(fmt::format("--json has layers, plan and memory; {} is another call", view));
  if (!dot.empty() && dot != "-") CheckOutputFile("--dot", dot);
  if (!html.empty()) CheckOutputFile("--html", html);
  model.CheckKept({{"--dot", dot == "-" ? "" : dot}, {"--html", html}});
}

int InspectCommand::Run() const {
  CheckViews();
  device.Devices();  // is checked, whatever is shown
  try {
    ParsePrecision(precision);
  } catch (const Error& e) {
    throw UsageError("--precision: " + e.message());
  }
  Model loaded = model.Load(GivenSample(shape));  // a model by name takes any shape
  loaded.symbol = InPrecision(loaded.symbol, precision, {});
  const std::vector<DataDesc> inputs = DescribeInputs(loaded, shape, batch_size);
  const ShapeMap shapes = ShapesOf(inputs);
  CheckValuesFit(loaded, shapes);
  if (!dot.empty()) {
    const std::string drawn = ToDot(loaded.symbol, shapes);
    dot == "-" ? fmt::print("{}", drawn) : WriteFileAtomically(dot, drawn);
    return kOk;
  }
  if (memory_limit.empty() && !plan && !memory && !json && html.empty()) {
    fmt::print("{}", Summary(loaded.symbol, shapes));
    PrintWhatItKnows(loaded);
    return kOk;
  }
  CheckShapesKnown(inputs);
  if (!memory_limit.empty()) return ShowLargestBatch(loaded.symbol, inputs);
  GroupOptions options = GroupFor(*this, inputs);
  const std::shared_ptr<const Optimizer> rule = OptimizerOf(*this);
  std::vector<DevicePlan> plans;
  try {
    plans = DataParallelExecutorGroup::MakePlans(loaded.symbol, options);
  } catch (const Error&) {
    // A program that asks what a model is need not know whether it can be trained: not where it ends in an ArgMax, say.
    if (!json || predict) throw;
    options.for_training = false;
    plans = DataParallelExecutorGroup::MakePlans(loaded.symbol, options);
  }
  if (json || !html.empty()) {
    ModelPageOptions page{.name = model.Name(), .purpose = options.for_training ? "training" : "prediction"};
    const std::vector<MemoryNeed> needs = NeedsOf(plans, options, /*optimizer=*/nullptr, /*average=*/false);
    for (size_t i = 0; i < plans.size(); ++i) {
      page.devices.push_back({ToString(plans[i].device), plans[i].samples.size(), &plans[i].plan, needs[i].program});
    }
    if (json) {
      nlohmann::json line = ModelJson(loaded.symbol, shapes, page);
      line["preprocessing"] = Preprocessing(loaded);
      line["classes"] = ClassNames(loaded);
      PrintLine(line);
    } else {
      WriteFileAtomically(html, ModelPage(loaded.symbol, shapes, page));
    }
    return kOk;
  }
  const std::vector<MemoryNeed> needs = NeedsOf(plans, options, rule.get(), /*average=*/false);
  for (size_t i = 0; i < plans.size(); ++i) {
    fmt::print("{} ({} samples, {})\n", plans[i].device, plans[i].samples.size(), predict ? "prediction" : "training");
    if (memory) PrintMemory(needs[i]);
    if (memory && ParseMirror(mirror).IsOn()) {
      const std::vector<PlanCall>& calls = plans[i].plan.calls;
      fmt::print("  computed again in backward: {} of {} calls\n", std::ranges::count(calls, true, &PlanCall::again),
                 calls.size());
    }
    if (plan) fmt::print("{}", ToString(plans[i].plan));
  }
  return kOk;
}

int ListDevices(bool json) {
  struct sysinfo info {};
  sysinfo(&info);
  const double gib = static_cast<double>(info.totalram) * info.mem_unit / (1 << 30);
  const char* isa = ToString(MachineIsa());
  const CudaReport cuda = ReportCuda();
  const auto gib_of = [](const CudaReport::Gpu& gpu) { return static_cast<double>(gpu.bytes) / (1 << 30); };
  if (json) {
    nlohmann::json devices = {{{"name", "cpu"}, {"cores", NumCores()}, {"memory_gib", gib}, {"instructions", isa}}};
    for (size_t i = 0; i < cuda.gpus.size(); ++i) {
      const CudaReport::Gpu& gpu = cuda.gpus[i];
      devices.push_back({{"name", ToString(Cuda(static_cast<int>(i)))},
                         {"model", gpu.name},
                         {"memory_gib", gib_of(gpu)},
                         {"compute_capability", gpu.capability}});
    }
    nlohmann::json libraries = nlohmann::json::object();
    for (const CudaReport::Library& library : cuda.libraries) libraries[library.name] = library.version;
    const nlohmann::json line = {
        {"devices", devices}, {"cuda", {{"problem", cuda.problem}, {"driver", cuda.driver}, {"libraries", libraries}}}};
    fmt::print("{}\n", line.dump());
    return kOk;
  }
  fmt::print("cpu   {} cores, {:.1f} GiB, {}; cpu:0, cpu:1 ... are workers over the same memory\n", NumCores(), gib,
             isa);
  for (size_t i = 0; i < cuda.gpus.size(); ++i) {
    const CudaReport::Gpu& gpu = cuda.gpus[i];
    fmt::print("{}  {}, {:.1f} GiB, compute capability {}\n", Cuda(static_cast<int>(i)), gpu.name, gib_of(gpu),
               gpu.capability);
  }
  if (!cuda.problem.empty()) fmt::print("cuda  none: {}\n", cuda.problem);
  if (!cuda.driver.empty()) fmt::print("      driver for CUDA {}\n", cuda.driver);
  for (const CudaReport::Library& library : cuda.libraries) {
    fmt::print("      {} {}\n", library.name,
               library.version.empty() ? "not found: " + library.problem : library.version);
  }
  return kOk;
}

}  // namespace

void AddInspect(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<InspectCommand>();
  CLI::App* sub = app->add_subcommand("inspect", "show a model: layers, plan, memory, drawing");
  c->model.AddTo(sub);
  c->model.AddVariantsTo(sub);
  c->device.AddTo(sub);
  AddShape(sub, &c->shape);
  AddNumber(sub, "--batch-size", &c->batch_size, 1, 1'000'000, "where --shape is not given");
  sub->add_option("--precision", c->precision, "float32, bfloat16 or float16, as of train")->capture_default_str();
  sub->add_flag("--plan", c->plan, "the compiled program of each device");
  sub->add_flag("--memory", c->memory, "bytes by what they are for, before anything is trained");
  sub->add_option("--mirror", c->mirror, "of a training, as of train; \"auto\" with --memory-limit")
      ->capture_default_str();
  AddTune(sub, &c->tune);
  sub->add_option("--memory-limit", c->memory_limit,
                  "the largest batch that fits in so much of each device: e.g. 512M, 1.5G");
  sub->add_option("--optimizer", c->optimizer, "with its state in the memory, e.g. adam");
  sub->add_flag("--predict", c->predict, "plan and memory of prediction instead of training");
  sub->add_option("--dot", c->dot, "write the graph for Graphviz to this file; \"-\": to standard output");
  sub->add_option("--html", c->html, "write a page with layers, shapes, plan and memory to this file");
  sub->add_flag("--json", c->json, "layers, shapes, plan and memory as JSON on standard output (docs/seeing.md)");
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

void AddDevices(CLI::App* app, RunFn* run) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* sub = app->add_subcommand("devices", "list the devices of this machine");
  sub->add_flag("--json", *json, "JSON on standard output");
  sub->callback([json, run] { *run = [json] { return ListDevices(*json); }; });
}

}  // namespace bindery::cli
