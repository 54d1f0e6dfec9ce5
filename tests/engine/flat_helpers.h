// What the tests of flat loops share: values, and runs that must not depend on the machine or the team.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "base/philox.h"
#include "engine/kernels/vectorized.h"
#include "engine/team.h"

namespace bindery {

constexpr int64_t kLarge = kSerialElements + 5 * 1024 + 77;  // parallel

inline HostTensor Random(DType dtype, int64_t n, const std::string& name, double scale = 4) {
  HostTensor result(dtype, {n});
  PhiloxStream random(5, name);
  for (int64_t i = 0; i < n; ++i) result.Set(i, (random.Uniform() * 2 - 1) * scale);
  return result;
}

// `run` must give the same bits for every team and instruction set; returns them. Small sizes are serial in every team.
inline HostTensor SameForAllMachines(int64_t n, const std::function<HostTensor()>& run) {
  const HostTensor expected = run();
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    flat::LimitIsa(isa);
    for (int team : n > kSerialElements ? std::vector{1, 2, 3, 8} : std::vector{2}) {
      const TeamScope scope(team);
      EXPECT_TRUE(run() == expected) << "isa " << static_cast<int>(isa) << ", team " << team;
    }
  }
  flat::LimitIsa(Isa::kAvx512);
  return expected;
}

}  // namespace bindery
