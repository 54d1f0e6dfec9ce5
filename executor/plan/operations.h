// How many operations a plan's calls take.
#pragma once

#include "executor/plan/plan.h"

namespace bindery {

// Multiplications and additions of a call, each counted, of those operators of which they are most of the work
// (convolutions, products of matrices, recurrent layers, attention); 0 of others.
double OperationsOf(const Plan& plan, const PlanCall& call);
// With so many, kernels of CPUs begin to share out a call among threads. A team costs about half a microsecond to start
// when it spins; at 50 GFLOP/s a thread this is ten times that.
inline constexpr double kSharedOperations = 4e5;
// Does no call take so many? Then one thread does nearly all of the plan.
bool IsForOneThread(const Plan& plan);

}  // namespace bindery
