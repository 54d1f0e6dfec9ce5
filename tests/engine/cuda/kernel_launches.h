// What tests of kernels' bodies share: launches on CPUs, and numbers.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "engine/cuda/step_body.h"
#include "tests/engine/cuda/cpu_block.h"

namespace bindery {

inline constexpr int64_t kSizes[] = {1, 3, 16, 17, 1000, 4099};
struct Launch {
  int blocks, threads;
  bool real = false;  // threads that wait for each other: a sanitizer sees where they should and do not
};
inline constexpr Launch kLaunches[] = {{1, 1}, {1, 7}, {3, 32}, {5, 256}, {2, 16, true}};

template <class Args>
void RunBy(const Launch& launch, const Args& args) {
  launch.real ? RunOnThreads(args, launch.blocks, launch.threads) : RunOnCpu(args, launch.blocks, launch.threads);
}

inline std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) types.push_back(static_cast<DType>(i));
  return types;
}

// `n` elements, `offset` elements behind an address that all packs may have.
class Values {
 public:
  Values(DType dtype, int64_t n, int64_t offset = 0)
      : bytes_(n * SizeOf(dtype)), offset_(offset * SizeOf(dtype)),
        memory_(static_cast<size_t>((bytes_ + offset_) / 16 + 2)) {}
  char* data() { return reinterpret_cast<char*>(memory_.data()) + offset_; }
  const char* data() const { return reinterpret_cast<const char*>(memory_.data()) + offset_; }
  // Nothing before or behind the elements counts.
  bool operator==(const Values& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), static_cast<size_t>(bytes_)) == 0;
  }

 private:
  int64_t bytes_, offset_;
  std::vector<cuda::Unit16> memory_;
};

// Numbers of all sizes, and those at the edges of types. NaN's bits are nobody's promise.
inline Values Numbers(DType dtype, int64_t n, int64_t offset, uint64_t seed) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kEdges[] = {0,     -0.0,  0.5,        -0.5,       1.5,  2.5,    254.5,     127.5,      -128.5,
                               65519, 65520, 2147483647, 2147483648, 1e19, -1e300, kInfinity, -kInfinity, 1e-40};
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 3);
  Values values(dtype, n, offset);
  Dispatch(dtype, [&]<class T>() {
    for (int64_t i = 0; i < n; ++i) {
      const double value = random() % 3 == 0 ? kEdges[random() % std::size(kEdges)] : std::exp2(normal(random) * 4);
      reinterpret_cast<T*>(values.data())[i] = StoreDouble<T>(value);
    }
  });
  return values;
}

}  // namespace bindery
