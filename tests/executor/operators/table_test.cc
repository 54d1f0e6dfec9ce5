// What the tables owe each other: every operator has a reference kernel and a case that checks it.
#include <gtest/gtest.h>

#include <set>

#include "executor/kernel_table.h"
#include "symbol/builtin_ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

// `run`: only those that run as they are, and are not made of others.
std::set<std::string> BuiltinNames(bool run) {
  std::set<std::string> names;
  for (const OpDef& (*op)() : BuiltinOps()) {
    if (!run || !op().compose) names.insert(op().name);
  }
  return names;
}

TEST(OperatorTables, EveryOperatorHasAReferenceKernel) {
  std::set<std::string> kernels;
  for (const KernelEntry& entry : ReferenceKernels().entries())
    EXPECT_TRUE(kernels.insert(entry.op).second) << entry.op << " twice";
  EXPECT_EQ(kernels, BuiltinNames(true));
}

TEST(OperatorTables, FastKernelsAreOfKnownOperators) {
  const std::set<std::string> names = BuiltinNames(true);
  std::set<std::string> kernels;
  for (const KernelEntry& entry : CpuKernels().entries()) {
    EXPECT_TRUE(kernels.insert(entry.op).second) << entry.op << " twice";
    EXPECT_TRUE(names.contains(entry.op)) << entry.op;
  }
}

TEST(OperatorTables, EveryOperatorHasACase) {
  std::set<std::string> missing = BuiltinNames(false);
  for (const OperatorCase& c : AllOperatorCases()) {
    for (const std::string& name : OperatorsIn(c)) missing.erase(name);
  }
  std::string list;
  for (const std::string& name : missing) list += " " + name;
  EXPECT_TRUE(missing.empty()) << "add cases to tests/executor/cases_*.cc for:" << list;
}

// The fast kernels that run in none of the cases.
std::string IdleIn(const std::vector<OperatorCase>& cases, const std::set<std::string>& excused = {}) {
  std::set<std::string> idle;
  for (const KernelEntry& entry : CpuKernels().entries()) idle.insert(entry.op);
  for (const OperatorCase& c : cases) {
    for (const std::string& name : FastOperatorsIn(c)) idle.erase(name);
  }
  std::string list;
  for (const std::string& name : idle) {
    if (!excused.contains(name)) list += " " + name;
  }
  return list;
}

// A kernel that declines every case is not checked by any.
TEST(OperatorTables, EveryFastKernelRunsInSomeCase) {
  EXPECT_EQ(IdleIn(AllOperatorCases()), "") << "the fast table declines every case of these";
}

// Nor is what a kernel does with several threads, if every case is small.
TEST(OperatorTables, EveryFastKernelRunsInALargeCase) {
  // One thread's: of channels alone, and of axes.
  const std::set<std::string> small = {"BatchStatistics", "MoveStatistics", "ShapeArray", "SizeArray"};
  EXPECT_EQ(IdleIn(LargeCases(), small), "") << "add cases to tests/executor/cases/large.cc";
}

TEST(OperatorTables, LargeCasesRunFastKernels) {
  for (const OperatorCase& c : LargeCases()) {
    EXPECT_EQ(SlowOperatorsIn(c), std::vector<std::string>()) << c.name;
  }
}

}  // namespace
}  // namespace bindery
