// The message of the error of type E that `f` throws.
#pragma once

#include <string>

#include "base/error.h"

namespace bindery {

template <class E = Error, class F>
std::string MessageOf(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace bindery
