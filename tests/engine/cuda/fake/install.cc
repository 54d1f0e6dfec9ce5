// Whatever this is linked into finds the fakes where the driver and NVIDIA's libraries would be, from the beginning, and
// fails if it did what these would not have let pass, or left something behind on a GPU.
#include <gtest/gtest.h>

#include <string>

#include "engine/engine.h"
#include "tests/engine/cuda/fake/cublaslt.h"
#include "tests/engine/cuda/fake/cudnn.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/engine/cuda/fake/nccl.h"

namespace bindery::cuda::fake {
namespace {

class FakeEnvironment : public testing::Environment {
 public:
  void TearDown() override {
    SetDefaultEngine(nullptr);
    for (const std::string& text : ListLeft()) ADD_FAILURE() << "left behind: " << text;
    for (const std::string& violation : TakeViolations()) ADD_FAILURE() << violation;
  }
};

[[maybe_unused]] testing::Environment* const kFake = [] {
  UseRuntime(Api());
  UseCublasLt(CublasLt());
  UseCudnn(Cudnn());
  UseNccl(Nccl());
  return testing::AddGlobalTestEnvironment(new FakeEnvironment);
}();

}  // namespace
}  // namespace bindery::cuda::fake
