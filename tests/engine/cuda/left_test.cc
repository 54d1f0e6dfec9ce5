// What tests leave behind on the fake's GPUs is listed, one by one; install.cc looks at the end of each program.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/memory/storage.h"
#include "engine/tensor.h"
#include "tests/engine/cuda/fake/fake.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

int64_t Count(const std::vector<std::string>& left, const std::string& what) {
  return std::ranges::count_if(left, [&](const std::string& text) {
    return text.find(what) != std::string::npos && text.ends_with(", made in CudaFakeTest.ListsWhatIsLeft");
  });
}

TEST(CudaFakeTest, ListsWhatIsLeft) {
  EXPECT_EQ(fake::ListLeft(), std::vector<std::string>());
  {
    const std::shared_ptr<Engine> engine = MakeThreadedEngine();
    const Tensor tensor(engine, Cuda(1), DType::kFloat32, {1'000'000});
    const std::shared_ptr<Chunk> pinned = DefaultStorage()->AllocateStaging(Cuda(1), 3'000'000);
    const PreparedPtr fill = engine->Prepare(
        {.name = "fill", .device = Cuda(1), .writes = {tensor.var()}, .run = [tensor](const OpContext& context) {
           for (int i = 0; i < 3; ++i) Backend::Of(DeviceKind::kCuda).flat().Zero(context.stream, tensor.address(), 4);
         }});
    for (int i = 0; i < 3; ++i) engine->Push(fill);
    engine->WaitAll();
    const std::vector<std::string> left = fake::ListLeft();
    EXPECT_GE(Count(left, " bytes of GPU 1"), 2) << "the tensor, and a stream's";
    EXPECT_GE(Count(left, " bytes of pinned memory"), 2);
    EXPECT_EQ(Count(left, "an instance of a graph of GPU 1"), 1);
  }
  EXPECT_EQ(fake::ListLeft(), std::vector<std::string>());
}

// What its last operations use holds it.
TEST(CudaFakeTest, NothingIsLeftOfAnEngineThatNobodyWaitsFor) {
  {
    const std::shared_ptr<Engine> engine = MakeThreadedEngine();
    const Tensor tensor(engine, Cuda(0), DType::kFloat32, {100});
    const PreparedPtr fill = engine->Prepare(
        {.name = "fill", .device = Cuda(0), .writes = {tensor.var()}, .run = [tensor](const OpContext& context) {
           Backend::Of(DeviceKind::kCuda).flat().Zero(context.stream, tensor.address(), tensor.bytes());
         }});
    for (int i = 0; i < 3; ++i) engine->Push(fill);
  }
  EXPECT_EQ(fake::ListLeft(), std::vector<std::string>());
}

}  // namespace
}  // namespace bindery
