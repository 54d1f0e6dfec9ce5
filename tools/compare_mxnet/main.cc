// Bindery's side of compare_mxnet/compare.sh: `compare_mxnet FOLDER` runs all that models.py left in the folder, prints
// the largest difference of each, and fails if one is larger than rounding.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "tools/compare_mxnet/compare.h"

namespace {

using namespace bindery;

constexpr double kModel = 1e-4, kOperator = 2e-5;  // of steps whose differences grow, and of one computation

// Batch-norm normalises by each device's share, as MXNet's does: what MXNet computed on one device is compared on one,
// and on two what it computed on two ("uneven").
bool HasBatchNorm(const std::string& name) { return name.ends_with("mlp") || name == "residual"; }

bool Report(const std::string& who, double limit, const std::vector<MxnetDifference>& differences) {
  const auto worst = std::ranges::max_element(differences, {}, &MxnetDifference::difference);
  if (worst == differences.end()) Throw("{}: nothing was compared", who);
  const bool good = worst->difference <= limit;
  for (const auto& [what, difference] : differences) {
    if (difference > limit) fmt::print("     {} {:8.1e} in {}\n", who, difference, what);
  }
  fmt::print("{} {:<40} {:8.1e} in {} of {} values\n", good ? "ok  " : "FAIL", who, worst->difference, worst->what,
             differences.size());
  return good;
}

bool Compare(const std::string& folder, const std::string& name) try {
  if (name.starts_with("operator_")) return Report(name, kOperator, CompareMxnetOperator(folder, name));
  if (name == "buckets") {
    return Report(name + " on devices 2:1", kModel, CompareMxnetBuckets(folder, {Cpu(0), Cpu(1)}, {2, 1}));
  }
  const std::vector<Device> two = {Cpu(0), Cpu(1)};
  if (name == "states") return Report(name + " on devices 2:1", kModel, CompareMxnetStates(folder, two, {2, 1}));
  if (name == "uneven") return Report(name + " on devices 2:1", kModel, CompareMxnetModel(folder, name, two, {2, 1}));
  bool good = Report(name, kModel, CompareMxnetModel(folder, name, {Cpu(0)}));
  if (!HasBatchNorm(name)) {
    good &= Report(name + " on devices 2:1", kModel, CompareMxnetModel(folder, name, {Cpu(0), Cpu(1)}, {2, 1}));
  }
  return good;
} catch (const std::exception& error) {
  fmt::print("FAIL {}: {}\n", name, error.what());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "compare_mxnet FOLDER\n");
    return 2;
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    const std::string file = entry.path().filename().string(), ending = "-symbol.json";
    if (file == "buckets.npz") names.push_back("buckets");
    if (!file.ends_with(ending) || file.starts_with("bucket_")) continue;
    names.push_back(file.substr(0, file.size() - ending.size()));
  }
  std::ranges::sort(names);
  const auto failed = std::ranges::count_if(names, [&](const std::string& name) { return !Compare(argv[1], name); });
  fmt::print("{} compared, {} failed\n", names.size(), failed);
  return failed > 0 || names.empty() ? 1 : 0;
}
