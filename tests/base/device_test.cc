#include "base/device.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace bindery {
namespace {

TEST(DeviceTest, PrintsWhatItParses) {
  EXPECT_EQ(ToString(Cpu()), "cpu:0");
  EXPECT_EQ(ToString(Cpu(3)), "cpu:3");
  EXPECT_EQ(ToString(Cuda(1)), "cuda:1");
  for (Device device : {Cpu(0), Cpu(17), Cuda(0), Cuda(7)}) EXPECT_EQ(ParseDevice(ToString(device)), device);
  EXPECT_EQ(ParseDevice("cpu"), Cpu(0));
  EXPECT_EQ(ParseDevice("cuda"), Cuda(0));
}

TEST(DeviceTest, RefusesOtherForms) {
  for (const char* text : {"", "cpu:", "cpu:-1", "cpu:+1", "cpu: 1", "cpu:1 ", " cpu", "CPU", "cpu1", "cpu:1:2",
                           "gpu:0", "cpu:99999999999", "cpu:0x1", ":0", "cpu,cuda"}) {
    try {
      ParseDevice(text);
      FAIL() << text;
    } catch (const DeviceError& error) {
      EXPECT_NE(error.message().find("expected cpu, cuda or sim"), std::string::npos) << error.what();
    }
  }
}

TEST(DeviceTest, ParsesLists) {
  EXPECT_EQ(ParseDevices("cpu"), std::vector<Device>{Cpu()});
  EXPECT_EQ(ParseDevices("cpu:1,cpu:0,cuda:2"), (std::vector<Device>{Cpu(1), Cpu(0), Cuda(2)}));
  EXPECT_THROW(ParseDevices(""), DeviceError);
  EXPECT_THROW(ParseDevices("cpu:0,"), DeviceError);
  EXPECT_THROW(ParseDevices(",cpu:0"), DeviceError);
  EXPECT_THROW(ParseDevices("cpu:0,,cpu:1"), DeviceError);
}

TEST(DeviceTest, OrdersByKindThenNumber) {
  EXPECT_LT(Cpu(0), Cpu(1));
  EXPECT_LT(Cpu(9), Cuda(0));
  EXPECT_EQ(Cpu(1), Cpu(1));
  EXPECT_NE(Cpu(1), Cuda(1));
}

}  // namespace
}  // namespace bindery
