// Bindery's side of the comparison of operators with PyTorch (operators.sh): runs one operator after the other, each
// with the attributes and on the arrays of a request from standard input.
//
// A request is a line of JSON, then the arrays that it describes, one after the other, as raw bytes:
//   {"op": NAME, "attrs": {...},      an operator by the name and with the attributes that a model file has, or a row of
//                                     the table of functions below
//    "inputs": [{"name", "dtype", "shape", "layout", "role", "grad"}, ...],
//                                     role "data", "parameter" or "state"; a name of the operator's own variables
//                                     ("op_weight"), or else an operand, in order
//    "heads": [...],                  outputs that gradients are taken of; none: only forward
//    "head_gradients": [{"dtype", "shape"}, ...],
//    "seconds": S}                    measure times for about S seconds, instead of returning arrays
// The answer, too: {"arrays": [{"group", "name", "dtype", "shape"}, ...]} and their bytes, where the group is
//   "predict"  every output, bound for prediction         "train"  the heads, bound for training
//   "write"    the gradients of inputs with `grad`        "add"    the same, asked to be added, of two steps and to ones
//   "state"    the states behind a step of training
// or {"forward": S, "step": S}, seconds of a forward pass for prediction, and of one for training with its backward pass;
// or {"error": TEXT}.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "executor/executor.h"
#include "symbol/ops.h"

