#include "executor/plan/operations.h"

#include <algorithm>
#include <vector>

#include "symbol/op_def.h"

namespace bindery {

double OperationsOf(const Plan& plan, const PlanCall& call) {
  const OpDef* const op = FindOpOrNull(call.op);
  if (!op || !op->operations) return 0;
  const auto shapes_of = [&plan](const std::vector<int>& values) {
    std::vector<Shape> shapes;
    for (const int value : values) {
      shapes.push_back(value < 0 ? Shape() : plan.values[static_cast<size_t>(value)].type.shape);
    }
    return shapes;
  };
  return op->operations(shapes_of(call.inputs), shapes_of(call.outputs));
}

bool IsForOneThread(const Plan& plan) {
  return std::ranges::none_of(plan.calls,
                              [&](const PlanCall& call) { return OperationsOf(plan, call) >= kSharedOperations; });
}

}  // namespace bindery
