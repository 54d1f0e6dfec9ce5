#include "engine/kernels/update_rules.h"

#include "engine/kernels/update_loop.h"

namespace bindery {

const std::vector<UpdateRule>& UpdateRules() {
  using namespace update_rules;
  static const auto& rules = *new std::vector<UpdateRule>{
      {"sgd", {"momentum"}, {{"momentum", 0, 1}}, UpdateKernelOf<Momentum>, UpdateKernelOf<Sgd>},
      {"nag", {"momentum"}, {{"momentum", 0.9, 1}}, UpdateKernelOf<Nesterov>},
      {"adam", {"mean", "variance"}, {{"beta1", 0.9, 1}, {"beta2", 0.999, 1}, {"epsilon", 1e-8}}, UpdateKernelOf<Adam>},
  };
  return rules;
}

}  // namespace bindery