namespace bindery {
namespace {

using Json = nlohmann::json;

// --- Operators

AttrValue ReadAttr(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (std::ranges::all_of(value, [](const Json& v) { return v.is_number_integer(); })) {
    return value.get<std::vector<int64_t>>();
  }
  if (std::ranges::all_of(value, [](const Json& v) { return v.is_string(); })) {
    return value.get<std::vector<std::string>>();
  }
  return value.get<std::vector<double>>();
}

AttrMap ReadAttrs(const Json& json) {
  AttrMap attrs;
  for (const auto& [name, value] : json.items()) attrs[name] = ReadAttr(value);
  return attrs;
}

template <OpAttrs A>
A AttrsFrom(const Json& json) {
  return AttrsOf<A>().FromMap(ReadAttrs(json)).template get<A>();
}

// Functions that are no operators, but make some. The attributes are theirs, by name.
using Operands = const std::vector<Symbol>&;
using Function = Symbol (*)(Operands x, const Json& attrs);

const Symbol kNone;
const Symbol& At(Operands x, size_t i) { return i < x.size() ? x[i] : kNone; }
template <class T>
T Get(const Json& json, const char* name, T otherwise = {}) {
  return json.value(name, otherwise);
}
using Ints = std::vector<int64_t>;

Symbol MakeDeconvolution(Operands x, const Json& a) {
  DeconvolutionAttrs attrs;
  attrs.num_filter = Get<int64_t>(a, "num_filter");
  attrs.kernel = Get<Ints>(a, "kernel");
  attrs.stride = Get<Ints>(a, "stride");
  attrs.pad = Get<Ints>(a, "pad");
  attrs.dilate = Get<Ints>(a, "dilate");
  attrs.output_padding = Get<Ints>(a, "output_padding");
  attrs.groups = Get<int64_t>(a, "groups", 1);
  attrs.no_bias = Get<bool>(a, "no_bias");
  return Deconvolution(x[0], x[1], At(x, 2), attrs, "op");
}

Symbol MakeRnn(Operands x, const Json& a) {
  const std::string cell = a["cell"];
  const auto choices = EnumNames(static_cast<RecurrentCell*>(nullptr));
  const auto kind = std::ranges::find_if(choices, [&](const EnumName& choice) { return cell == choice.name; });
  const RnnAttrs attrs = {.cell = static_cast<RecurrentCell>(kind->value),
                          .hidden = a["hidden"],
                          .layers = a["layers"],
                          .bidirectional = a["bidirectional"],
                          .layout = a["batch_first"] ? SequenceLayout::kNtc : SequenceLayout::kTnc};
  const size_t states = a["initial"] ? static_cast<size_t>(attrs.layers * (attrs.bidirectional ? 2 : 1)) : 0;
  const size_t cells = attrs.cell == RecurrentCell::kLstm ? states : 0;
  const auto at = x.begin() + 1;
  RnnResult made =
      Rnn(x[0], attrs, "op", {at, at + states}, {at + states, at + states + cells}, a["lengths"] ? x.back() : Symbol());
  std::vector<Symbol> all = {made.output};
  all.insert(all.end(), made.states.begin(), made.states.end());
  all.insert(all.end(), made.cells.begin(), made.cells.end());
  return Group(all);
}

Symbol MakeCrossEntropy(Operands x, const Json& a, decltype(SoftmaxCrossEntropy)* function) {
  Json own = a;
  const int reduction = own.contains("reduction") ? own["reduction"].get<int>() : 0;
  own.erase("reduction");
  return function(x[0], x[1], AttrsFrom<CrossEntropyAttrs>(own), static_cast<LossReduction>(reduction), At(x, 2), "op");
}

Symbol FoldOf(const char* op, Operands x) { return Fold(BinaryFunction{op}, x, "op"); }

const std::map<std::string, Function> kFunctions = {
    {"Clip",
     [](Operands x, const Json& a) { return Clip(x[0], a["low"].get<double>(), a["high"].get<double>(), "op"); }},
    {"Deconvolution", MakeDeconvolution},
    {"Einsum",
     [](Operands x, const Json& a) { return Einsum(a["equation"], x, Get<std::vector<int>>(a, "ranks"), "op"); }},
    {"Eye",
     [](Operands, const Json& a) {
       return Eye(a["rows"], a["columns"], a["diagonal"], ParseDType(a["dtype"].get<std::string>()), "op");
     }},
    {"Flip", [](Operands x, const Json& a) { return Flip(x[0], {a["axes"].get<Ints>()}, "op"); }},
    {"FoldMaximum", [](Operands x, const Json&) { return FoldOf("Maximum", x); }},
    {"FoldMinimum", [](Operands x, const Json&) { return FoldOf("Minimum", x); }},
    {"FoldMul", [](Operands x, const Json&) { return FoldOf("Mul", x); }},
    {"Full",
     [](Operands, const Json& a) {
       return Full(Shape(a["shape"].get<Ints>()), a["value"], ParseDType(a["dtype"].get<std::string>()), "op");
     }},
    {"Gemm",
     [](Operands x, const Json& a) {
       return Gemm(x[0], x[1], At(x, 2), {a["alpha"], a["beta"], a["transpose_a"], a["transpose_b"]}, "op");
     }},
    {"L2Normalization",
     [](Operands x, const Json& a) {
       return L2Normalization(x[0], static_cast<L2Mode>(a["mode"].get<int>()), a["eps"], "op");
     }},
    {"Log10", [](Operands x, const Json&) { return Log10(x[0], "op"); }},
    {"Log2", [](Operands x, const Json&) { return Log2(x[0], "op"); }},
    {"LogSum", [](Operands x, const Json& a) { return LogSum(x[0], AttrsFrom<ReduceAttrs>(a), "op"); }},
    {"MeanOf", [](Operands x, const Json&) { return MeanOf(x, "op"); }},
    {"MeanVarianceNormalization",
     [](Operands x, const Json& a) { return MeanVarianceNormalization(x[0], a["axes"], a["eps"], "op"); }},
    {"MultiHeadAttention",
     [](Operands x, const Json& a) {
       return MultiHeadAttention(
           x[0], x[1], x[2], At(x, 3),
           {.width = a["width"], .heads = a["heads"], .no_bias = a["no_bias"], .causal = a["causal"]}, "op");
     }},
    {"NegativeLogLikelihood", [](Operands x, const Json& a) { return MakeCrossEntropy(x, a, NegativeLogLikelihood); }},
    {"Rnn", MakeRnn},
    {"Rsqrt", [](Operands x, const Json&) { return Rsqrt(x[0], "op"); }},
    {"SoftmaxCrossEntropy", [](Operands x, const Json& a) { return MakeCrossEntropy(x, a, SoftmaxCrossEntropy); }},
    {"Sort",
     [](Operands x, const Json& a) {
       return Sort(x[0], {a["axis"], a["descending"]}, "op");
     }},
    {"ArgSort",
     [](Operands x, const Json& a) {
       return ArgSort(x[0], {a["axis"], a["descending"]}, "op");
     }},
    {"Stack", [](Operands x, const Json& a) { return Stack(x, a["axis"], "op"); }},
};

// --- Requests

struct Input {
  std::string name, layout, role;
  bool grad;
  HostTensor value;
};

HostTensor ReadArray(const Json& description) {
  HostTensor array(ParseDType(description["dtype"].get<std::string>()), Shape(description["shape"].get<Ints>()));
  std::cin.read(static_cast<char*>(array.raw()), array.bytes());
  if (!std::cin) Throw<DataError>("the request ends within an array");
  return array;
}

class Request {
 public:
  explicit Request(Json json) : json_(std::move(json)) {
    for (const Json& i : json_["inputs"])
      inputs_.push_back({i["name"], i["layout"], i["role"], i["grad"], ReadArray(i)});
    for (const Json& g : json_["head_gradients"]) head_gradients_.push_back(ReadArray(g));
  }

