// What steps and scoring share. Private to train/trainer*.cc.
#pragma once

#include <string>

namespace bindery {

// `operation "metric" failed: output "x" is not finite` without the operation, which is of no interest to users.
std::string WithoutOperation(const std::string& message);

}  // namespace bindery
