// What engines promise on devices whose work comes later and whose memory the host cannot address, whatever their kind.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/backend.h"
#include "engine/sim/sim.h"
#include "engine/tensor.h"

namespace bindery {

class AsynchronousDevices {
 protected:
  explicit AsynchronousDevices(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  Tensor New(const HostTensor& values, Device device) {
    Tensor tensor(engine_, device, values.dtype(), values.shape());
    tensor.CopyFrom(values);
    return tensor;
  }
  // Adds 1 to the elements of a float tensor, on its device, in an operation that updates it.
  void Increment(const Tensor& tensor) {
    const Tensor ones = New(HostTensor::Full(tensor.dtype(), tensor.shape(), 1), tensor.device());
    engine_->Push({.name = "increment",
                   .device = tensor.device(),
                   .reads = {ones.var()},
                   .writes = {},
                   .updates = {tensor.var()},
                   .run = [tensor, ones](const OpContext& context) {
                     Backend::Of(tensor.device().kind)
                         .flat()
                         .Add(context.stream, tensor.dtype(), ones.address(), tensor.address(), tensor.elements());
                   }});
  }

  void ExpectCopiesCastsAndFills(const std::vector<Device>& sources, const std::vector<Device>& targets) {
    HostTensor values(DType::kFloat32, {3, 5});
    for (int64_t i = 0; i < 15; ++i) values.Set(i, static_cast<double>(i) - 7);
    for (const Device from : sources) {
      for (const Device to : targets) {
        for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32}) {
          const Tensor source = New(values, from);
          const Tensor target(engine_, to, dtype, {3, 5});
          target.CopyFrom(source);
          EXPECT_TRUE(target.ToHost() == values.Cast(dtype)) << ToString(from) << " to " << ToString(to);
          target.Slice(1, 2).Fill(3);
          EXPECT_EQ(target.ToHost().At(7), 3);
          EXPECT_EQ(target.ToHost().At(4), -3);
        }
      }
    }
  }

  // As a window that moves on: forwards and backwards, by whatever part.
  void ExpectCopiesBetweenViewsThatMeet(Device device) {
    HostTensor values(DType::kInt32, {40});
    for (int64_t i = 0; i < 40; ++i) values.Set(i, static_cast<double>(i));
    for (const auto& [from, to] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 0}, {0, 13}, {20, 3}, {5, 5}}) {
      const Tensor tensor = New(values, device);
      tensor.Slice(to, to + 20).CopyFrom(tensor.Slice(from, from + 20));
      const HostTensor after = tensor.ToHost();
      for (int64_t i = 0; i < 40; ++i) {
        EXPECT_EQ(after.At(i), static_cast<double>(i >= to && i < to + 20 ? i - to + from : i)) << from << " to " << to;
      }
    }
  }

  void ExpectOrderWhateverTheDelays(Device first, Device last) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      sim::SetDelays(seed, 300);
      const std::vector<Tensor> tensors = {New(HostTensor(DType::kFloat32, {8}), first),
                                           New(HostTensor(DType::kFloat32, {8}), Cpu(0)),
                                           New(HostTensor(DType::kFloat32, {8}), last)};
      for (int round = 0; round < 4; ++round) {
        for (size_t t = 0; t < tensors.size(); ++t) {
          Increment(tensors[t]);
          tensors[(t + 1) % tensors.size()].CopyFrom(tensors[t]);
        }
      }
      // Each round goes once around and adds 1 at each of three stations.
      EXPECT_EQ(tensors[0].ToHost().At(3), 12) << seed;
      EXPECT_EQ(tensors[2].ToHost().At(3), 12) << seed;
    }
  }

  std::shared_ptr<Engine> engine_;
};

}  // namespace bindery
