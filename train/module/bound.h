// What a ReplicatedModule has while it is bound. Private to this folder.
#pragma once

#include <memory>
#include <vector>

#include "train/module/exchange.h"
#include "train/module/nest.h"
#include "train/module/replicated_module.h"

namespace bindery {

struct ReplicatedModule::Bound {
  std::vector<DataDesc> data = {};      // of the inputs with names
  std::vector<bool> has_gradient = {};  // by those
  std::unique_ptr<ExecutorGroup> group = nullptr;
  std::unique_ptr<ParameterExchange> exchange = nullptr;
  Nest<int> outputs = {};  // which output each leaf is; -1: none
  bool ran_forward = false, ran_backward = false;
};

}  // namespace bindery
