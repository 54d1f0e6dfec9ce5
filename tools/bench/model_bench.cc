#include "tools/bench/model_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/philox.h"
#include "engine/cuda/report.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "symbol/ops/loss.h"
#include "tools/bench/allocations.h"
#include "train/data/array_iter.h"
#include "train/initializer.h"
#include "train/loss_scale.h"
#include "train/precision.h"
#include "train/quantize.h"
#include "train/trace/call_times.h"
#include "train/updater/updater.h"
#include "train/zoo.h"

namespace bindery::bench {
namespace {

using Clock = std::chrono::steady_clock;
double Milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

int64_t PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// A model on its devices with random parameters and one batch, in parts if a step is of several.
struct Bound {
  std::unique_ptr<DataParallelExecutorGroup> group;
  std::unique_ptr<Updater> updater;
  std::vector<BatchPtr> parts;
  int64_t samples = 0;  // of all of them
};

Bound Bind(const ModelBenchOptions& o) {
  if (o.micro_batches < 1 || o.batch_size % o.micro_batches != 0) {
    Throw("a batch of {} cannot be cut into {} equal micro-batches", o.batch_size, o.micro_batches);
  }
  if (o.resident && o.devices.size() != 1) Throw("a resident batch is of one device, not of {}", o.devices.size());
  const bool quantizes = o.precision == "int8";
  if (quantizes && o.training) Throw("int8 is of predictions: --phase predict");
  const std::string precision = quantizes ? "float32" : o.precision;
  Bound bound;
  bound.samples = o.batch_size;
  const Shape shape = ModelInputShape(o.model).Insert(0, o.batch_size / o.micro_batches);
  const Symbol symbol = ModelByName(o.model);
  const std::vector<std::string> arguments = symbol.ListArguments();
  std::vector<DataDesc> inputs = {{"data", shape}};
  if (std::ranges::find(arguments, "target") != arguments.end()) inputs.push_back({"target", shape});  // transformer's
  const Shape label = *InferShapes(symbol, {{"data", shape}}).arguments.back();
  const std::vector<DataDesc> labels = {{"softmax_label", label}};
  const auto loss_scale = ParseLossScaling(LossScaleFor(precision, {}));
  Symbol in_precision = InPrecision(symbol, precision, inputs, labels);
  if (o.training && loss_scale) in_precision = ScaleLosses(in_precision);
  const GroupOptions options{.devices = o.devices,
                             .data = inputs,
                             .labels = labels,
                             .for_training = o.training,
                             .grad_req = o.micro_batches > 1 ? GradReq::kAdd : GradReq::kWrite,
                             .mirror = o.mirror,
                             .threads_per_device = o.threads,
                             .switches = {.derive = o.derive, .tuning = o.tuning}};
  bound.group =
      std::make_unique<DataParallelExecutorGroup>(in_precision, o.block > 0 ? ForBlocks(options, o.block) : options);
  SetInitialParams(bound.group.get(), {}, Initializer("xavier"), /*seed=*/1);
  PhiloxStream random(1, "benchmark");
  const auto draw_classes = [&](HostTensor* tensor) {
    for (float& v : tensor->data<float>()) {
      v = static_cast<float>(random.Below(static_cast<uint64_t>(ModelClasses(o.model))));
    }
  };
  for (int64_t part = 0; part < o.micro_batches; ++part) {
    auto batch = std::make_shared<Batch>();
    for (size_t i = 0; i < inputs.size(); ++i) {
      HostTensor& data = batch->data.emplace_back(DType::kFloat32, shape);
      if (shape.rank() == 2) {  // a sequence of class numbers
        draw_classes(&data);
      } else {
        for (float& v : data.data<float>()) v = random.Uniform(-1, 1);
      }
    }
    draw_classes(&batch->label.emplace_back(DType::kFloat32, label));
    batch->samples = shape[0];
    if (o.resident) {
      const auto on_device = [&](const std::vector<HostTensor>& arrays) {
        std::vector<Tensor> there;
        for (const HostTensor& array : arrays) {
          there.emplace_back(bound.group->engine(), o.devices[0], array.dtype(), array.shape()).CopyFrom(array);
        }
        return there;
      };
      batch->device_data = on_device(batch->data);
      batch->device_label = on_device(batch->label);
    }
    bound.parts.push_back(std::move(batch));
  }
  if (quantizes) {
    const Batch& first = *bound.parts[0];
    ArrayIter seen(first.data[0], first.label[0], {.batch_size = first.samples});
    Model model{.symbol = symbol};
    bound.group->GetParams(&model.params, &model.aux);
    const Model small = Quantized(model, seen);
    bound.group = std::make_unique<DataParallelExecutorGroup>(small.symbol, options);
    bound.group->SetParams(small.params, small.aux);
  }
  if (o.training)
    bound.updater = std::make_unique<Updater>(
        bound.group.get(),
        UpdaterOptions{.optimizer = std::make_shared<const Optimizer>(Sgd({.learning_rate = 1e-3}, 0.9)),
                       .loss_scale = loss_scale,
                       .block = o.block});
  return bound;
}

void WaitForStep(const Bound& b) {
  for (const auto& p : b.group->step().participants()) b.group->engine()->Wait(p.executor->arena()->var());
  if (b.updater)
    for (const auto& block : b.group->store().blocks())
      for (const Tensor& values : block.values) values.Wait();
}

void Step(const Bound& b) {
  if (!b.updater) {
    for (const BatchPtr& part : b.parts) b.group->Forward(part, Mode::kPredict);
  } else if (b.parts.size() > 1) {
    b.updater->Update(b.parts);
  } else {
    b.updater->Update(b.parts[0]);
  }
  WaitForStep(b);
}

// One step with every kernel timed; returns the sum on the slowest device and the update, and adds to `times` of device
// 0.
double TimedStep(const Bound& b, std::vector<std::vector<double>>* times) {
  Engine& engine = *b.group->engine();
  const auto& participants = b.group->step().participants();
  std::vector<std::vector<int64_t>> nanoseconds;
  for (const auto& p : participants) nanoseconds.emplace_back(p.bound->plan().calls.size(), 0);
  std::vector<std::vector<int64_t>> once = nanoseconds;
  const auto run = [&](const auto& calls_of) {
    for (size_t k = 0; k < participants.size(); ++k) {
      const auto& p = participants[k];
      const std::pair<int, int> calls = calls_of(k);
      engine.Push(
          {.name = "timed",
           .device = p.executor->device(),
           .writes = {p.executor->arena()->var()},
           .run = [instance = p.bound->instance, calls, times = &once[k], sums = &nanoseconds[k]](const OpContext&) {
             instance->RunCalls(calls.first, calls.second, times);
             for (int i = calls.first; i < calls.second; ++i) {
               (*sums)[static_cast<size_t>(i)] += (*times)[static_cast<size_t>(i)];
             }
           }});
    }
  };
  const auto plan = [&](size_t k) -> const Plan& { return participants[k].bound->plan(); };
  // As after each update: of devices that share memory by the first.
  const auto derives = [&](size_t k) {
    const auto of = [&](size_t i) { return b.group->store().derived(participants[i].executor->index()); };
    for (size_t i = 0; i < k; ++i) {
      if (of(i) == of(k)) return std::pair(0, 0);
    }
    return std::pair(0, plan(k).derive_calls);
  };
  const auto wait = [&] {
    for (const auto& p : participants) engine.Wait(p.executor->arena()->var());
  };
  if (b.updater) {
    run(derives);
    wait();
  }
  // The same segments on the same workers, at the same time; no exchange lies between them in these models.
  for (size_t part = 0; part < b.parts.size(); ++part) {
    for (size_t s = 0; s < participants[0].bound->plan().segments.size(); ++s) {
      run([&plan, s](size_t k) { return std::pair(plan(k).segments[s].begin, plan(k).segments[s].end); });
    }
  }
  wait();
  double slowest = 0;
  for (const auto& list : nanoseconds) {
    double sum = 0;
    for (const int64_t t : list) sum += static_cast<double>(t) * 1e-6;
    slowest = std::max(slowest, sum);
  }
  if (times)
    for (size_t i = 0; i < nanoseconds[0].size(); ++i)
      (*times)[i].push_back(static_cast<double>(nanoseconds[0][i]) * 1e-6);
  if (!b.updater) return slowest;
  const Clock::time_point start = Clock::now();
  b.updater->Apply(b.samples);
  WaitForStep(b);
  return slowest + Milliseconds(Clock::now() - start);
}

}  // namespace

ModelBenchResult RunModelBench(const ModelBenchOptions& options) {
  ModelBenchResult result{.options = options};
  const Clock::time_point bind_start = Clock::now();
  const Bound b = Bind(options);
  result.bind_ms = Milliseconds(Clock::now() - bind_start);
  result.threads = b.group->threads_per_device();
  for (int i = 0; i < options.warmup; ++i) Step(b);
  const Plan& plan = b.group->plan();
  std::vector<std::vector<double>> times(plan.calls.size());
  const auto is_gpu = [](const Device& device) { return device.kind == DeviceKind::kCuda; };
  result.has_kernels = std::ranges::none_of(options.devices, is_gpu);
  std::vector<double> whole, kernels, ratios;
  Allocations allocations{};
  CudaCounts of_gpus{};
  int64_t faults = 0;
  for (int i = 0; i < options.steps; ++i) {
    Step(b);  // as in training: the step before was one too
    const Allocations before = CountAllocations();
    const CudaCounts gpus_before = CountCuda();
    const int64_t faults_before = PageFaults();
    SetCounting(true);
    const Clock::time_point start = Clock::now();
    Step(b);
    const double ms = Milliseconds(Clock::now() - start);
    SetCounting(false);
    faults += PageFaults() - faults_before;
    const Allocations after = CountAllocations();
    allocations.ours += after.ours - before.ours;
    allocations.libraries += after.libraries - before.libraries;
    of_gpus += CountCuda() - gpus_before;
    whole.push_back(ms);
    if (!result.has_kernels) continue;
    kernels.push_back(TimedStep(b, &times));
    ratios.push_back(ms / kernels.back());
  }
  result.min_ms = *std::min_element(whole.begin(), whole.end());
  result.median_ms = Median(whole);
  if (result.has_kernels) {
    result.kernels_min_ms = *std::min_element(kernels.begin(), kernels.end());
    result.kernels_median_ms = Median(kernels);
    result.ratio = Median(ratios);
  }
  const auto per_step = [&](int64_t count) { return static_cast<double>(count) / options.steps; };
  result.allocations_ours = per_step(allocations.ours);
  result.allocations_libraries = per_step(allocations.libraries);
  result.page_faults = per_step(faults);
  result.of_gpus = {{"allocations", per_step(of_gpus.allocations)},
                    {"synchronizations", per_step(of_gpus.synchronizations)},
                    {"waits", per_step(of_gpus.waits)},
                    {"waits_of_caller", per_step(of_gpus.waits_of_callers)},
                    {"captures", per_step(of_gpus.captures)},
                    {"graph_launches", per_step(of_gpus.graph_launches)}};
  result.arena_bytes = plan.arena_bytes;
  result.peak_live_bytes = plan.peak_live_bytes;
  result.calls_in_plan = static_cast<int>(plan.calls.size());
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    result.reorders += plan.calls[i].op == "Reorder";
    if (options.per_kernel && result.has_kernels)
      result.kernels.push_back({plan.calls[i].op, plan.calls[i].node, plan.calls[i].implementation, Median(times[i]),
                                OperationsOf(plan, plan.calls[i]), static_cast<double>(BytesOf(plan, plan.calls[i]))});
  }
  result.plans_equal = Bind(options).group->plan() == plan;
  return result;
}

