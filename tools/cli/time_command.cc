// bindery time: how long the operators of a model take, and a trace of its steps.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/files.h"
#include "base/philox.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_lines.h"
#include "tools/cli/model_inputs.h"
#include "tools/cli/options.h"
#include "train/data/array_iter.h"
#include "train/precision.h"
#include "train/trace/call_times.h"
#include "train/trace/trace_steps.h"
#include "train/zoo.h"

namespace bindery::cli {
namespace {

struct TimeCommand {
  ModelOptions model;
  DeviceOptions device{.devices = "cpu:0"};
  GivenShapes shape;
  std::string precision = "float32", optimizer = "sgd(lr=0.001, momentum=0.9)", trace, tune = "off";
  int64_t batch_size = 64, steps = 20, warmup = 3, show = 20;
  bool predict = false, json = false;

  int Run() const;
  std::unique_ptr<ArrayIter> DrawData(const Model& made) const;
  double TimeSteps(Trainer* trainer, DataIter* data, const std::shared_ptr<Trace>& recorded) const;
};

double Milliseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-6; }

// Of one call on one device, over several runs.
struct Timed {
  CallTime one;
  std::vector<int64_t> nanoseconds;

  int64_t median() const {
    std::vector<int64_t> sorted = nanoseconds;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
  const char* phase() const {
    return one.derives ? "parameters" : one.phase == Phase::kForward ? "forward" : "backward";
  }
  double operations() const { return OperationsOf(one.bound->plan(), one.plan_call()); }
  double bytes() const { return static_cast<double>(BytesOf(one.bound->plan(), one.plan_call())); }
  std::string output() const { return one.output() ? ToString(one.output()->type.shape) : ""; }
};

// One operator of all calls in a phase.
struct Total {
  int64_t calls = 0, nanoseconds = 0;
  double operations = 0, bytes = 0;
};

// Per second, in thousands of millions; no text where there are none.
std::string RateText(double amount, int64_t nanoseconds) {
  return amount > 0 && nanoseconds > 0 ? fmt::format("{:.1f}", amount / static_cast<double>(nanoseconds)) : "-";
}

// Inputs that are declared so.
std::set<std::string> ListWholeNumbers(const Symbol& symbol) {
  std::set<std::string> names;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (node->is_variable() && node->declared_dtype && !IsFloat(*node->declared_dtype)) names.insert(node->name());
  }
  return names;
}

std::unique_ptr<ArrayIter> TimeCommand::DrawData(const Model& made) const {
  const std::vector<DataDesc> inputs = DescribeInputs(made, shape, batch_size);
  CheckShapesKnown(inputs);
  const Shape& whole = inputs[0].shape;
  // Sequences are of class numbers, so many; the others of what images are like when they are normalised.
  const bool is_sequence = model.IsByName() && whole.rank() == 2 && ModelInputShape(model.Name()).rank() == 1;
  const int64_t known_classes = VocabularySize(made);
  const int64_t in_sequence = known_classes > 0 ? known_classes : is_sequence ? ModelClasses(model.Name()) : 0;
  PhiloxStream random(1, "time");
  const auto draw = [&](const Shape& drawn, int64_t classes) {
    auto values = std::make_shared<HostTensor>(DType::kFloat32, drawn);
    for (float& v : values->data<float>()) {
      v = classes > 0 ? static_cast<float>(random.Below(static_cast<uint64_t>(classes))) : random.Uniform(-1, 1);
    }
    return values;
  };
  const ShapeMap known = ShapesOf(inputs);
  std::vector<ArrayData> data;
  const std::set<std::string> whole_numbers = ListWholeNumbers(made.symbol);
  for (const DataDesc& input : inputs) {  // whole numbers are what any table has rows for
    const int64_t classes = in_sequence > 0 ? in_sequence : whole_numbers.contains(input.name) ? 2 : 0;
    data.push_back({input.name, draw(input.shape, classes), input.layout});
  }
  const std::vector<std::string> arguments = made.symbol.ListArguments();
  std::vector<ArrayData> labels;
  const InferredShapes shapes = InferShapes(made.symbol, known);
  const std::set<std::string> names = ListLabels(made.symbol);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!names.contains(arguments[i]) || known.contains(arguments[i])) continue;
    const Shape &scores = *shapes.outputs[0], &label = *shapes.arguments[i];
    // Along axis 1 or the last one, of sequences: what is below both is a class.
    const int64_t classes = scores.rank() > label.rank() ? std::min(scores[1], scores[-1]) : 0;
    labels.push_back({arguments[i], draw(label, classes), label == whole ? inputs[0].layout : ""});
  }
  if (labels.empty() && !predict) {
    Throw<ModelError>("the model has no loss with a label: time its prediction, with --predict");
  }
  return std::make_unique<ArrayIter>(std::move(data), std::move(labels),
                                     ArrayIterOptions{.batch_size = BatchSizeOf(inputs)});
}