  // The answer. Its arrays are left in `arrays`.
  Json Run(const std::shared_ptr<Engine>& engine, int threads) {
    engine_ = engine;
    threads_ = threads;
    const std::string name = json_["op"];
    std::vector<Symbol> operands;
    for (const Input& input : inputs_) {
      if (input.name.starts_with("op_")) continue;
      VariableOptions known{.dtype = input.value.dtype()};
      if (input.role != "state") known.shape = input.value.shape();
      operands.push_back(Variable(input.name, known));
    }
    const auto function = kFunctions.find(name);
    if (function != kFunctions.end()) {
      symbol_ = function->second(operands, json_["attrs"]);
    } else {
      const OpDef& op = FindOp(name);
      symbol_ = Apply(op, op.attrs_type->FromMap(ReadAttrs(json_["attrs"])), operands, "op");
    }
    return json_.contains("seconds") ? Measure() : Compute();
  }
  std::vector<HostTensor> arrays;

 private:
  std::unique_ptr<Executor> Bind(const Symbol& symbol, bool training, GradReq request) const {
    ExecutorOptions options{.for_training = training, .engine = engine_, .threads = threads_};
    std::map<std::string, GradReq> requests;
    HostTensorMap args, aux;
    const std::vector<std::string> arguments = symbol.ListArguments();
    for (const Input& i : inputs_) {
      if (i.role == "state") {
        aux[i.name] = i.value;
        continue;
      }
      if (std::ranges::find(arguments, i.name) == arguments.end()) continue;  // only other outputs need it
      if (i.role == "data") options.inputs.push_back({i.name, i.value.shape(), i.value.dtype(), i.layout});
      if (i.role == "parameter") args[i.name] = i.value;
      requests[i.name] = i.grad ? request : GradReq::kNull;
    }
    options.grad_req = requests;
    auto executor = std::make_unique<Executor>(symbol, options);
    executor->SetParams(args, aux);
    for (const Input& i : inputs_) {
      if (i.role == "data" && requests.contains(i.name)) executor->SetInput(i.name, i.value);
      if (!training || request != GradReq::kAdd || !i.grad || !requests.contains(i.name)) continue;
      executor->GradientArray(i.name).CopyFrom(HostTensor::Full(i.value.dtype(), i.value.shape(), 1));
    }
    return executor;
  }

  Symbol Heads() const {
    std::vector<Symbol> heads;
    for (const Json& head : json_["heads"]) heads.push_back(symbol_[head.get<int>()]);
    return Group(heads);
  }

