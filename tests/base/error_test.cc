#include "base/error.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "base/device.h"
#include "base/dtype.h"
#include "base/shape.h"

namespace bindery {
namespace {

template <class E>
void ExpectName(const std::string& name) {
  static_assert(std::is_base_of_v<Error, E>);
  try {
    Throw<E>("{} \"{}\"", "FullyConnected", "fc1");
    FAIL() << name;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), name + ": FullyConnected \"fc1\"");
    EXPECT_EQ(error.message(), "FullyConnected \"fc1\"");
    EXPECT_NE(dynamic_cast<const E*>(&error), nullptr);
  }
}

TEST(ErrorTest, StartsWithTheNameOfItsType) {
  ExpectName<Error>("Error");
  ExpectName<ShapeError>("ShapeError");
  ExpectName<ModelError>("ModelError");
  ExpectName<DataError>("DataError");
  ExpectName<CheckpointError>("CheckpointError");
  ExpectName<DeviceError>("DeviceError");
  ExpectName<NumericError>("NumericError");
}

TEST(ErrorTest, MessageServesToAddContext) {
  try {
    try {
      Throw<ShapeError>("expected (2, 3), got (2, 4)");
    } catch (const ShapeError& error) {
      Throw<ShapeError>("node \"fc1\": {}", error.message());
    }
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "ShapeError: node \"fc1\": expected (2, 3), got (2, 4)");
  }
}

TEST(ErrorTest, TextWithBracesIsNotAFormat) {
  try {
    Throw<DataError>("{}", "a {} b {0}");
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "a {} b {0}");
  }
}

TEST(ErrorTest, PrintsOurValueTypes) {
  EXPECT_EQ(fmt::format("{} {} {}", Shape{2, 3}, DType::kBFloat16, Cuda(1)), "(2, 3) bfloat16 cuda:1");
  EXPECT_EQ(fmt::format("[{:>8}]", Shape{5}), "[     (5)]");
}

TEST(ErrorTest, CheckNamesThePlace) {
  EXPECT_NO_THROW(Check(true, "a plan has an end"));
  const int line = __LINE__ + 2;
  try {
    Check(false, "a plan has an end");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("a plan has an end"), std::string::npos);
    EXPECT_NE(error.message().find("error_test.cc:" + std::to_string(line)), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace bindery
