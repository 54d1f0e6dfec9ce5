// Adds a node to the errors of what is done for it.
#pragma once

#include <string>

#include "base/error.h"
#include "symbol/symbol.h"

namespace bindery {

// Adds the node to an error, unless its message names it already, without changing its type.
template <class F>
auto WithNode(const Node& node, F&& f) {
  try {
    return f();
  } catch (const Error&) {
    std::rethrow_exception(CurrentErrorAfter(Describe(node) + ": "));
  }
}

}  // namespace bindery