namespace {

HostTensorMap ParametersOf(const Bound& b) {
  HostTensorMap params, aux;
  b.group->GetParams(&params, &aux);
  params.merge(aux);
  return params;
}

}  // namespace

PairBenchResult RunPairBench(const ModelBenchOptions& options, const ModelBenchOptions& others) {
  const Bound one = Bind(options), other = Bind(others);
  const auto timed = [](const Bound& b) {
    const Clock::time_point start = Clock::now();
    Step(b);
    return Milliseconds(Clock::now() - start);
  };
  std::vector<double> ones, rest, ratios;
  for (int i = -options.warmup; i < options.steps; ++i) {
    const double one_ms = timed(one), other_ms = timed(other);
    if (i < 0) continue;
    ones.push_back(one_ms);
    rest.push_back(other_ms);
    ratios.push_back(other_ms / one_ms);
  }
  const std::vector<PlanCall>& calls = one.group->plan().calls;
  return {.min_ms = std::ranges::min(ones),
          .median_ms = Median(ones),
          .other_min_ms = std::ranges::min(rest),
          .other_median_ms = Median(rest),
          .ratio = Median(ratios),
          .arena_bytes = one.group->plan().arena_bytes,
          .other_arena_bytes = other.group->plan().arena_bytes,
          .again = static_cast<int>(std::ranges::count(calls, true, &PlanCall::again)),
          .same_bits = ParametersOf(one) == ParametersOf(other)};
}

double ChainNanoseconds(int length) {
  Symbol x = Variable("data");
  for (int i = 0; i < length; ++i) x = x + 1.0;
  DataParallelExecutorGroup group(x, {.data = {{"data", {1}}}, .for_training = false});
  const auto& p = group.step().participants()[0];
  group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {1})}});
  group.Outputs()[0].Wait();
  double best = 1e30;
  for (int run = 0; run < 200; ++run) {
    const Clock::time_point start = Clock::now();
    for (size_t s = 0; s < p.bound->plan().segments.size(); ++s) p.bound->instance->Run(static_cast<int>(s));
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return best / length;
}

}  // namespace bindery::bench
