// The operators' kernels on a GPU: the answers of the reference kernels. The same on a fake, for machines without one:
// tests/executor/cuda/operators_test.cc.
#include <gtest/gtest.h>

#include <exception>

#include "tests/executor/graph_runner.h"
#include "tests/executor/operator_cases.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

TEST(GpuOperators, AnswerAsTheReferenceDoes) {
  for (const OperatorCase& c : AllOperatorCases()) {
    try {
      CheckKernelsOn(TestDevice(), c);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "case " << c.name << ": " << e.what();
    }
  }
}

}  // namespace
}  // namespace bindery
