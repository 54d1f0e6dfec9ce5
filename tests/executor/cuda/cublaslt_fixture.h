// What the tests share that ask what cuBLASLt is asked for, by its fake.
#pragma once

#include <gtest/gtest.h>

#include "engine/cuda/cublaslt_api.h"
#include "engine/cuda/recording.h"
#include "tests/engine/cuda/fake/cublaslt.h"

namespace bindery {

// Each begins with no plans made, and ends with what all have in the beginning.
class CublasLtTest : public testing::Test {
 protected:
  CublasLtTest() { cuda::fake::TakePlans(); }
  ~CublasLtTest() override {
    cuda::UseCublasLt(cuda::fake::CublasLt());
    cuda::UseTf32(false);
    cuda::UseGraphs(true);
    cuda::fake::FindNoAlgorithm(false);
  }
};

}  // namespace bindery
