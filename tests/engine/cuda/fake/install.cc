// Whatever this is linked into finds the fakes where the driver and cuBLASLt would be, from the beginning, and fails if it did what
// the driver would not have let pass.
#include <gtest/gtest.h>

#include "tests/engine/cuda/fake/cublaslt.h"
#include "tests/engine/cuda/fake/fake.h"

namespace bindery::cuda::fake {
namespace {

class FakeEnvironment : public testing::Environment {
 public:
  void TearDown() override {
    for (const std::string& violation : TakeViolations()) ADD_FAILURE() << violation;
  }
};

[[maybe_unused]] testing::Environment* const kFake = [] {
  UseRuntime(Api());
  UseCublasLt(CublasLt());
  return testing::AddGlobalTestEnvironment(new FakeEnvironment);
}();

}  // namespace
}  // namespace bindery::cuda::fake
