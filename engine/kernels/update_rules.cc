#include "engine/kernels/update_rules.h"

#include <tuple>

#include "engine/kernels/update_kernels.h"
#include "engine/kernels/update_loop.h"

namespace bindery {

namespace {

// Null: it goes by no norms.
template <class Rule>
constexpr MeasureKernel MeasureKernelOrNull() {
  if constexpr (GoesByNorms<Rule>) return MeasureKernelOf<Rule>;
  return nullptr;
}

template <class Rules>
struct KernelsOf;
template <class... Rules>
struct KernelsOf<std::tuple<Rules...>> {
  static constexpr UpdateKernel kUpdates[] = {UpdateKernelOf<Rules>...};
  static constexpr MeasureKernel kMeasures[] = {MeasureKernelOrNull<Rules>()...};
};

}  // namespace

std::span<const UpdateKernel> UpdateKernels() { return KernelsOf<update_rules::All>::kUpdates; }
std::span<const MeasureKernel> MeasureKernels() { return KernelsOf<update_rules::All>::kMeasures; }

// Learning rates are those of PyTorch, or MXNet's of what PyTorch has not; sgd and nag have MXNet's, lion its paper's.
const std::vector<UpdateRule>& UpdateRules() {
  using namespace update_rules;
  const std::vector<UpdateSetting> kAdam = {{"beta1", 0.9, 1}, {"beta2", 0.999, 1}, {"epsilon", 1e-8}};
  const std::vector<UpdateSetting> kRmsProp = {{"momentum", 0, 1}, {"rho", 0.9, 1}, {"epsilon", 1e-8}};
  static const auto& rules = *new std::vector<UpdateRule>{
      {"sgd", 0.01, {"momentum"}, {{"momentum", 0, 1}}, UpdateKernelOf<Momentum>, UpdateKernelOf<Sgd>},
      {"nag", 0.01, {"momentum"}, {{"momentum", 0.9, 1}}, UpdateKernelOf<Nesterov>},
      {"adam", 0.001, {"mean", "variance"}, kAdam, UpdateKernelOf<Adam>},
      {"adamw", 0.001, {"mean", "variance"}, kAdam, UpdateKernelOf<AdamW>},
      {"nadam",
       0.002,
       {"mean", "variance"},
       {{"beta1", 0.9, 1}, {"beta2", 0.999, 1}, {"epsilon", 1e-8}, {"schedule_decay", 0.004}},
       UpdateKernelOf<Nadam>},
      {"adamax", 0.002, {"mean", "largest"}, kAdam, UpdateKernelOf<Adamax>},
      {"rmsprop", 0.01, {"momentum", "square"}, kRmsProp, UpdateKernelOf<RmsPropMomentum>, UpdateKernelOf<RmsProp>},
      {"centered_rmsprop", 0.01, {"momentum", "square", "mean"}, kRmsProp, UpdateKernelOf<CenteredRmsProp>},
      {"adagrad", 0.01, {"history"}, {{"lr_decay", 0}, {"epsilon", 1e-10}}, UpdateKernelOf<AdaGrad>},
      {"adadelta", 1, {"square", "delta"}, {{"rho", 0.9, 1}, {"epsilon", 1e-6}}, UpdateKernelOf<AdaDelta>},
      {"ftrl", 0.1, {"z", "n"}, {{"lambda1", 0.01}, {"beta", 1}}, UpdateKernelOf<Ftrl>},
      {"signum",
       0.01,
       {"momentum"},
       {{"momentum", 0.9, 1}, {"wd_lh", 0}},
       UpdateKernelOf<Signum>,
       UpdateKernelOf<SignSgd>},
      {.name = "lars",
       .rate = 0.1,
       .states = {"momentum"},
       .settings = {{"momentum", 0.9, 1}, {"eta", 0.001}, {"epsilon", 0}},
       .kernel = UpdateKernelOf<Lars>,
       .measure = MeasureKernelOf<Lars>},
      {.name = "lamb",
       .rate = 0.001,
       .states = {"mean", "variance"},
       .settings = {{"beta1", 0.9, 1}, {"beta2", 0.999, 1}, {"epsilon", 1e-6}, {"lower", 0}, {"upper", 0}},
       .kernel = UpdateKernelOf<Lamb>,
       .measure = MeasureKernelOf<Lamb>},
      {"lion", 1e-4, {"momentum"}, {{"beta1", 0.9, 1}, {"beta2", 0.99, 1}}, UpdateKernelOf<Lion>},
  };
  return rules;
}

}  // namespace bindery