  void Step(Executor& executor, const std::vector<Tensor>& head_gradients) const {
    executor.Forward();
    executor.Backward(head_gradients);
  }
  std::vector<Tensor> OnDevice(const Executor& executor) const {
    std::vector<Tensor> tensors;
    for (const HostTensor& value : head_gradients_) {
      tensors.emplace_back(engine_, Cpu(0), value.dtype(), value.shape());
      tensors.back().CopyFrom(value);
    }
    tensors.resize(executor.output_names().size());
    return tensors;
  }

  Json Compute() {
    Json described = Json::array();
    const auto give = [&](const char* group, const std::string& name, HostTensor value) {
      described.push_back({{"group", group},
                           {"name", name},
                           {"dtype", ToString(value.dtype())},
                           {"shape", Ints(value.shape().begin(), value.shape().end())}});
      arrays.push_back(std::move(value));
    };
    const auto give_gradients = [&](const char* group, const Executor& executor) {
      for (const Input& i : inputs_) {
        if (i.grad) give(group, i.name, executor.Gradient(i.name));
      }
    };
    const auto predict = Bind(symbol_, false, GradReq::kNull);
    predict->Forward();
    for (int i = 0; i < symbol_.size(); ++i) give("predict", std::to_string(i), predict->Output(i));
    if (json_["heads"].empty()) return {{"arrays", described}};

    const auto write = Bind(Heads(), true, GradReq::kWrite);
    const std::vector<Tensor> head_gradients = OnDevice(*write);
    Step(*write, head_gradients);
    for (size_t i = 0; i < write->output_names().size(); ++i) {
      give("train", std::to_string(i), write->Output(static_cast<int>(i)));
    }
    give_gradients("write", *write);
    HostTensorMap states;
    write->GetParams(nullptr, &states);
    for (const auto& [name, value] : states) give("state", name, value);

    const auto add = Bind(Heads(), true, GradReq::kAdd);
    for (int step = 0; step < 2; ++step) Step(*add, head_gradients);
    give_gradients("add", *add);
    return {{"arrays", described}};
  }

  // The median of runs that take about the time given.
  template <class F>
  double Seconds(const F& run) const {
    using Clock = std::chrono::steady_clock;
    std::vector<double> times;
    run();
    for (const auto start = Clock::now();
         times.size() < 3 || std::chrono::duration<double>(Clock::now() - start).count() < json_["seconds"];) {
      const auto begin = Clock::now();
      run();
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    std::ranges::nth_element(times, times.begin() + times.size() / 2);
    return times[times.size() / 2];
  }

  Json Measure() const {
    const auto predict = Bind(symbol_, false, GradReq::kNull);
    const double forward = Seconds([&] {
      predict->Forward();
      engine_->WaitAll();
    });
    if (json_["heads"].empty()) return {{"forward", forward}};
    const auto train = Bind(Heads(), true, GradReq::kWrite);
    const std::vector<Tensor> head_gradients = OnDevice(*train);
    const double step = Seconds([&] {
      Step(*train, head_gradients);
      engine_->WaitAll();
    });
    return {{"forward", forward}, {"step", step}};
  }

  const Json json_;
  std::vector<Input> inputs_;
  std::vector<HostTensor> head_gradients_;
  std::shared_ptr<Engine> engine_;
  int threads_ = 0;
  Symbol symbol_;
};

int Main(int argc, char** argv) {
  KeepFreedMemory();
  int threads = 0;
  CLI::App app("Bindery's side of operators.sh: runs operators; requests on standard input.", "run");
  app.add_option("--threads", threads, "0: the cores")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const std::shared_ptr<Engine> engine = DefaultEngine();
  for (std::string line; std::getline(std::cin, line);) {
    Request request(Json::parse(line));
    Json answer;
    try {
      answer = request.Run(engine, threads);
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
      request.arrays.clear();
      engine->Recover();
    }
    std::cout << answer.dump() << "\n";
    for (const HostTensor& array : request.arrays) {
      std::cout.write(static_cast<const char*>(array.raw()), array.bytes());
    }
    std::cout.flush();
  }
  return 0;
}

}  // namespace
}  // namespace bindery

int main(int argc, char** argv) {
  try {
    return bindery::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "run: {}\n", e.what());
    return 1;
  }
}
