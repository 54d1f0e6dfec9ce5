// From a function of symbols and arrays to a run of its program. Private to executor/tape.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "executor/tape/runtime.h"
#include "executor/tape/tape_node.h"

namespace bindery::tape {

// A call that is ready to run.
struct PreparedCall {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<const Unit> unit;
  RunOptions options;
  bool is_recorded = false;
};
// `device`: where there are no inputs. Throws Error, ShapeError, ModelError, naming the operator.
PreparedCall Prepare(const BuildFunction& build, const std::vector<NDArray>& inputs, std::optional<Device> device = {});
std::vector<NDArray> ComputeOn(Device device, const BuildFunction& build);

NDArray NewArray(const Tensor& tensor);  // that the tape knows nothing of
// As kernels are promised it: a copy where a view begins elsewhere than at a multiple of 64 bytes.
Tensor Aligned(const Tensor& tensor);

}  // namespace bindery::tape
