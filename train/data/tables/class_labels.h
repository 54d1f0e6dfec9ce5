// Labels of an array, as numbers of classes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/host_tensor.h"

namespace bindery {

inline constexpr int64_t kMostClasses = 1 << 24;  // float32 labels are exact up to there

// They must be whole numbers from 0, below `known` if that is not 0. Returns how many classes there are: `known`, or
// one more than the largest. Throws DataError, which begins with the name.
int64_t CheckClasses(const HostTensor& labels, int64_t known, const std::string& name);

// Labels (N, K), K > 1, of which each sample's is a 1 among zeros ("one hot"), as their numbers, float32 (N); nullopt:
// they are others.
std::optional<HostTensor> FromOneHot(const HostTensor& labels);

}  // namespace bindery