// Milliseconds of a step: the mean of `steps`, of which two are in flight at a time.
double TimeCommand::TimeSteps(Trainer* trainer, DataIter* data, const std::shared_ptr<Trace>& recorded) const {
  const auto now = [] { return Trace::Now(); };
  int64_t start = 0;
  if (predict) {
    for (int64_t i = 0; i < warmup + steps; ++i) {
      if (i == warmup) start = now();
      if (recorded && i == warmup + std::max<int64_t>(0, steps - 3)) recorded->Start();
      trainer->Predict(*data);
    }
    if (recorded) recorded->Stop();
    return Milliseconds(now() - start) / static_cast<double>(steps);
  }
  std::vector<Extension> extensions;
  trainer->Fit(*data, {.epochs = 1, .epoch_batches = warmup});
  if (recorded) {
    // The last of them, so that those before are timed as they are.
    extensions.push_back({.name = "record",
                          .trigger = AtIterations({warmup + std::max<int64_t>(1, steps - 3)}),
                          .run = [recorded](Loop&) { recorded->Start(); }});
  }
  double seconds = 0;
  trainer->Fit(*data, {.epochs = 2,
                       .epoch_batches = steps,
                       .on_epoch = [&](const EpochReport& report) { seconds = report.seconds; },
                       .extensions = extensions});
  if (recorded) recorded->Stop();
  return seconds * 1e3 / static_cast<double>(steps);
}

void PrintTables(const std::vector<Timed>& rows, int64_t all, int64_t show) {
  std::map<std::tuple<std::string, std::string>, Total> by_operator;
  for (const Timed& row : rows) {
    Total& total = by_operator[{row.phase(), row.one.plan_call().op}];
    ++total.calls;
    total.nanoseconds += row.median();
    total.operations += row.operations();
    total.bytes += row.bytes();
  }
  const auto share = [all](int64_t part) {
    return all > 0 ? 100 * static_cast<double>(part) / static_cast<double>(all) : 0;
  };
  using Named = std::pair<std::tuple<std::string, std::string>, Total>;
  std::vector<Named> totals(by_operator.begin(), by_operator.end());
  std::ranges::stable_sort(totals, std::greater(), [](const Named& t) { return t.second.nanoseconds; });
  fmt::print("\n{:<11} {:<28} {:>6} {:>10} {:>7} {:>9} {:>7}\n", "phase", "operator", "calls", "ms", "share", "GFLOP/s",
             "GB/s");
  for (const auto& [name, total] : totals) {
    fmt::print("{:<11} {:<28} {:>6} {:>10.3f} {:>6.1f}% {:>9} {:>7}\n", std::get<0>(name), std::get<1>(name),
               total.calls, Milliseconds(total.nanoseconds), share(total.nanoseconds),
               RateText(total.operations, total.nanoseconds), RateText(total.bytes, total.nanoseconds));
  }
  std::vector<const Timed*> longest;
  for (const Timed& row : rows) longest.push_back(&row);
  std::ranges::stable_sort(longest, std::greater(), &Timed::median);
  if (static_cast<int64_t>(longest.size()) > show) longest.resize(static_cast<size_t>(show));
  if (longest.empty()) return;
  size_t name = 0, output = 0;  // columns
  for (const Timed* row : longest) {
    name = std::max(name, row->one.plan_call().op.size() + 1 + row->one.plan_call().node.size());
    output = std::max(output, row->output().size());
  }
  fmt::print("\n{:<11} {:>10} {:>7} {:>9} {:>7}  {:<{}}  {:<{}}  {}\n", "phase", "ms", "share", "GFLOP/s", "GB/s",
             "operator and node", name, "output", output, "kernel");
  for (const Timed* row : longest) {
    const PlanCall& call = row->one.plan_call();
    fmt::print("{:<11} {:>10.3f} {:>6.1f}% {:>9} {:>7}  {:<{}}  {:<{}}  {}\n", row->phase(),
               Milliseconds(row->median()), share(row->median()), RateText(row->operations(), row->median()),
               RateText(row->bytes(), row->median()), call.op + " " + call.node, name, row->output(), output,
               call.implementation);
  }
  if (rows.size() > longest.size())
    fmt::print("({} of {} calls shown; --show gives more)\n", longest.size(), rows.size());
}

nlohmann::json CallToJson(const Timed& row, int64_t all) {
  const PlanCall& call = row.one.plan_call();
  nlohmann::json line = {{"phase", row.phase()},
                         {"device", ToString(row.one.device)},
                         {"operator", call.op},
                         {"node", call.node},
                         {"kernel", call.implementation},
                         {"output", row.output()},
                         {"milliseconds", Milliseconds(row.median())},
                         {"share", all > 0 ? static_cast<double>(row.median()) / static_cast<double>(all) : 0},
                         {"bytes", row.bytes()}};
  if (row.operations() > 0) {
    line["operations"] = row.operations();
    line["gflops"] = row.median() > 0 ? row.operations() / static_cast<double>(row.median()) : 0;
  }
  return line;
}

