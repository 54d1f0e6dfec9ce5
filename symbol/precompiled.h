// What the files of this layer read from outside, compiled once for all of them (base/precompiled.bzl).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/host_tensor.h"
#include "base/shape.h"
