// bindery inspect, bindery devices: look without running.
#include <fmt/format.h>
#include <sys/sysinfo.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "engine/cuda/report.h"
#include "engine/isa.h"
#include "engine/team.h"
#include "symbol/print/summary.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/options.h"
#include "train/precision.h"

namespace bindery::cli {
namespace {

struct InspectCommand {
  ModelOptions model;
  DeviceOptions device{.devices = "cpu:0"};
  std::vector<int64_t> shape;
  std::string precision = "float32";
  int64_t batch_size = 64;
  bool plan = false, memory = false, dot = false, predict = false, json = false;
  int Run() const;
};

Shape InputShape(const InspectCommand& c, const Model& model) {
  if (!c.shape.empty()) return Shape(std::span<const int64_t>(c.shape));
  const auto sample = SampleShape(model);
  if (!sample) {
    throw UsageError("--shape: the model does not say the shape of \"data\"; give it, e.g. --shape 64,1,28,28");
  }
  return sample->Insert(0, c.batch_size);
}

int InspectCommand::Run() const {
  const std::string view = dot ? "--dot" : plan ? "--plan" : memory ? "--memory" : "";
  if (dot && (plan || memory)) throw UsageError("--dot draws the graph; --plan and --memory are another call");
  if (json && !view.empty()) throw UsageError(fmt::format("--json is for the summary, {} is text", view));
  const std::vector<Device> devices = device.Devices();
  const Shape given{std::span<const int64_t>(shape)};
  Model loaded = model.Load(given.rank() > 0 ? given.Erase(0) : given);  // a model by name takes any shape
  loaded.symbol = InPrecision(loaded.symbol, precision, {});
  CheckArguments(loaded, /*labelled=*/false);
  const ShapeMap shapes = {{"data", InputShape(*this, loaded)}};
  if (dot) {
    fmt::print("{}", ToDot(loaded.symbol, shapes));
    return kOk;
  }
  if (!plan && !memory) {
    if (json) {
      const ParameterCount count = CountParameters(loaded.symbol, shapes);
      const nlohmann::json line = {{"model", model.Name()},
                                   {"parameters", count.arguments},
                                   {"auxiliary", count.auxiliary},
                                   {"arguments", loaded.symbol.ListArguments()},
                                   {"outputs", loaded.symbol.ListOutputs()}};
      fmt::print("{}\n", line.dump());
    } else {
      fmt::print("{}", Summary(loaded.symbol, shapes));
    }
    return kOk;
  }
  const auto plans = DataParallelExecutorGroup::MakePlans(loaded.symbol, {.devices = devices,
                                                                          .workload = device.workload,
                                                                          .data = {{"data", shapes.at("data")}},
                                                                          .for_training = !predict,
                                                                          .threads_per_device = device.threads});
  for (const DevicePlan& p : plans) {
    fmt::print("{} ({} samples, {})\n", p.device, p.samples.size(), predict ? "prediction" : "training");
    if (memory) fmt::print("{}", ToString(ReportMemory(p.plan)));
    if (plan) fmt::print("{}", ToString(p.plan));
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
    fmt::print("      {} {}\n", library.name, library.version.empty() ? "not found" : library.version);
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
  AddNumbers(sub, "--shape", &c->shape, 1, INT64_MAX, "shape of the input \"data\", batch first, e.g. 64,1,28,28");
  AddNumber(sub, "--batch-size", &c->batch_size, 1, 1'000'000, "where --shape is not given");
  sub->add_option("--precision", c->precision, "float32, bfloat16 or float16, as of train")->capture_default_str();
  sub->add_flag("--plan", c->plan, "the compiled program of each device");
  sub->add_flag("--memory", c->memory, "bytes by what they are for, before anything is trained");
  sub->add_flag("--predict", c->predict, "plan and memory of prediction instead of training");
  sub->add_flag("--dot", c->dot, "the graph for Graphviz");
  sub->add_flag("--json", c->json, "JSON on standard output");
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

void AddDevices(CLI::App* app, RunFn* run) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* sub = app->add_subcommand("devices", "list the devices of this machine");
  sub->add_flag("--json", *json, "JSON on standard output");
  sub->callback([json, run] { *run = [json] { return ListDevices(*json); }; });
}

}  // namespace bindery::cli