int TimeCommand::Run() const {
  if (!trace.empty()) CheckOutputFile("--trace", trace);
  model.CheckKept({{"--trace", trace}});
  const auto recorded = trace.empty() ? nullptr : std::make_shared<Trace>();
  TrainerOptions options{.devices = device.Devices(),
                         .workload = device.workload,
                         .optimizer = optimizer,
                         .metrics = "loss",
                         .precision = precision,
                         .loss_scale = precision == "float16" ? "static(1024)" : "",
                         .threads_per_device = device.threads,
                         .tuning = TuningOf(tune),
                         .engine = device.MakeEngine()};
  if (recorded) options.engine = MakeTraceEngine(options.engine, recorded);
  try {
    MakeOptimizer(optimizer);
  } catch (const Error& e) {
    throw UsageError("--optimizer: " + e.message());
  }
  try {
    ParsePrecision(precision);
  } catch (const Error& e) {
    throw UsageError("--precision: " + e.message());
  }
  const Model made = model.Load(GivenSample(shape));
  const std::unique_ptr<ArrayIter> data = DrawData(made);
  Trainer trainer(made, options);
  const double step = TimeSteps(&trainer, data.get(), recorded);

  // The calls of the first replica, from as many runs.
  std::map<std::tuple<int, int, bool, Phase>, Timed> by_call;
  std::vector<int64_t> sums;
  for (int64_t i = 0; i < steps; ++i) {
    const std::vector<CallTime> times = RunAgain(trainer.group());
    if (recorded && i + 1 == steps) AddSlices(times, recorded.get());
    int64_t sum = 0;
    for (const CallTime& time : times) {
      if (time.replica != 0) continue;
      Timed& row =
          by_call.try_emplace({time.stage, time.call, time.derives, time.phase}, Timed{.one = time, .nanoseconds = {}})
              .first->second;
      row.nanoseconds.push_back(time.end - time.begin);
      sum += time.end - time.begin;
    }
    sums.push_back(sum);
  }
  std::vector<Timed> rows;
  int64_t all = 0;
  for (const bool backward : {false, true}) {
    for (const auto& [key, row] : by_call) {
      if ((std::get<Phase>(key) == Phase::kBackward) == backward) rows.push_back(row);
    }
  }
  for (const Timed& row : rows) all += row.median();
  if (recorded) WriteFileAtomically(trace, recorded->ToJson());
  if (json) {
    nlohmann::json calls = nlohmann::json::array();
    for (const Timed& row : rows) calls.push_back(CallToJson(row, all));
    PrintLine(nlohmann::json{{"model", model.Name()},
                             {"phase", predict ? "prediction" : "training"},
                             {"batch", data->batch_size()},
                             {"devices", device.devices},
                             {"threads", trainer.group()->threads_per_device()},
                             {"steps", steps},
                             {"step_milliseconds", step},
                             {"calls_milliseconds", Milliseconds(all)},
                             {"calls", calls}});
    return kOk;
  }
  fmt::print("{}, {} of {} on {}, {} threads each\n", model.Name(), predict ? "prediction" : "training steps",
             data->ProvideData()[0].shape, device.devices, trainer.group()->threads_per_device());
  fmt::print("a step takes {:.3f} ms (mean of {}), the calls of the first device {:.3f} ms (medians of {})\n", step,
             steps, Milliseconds(all), steps);
  PrintTables(rows, all, show);
  if (recorded) fmt::print("\ntrace: {} (ui.perfetto.dev shows it)\n", trace);
  return kOk;
}

}  // namespace

void AddTime(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<TimeCommand>();
  CLI::App* sub = app->add_subcommand("time", "how long the operators of a model take, on data that are drawn");
  c->model.AddTo(sub);
  c->model.AddVariantsTo(sub);
  c->device.AddTo(sub);
  c->device.AddTimeoutTo(sub);
  AddShape(sub, &c->shape);
  AddNumber(sub, "--batch-size", &c->batch_size, 1, 1'000'000, "where --shape is not given");
  AddNumber(sub, "--steps", &c->steps, 1, 1'000'000, "that are timed, and runs of each call");
  AddNumber(sub, "--warmup", &c->warmup, 1, 1'000'000, "steps before");
  AddNumber(sub, "--show", &c->show, 0, INT64_MAX, "calls to list, the longest first");
  sub->add_option("--precision", c->precision, "float32, bfloat16 or float16, as of train")->capture_default_str();
  AddTune(sub, &c->tune);
  sub->add_option("--optimizer", c->optimizer, "of the training steps")->capture_default_str();
  sub->add_option("--trace", c->trace, "write what runs where and when to this file, for ui.perfetto.dev");
  sub->add_flag("--predict", c->predict, "prediction instead of training");
  sub->add_flag("--json", c->json, "JSON on standard output");
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
