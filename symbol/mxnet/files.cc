// Which files belong together: MXNet's users name a model by its prefix and an epoch.
#include "base/files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "symbol/mxnet/mxnet.h"

namespace bindery {
namespace {

constexpr std::string_view kGraph = ".json", kSymbol = "-symbol.json", kParams = ".params";
constexpr int64_t kGraphBytes = int64_t{1} << 28;  // of a text; what it holds takes some times as much

// The epoch of `<prefix>-0012.params`; -1 for other names.
int64_t EpochOf(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || !name.ends_with(kParams)) return -1;
  name.remove_suffix(kParams.size());
  if (name.size() < prefix.size() + 5 || name[prefix.size()] != '-') return -1;  // at least four digits
  name.remove_prefix(prefix.size() + 1);
  int64_t epoch = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), epoch);
  return error == std::errc() && end == name.data() + name.size() ? epoch : -1;
}

// The .params that belong to a graph's file; empty if there are none.
std::string FindParams(const std::string& graph_path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!graph_path.ends_with(kSymbol)) {
    const std::string beside = graph_path.substr(0, graph_path.size() - kGraph.size()) + std::string(kParams);
    return fs::exists(beside, error) ? beside : "";
  }
  const fs::path prefix = graph_path.substr(0, graph_path.size() - kSymbol.size());
  const fs::path folder = prefix.has_parent_path() ? prefix.parent_path() : fs::path(".");
  int64_t latest = -1;
  std::string found;
  for (fs::directory_iterator files(folder, error), end; !error && files != end; files.increment(error)) {
    const std::string name = files->path().filename().string();
    const int64_t epoch = EpochOf(name, prefix.filename().string());
    if (epoch <= latest) continue;
    latest = epoch;
    found = (prefix.parent_path() / name).string();
  }
  return found;
}

}  // namespace

bool IsMxnetName(const std::string& path) { return path.ends_with(kGraph) || path.ends_with(kParams); }

Model LoadMxnet(const std::string& path, const ModelLimits& limits) {
  const auto read_params = [&](const std::string& file) {
    return ParseMxnetParams(ReadFile(file, limits.tensor_bytes), file, limits);
  };
  if (path.ends_with(kParams)) {
    MxnetParams values = read_params(path);
    Model model{.params = std::move(values.args), .aux = std::move(values.aux)};
    model.params.merge(values.others);
    return model;
  }
  const std::string graph = ReadFile(path, std::min(limits.file_bytes, kGraphBytes));
  const std::string values = FindParams(path);
  return ParseMxnet(graph, values.empty() ? MxnetParams{} : read_params(values), path, limits);
}

}  // namespace bindery
