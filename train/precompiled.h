// What the files of this layer read from outside and of the layers below, compiled once for all of them
// (base/precompiled.bzl).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "executor/data_parallel_executor_group.h"
#include "symbol/graph.h"
#include "symbol/model.h"
#include "symbol/op_def.h"
#include "symbol/symbol.h"
