// Switches of the environment. Private to engine/cuda.
#pragma once

#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace bindery::cuda {

// NAME=yes or NAME=no; `otherwise` where it is not set. Throws Error if it is set to something else.
inline bool SwitchOf(const char* name, bool otherwise) {
  const char* const text = std::getenv(name);
  const std::string_view choice = text ? text : "";
  if (choice != "" && choice != "yes" && choice != "no") Throw("{} must be yes or no, got \"{}\"", name, choice);
  return choice == "" ? otherwise : choice == "yes";
}

}  // namespace bindery::cuda
