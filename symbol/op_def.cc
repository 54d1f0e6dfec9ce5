#include "symbol/op_def.h"

#include <algorithm>

namespace bindery {

int NumOutputs(const OpDef& op, const AnyAttrs& attrs) {
  return op.num_outputs ? op.num_outputs(attrs) : static_cast<int>(op.outputs(attrs).size());
}

int NumVisibleOutputs(const OpDef& op, const AnyAttrs& attrs) {
  const int all = NumOutputs(op, attrs);
  const int visible = op.num_visible_outputs ? op.num_visible_outputs(attrs) : 0;
  return visible == 0 ? all : std::min(visible, all);
}

bool IsAuxiliary(const OpDef& op, const std::string& input_name) {
  return std::find(op.auxiliary.begin(), op.auxiliary.end(), input_name) != op.auxiliary.end();
}

}  // namespace bindery
