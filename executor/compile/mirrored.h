// Which of forward's values backward computes again (Mirror), found by planning: a program is made with more and more
// of them until its working memory is what was asked for.
#pragma once

#include <functional>
#include <memory>

#include "executor/compile/lowering.h"
#include "executor/plan/program.h"

namespace bindery {

// `compile` makes a program of a lowered graph. Throws DeviceError where no choice keeps the limit.
std::shared_ptr<const Program> CompileMirrored(
    const LoweredGraph& lowered, const Mirror& mirror,
    const std::function<std::shared_ptr<const Program>(const LoweredGraph&)>& compile);

}  // namespace bindery
