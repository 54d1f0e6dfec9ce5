#include "train/optimizers/optimizer.h"

#include <cmath>

#include "base/error.h"
#include "base/names.h"
#include "engine/kernels/flat.h"

namespace bindery {
namespace {

void CheckNumber(const char* name, double value, double below = INFINITY) {
  if (!(value >= 0 && value < below)) {
    if (std::isinf(below)) Throw("optimizer: {} must be a number >= 0, got {}", name, value);
    Throw("optimizer: {} must be in [0, {}), got {}", name, below, value);
  }
}

}  // namespace

Optimizer::Optimizer(const OptimizerOptions& options) : options_(options) {
  CheckNumber("learning_rate", options.learning_rate);
  CheckNumber("weight_decay", options.weight_decay);
  CheckNumber("clip_gradient", options.clip_gradient);
  if (options.rescale_gradient && !std::isfinite(*options.rescale_gradient)) {
    Throw("optimizer: rescale must be a finite number, got {}", *options.rescale_gradient);
  }
}

std::string Optimizer::Text() const {
  CallPrinter printer(name());
  printer.Add("lr", options_.learning_rate);
  PrintSettings(&printer);
  if (options_.weight_decay != 0) printer.Add("wd", options_.weight_decay);
  if (options_.clip_gradient != 0) printer.Add("clip_gradient", options_.clip_gradient);
  if (options_.rescale_gradient) printer.Add("rescale", *options_.rescale_gradient);
  return printer.Text();
}

Sgd::Sgd(const OptimizerOptions& options, double momentum) : Optimizer(options), momentum_(momentum) {
  CheckNumber("momentum", momentum, 1);
}

std::vector<std::string> Sgd::state_names() const {
  if (momentum_ == 0) return {};
  return {"momentum"};
}

void Sgd::Update(DType dtype, const UpdateArgs& args, std::span<const void* const> grads, void* weight,
                 std::span<void* const> states, std::span<void* const> copies, int64_t n) const {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64)
    Throw("sgd updates float32 or float64 parameters, got {}", dtype);
  Check(states.size() == (momentum_ != 0 ? 1u : 0u), "an optimizer gets its state tensors");
  flat::Sgd(dtype, grads, weight, states.empty() ? nullptr : states[0], copies, n,
            {.learning_rate = args.learning_rate,
             .momentum = momentum_,
             .weight_decay = args.weight_decay,
             .rescale = args.rescale,
             .clip = options().clip_gradient});
}

void Sgd::PrintSettings(CallPrinter* printer) const {
  if (momentum_ != 0) printer->Add("momentum", momentum_);
}

std::unique_ptr<Optimizer> MakeOptimizer(std::string_view text) {
  CallText call("optimizer", text);
  const auto declare = [&](std::vector<std::string> own) {
    std::vector<std::string> names = {"lr"};
    names.insert(names.end(), own.begin(), own.end());
    for (const char* name : {"wd", "clip_gradient", "rescale"}) names.emplace_back(name);
    call.Declare(std::move(names));
    OptimizerOptions options;
    options.learning_rate = call.Number("lr").value_or(options.learning_rate);
    options.weight_decay = call.Number("wd").value_or(options.weight_decay);
    options.clip_gradient = call.Number("clip_gradient").value_or(options.clip_gradient);
    options.rescale_gradient = call.Number("rescale");
    return options;
  };
  if (call.name() == "sgd") {
    const OptimizerOptions options = declare({"momentum"});
    return std::make_unique<Sgd>(options, call.Number("momentum").value_or(0));
  }
  const std::vector<std::string> known = {"sgd"};
  Throw("unknown optimizer \"{}\"{}", call.name(), NameHint(call.name(), known));
}

}  // namespace bindery
