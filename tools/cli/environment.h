// What the environment has for the program beside options (settings.h).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace bindery::cli {

struct EnvironmentVariable {
  const char* name;
  const char* description;  // a sentence
};
// All that the libraries read, by their names.
std::span<const EnvironmentVariable> EnvironmentVariables();

// A line of warning for each variable BINDERY_... that is neither one of `options` nor of the above, nor for tests
// (BINDERY_TEST_...): with the nearest name, if one is near.
void WarnOfUnknownVariables(const std::vector<std::string>& options);

}  // namespace bindery::cli
