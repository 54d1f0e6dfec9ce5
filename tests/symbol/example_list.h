// What the files of examples of operators add to.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/symbol/op_examples.h"

namespace bindery {

class Examples {
 public:
  std::vector<OpExample> list;

  // Every input of one of data's rank and first extent is batched along axis 0, as is usual; or as given.
  void Add(const OpDef& op, AnyAttrs attrs, std::vector<Shape> inputs, std::vector<int> axes = {}) {
    std::string label = op.name;
    for (const auto& [name, value] : attrs.ToMap()) label += " " + name + "=" + ToString(value);
    if (axes.empty()) {
      for (const Shape& shape : inputs)
        axes.push_back(!inputs.empty() && shape.rank() > 0 && shape[0] == inputs[0][0] ? 0 : -1);
    }
    list.push_back({std::move(label), &op, std::move(attrs), std::move(inputs), std::move(axes)});
  }
};

// op_examples_arranged.cc
void AddArranged(Examples& e);

}  // namespace bindery
