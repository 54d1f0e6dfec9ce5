// Adds a node to the errors of what is done for it.
#pragma once

#include <string>

#include "symbol/symbol.h"

namespace bindery {

// A kernel's message may name the node already.
inline std::string Located(const std::string& where, const std::string& message) {
  return message.starts_with(where) ? message : where + message;
}

// Adds the node to an error without changing its type.
template <class F>
auto WithNode(const Node& node, F&& f) {
  const std::string where = Describe(node) + ": ";
  try {
    return f();
  } catch (const ShapeError& e) {
    throw ShapeError(Located(where, e.message()));
  } catch (const ModelError& e) {
    throw ModelError(Located(where, e.message()));
  } catch (const DeviceError& e) {
    throw DeviceError(Located(where, e.message()));
  } catch (const Error& e) {
    throw Error(Located(where, e.message()));
  }
}

}  // namespace bindery
