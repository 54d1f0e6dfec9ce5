#include "executor/kernels/cuda/fused_image.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "executor/kernels/cuda/fused_source.h"

namespace bindery::cuda {
namespace {

// As the rule for images has it (third_party/cuda/defs.bzl), so that the bits are the same; and what is without a
// mark, our own formulas, is for the GPU.
constexpr const char* kOptions[] = {"-std=c++20", "--fmad=false", "-default-device", "--disable-warnings"};

constexpr int64_t kLargest = int64_t{64} << 20;  // bytes of a file

struct Images {
  std::mutex mutex = {};
  std::optional<std::string> folder = {};
  std::map<std::string, const unsigned long long*> of = {};  // by name; null: it cannot be compiled
};
Images& All() {
  static auto& all = *new Images;
  return all;
}

std::string Name(const NvrtcApi& api, const std::string& source, int capability) {
  int major = 0, minor = 0;
  api.version(&major, &minor);
  std::string all = fmt::format("{}.{} {} {}\n{}", major, minor, capability, fmt::join(kOptions, " "), source);
  for (const FusedHeader& header : FusedHeaders()) all.append(header.name).append(header.text);
  const auto bytes = static_cast<int64_t>(all.size());
  return fmt::format("{:016x}{:016x}", Checksum(all.data(), bytes), Checksum(all.data(), bytes, 1));
}

// What a file begins with.
struct Head {
  char magic[8] = {'b', 'n', 'd', 'f', 'u', 's', 'e', '1'};
  uint64_t bytes = 0, checksum = 0;
};

Head HeadOf(std::string_view image) {
  Head head;
  head.bytes = image.size();
  head.checksum = Checksum(image.data(), static_cast<int64_t>(image.size()));
  return head;
}

// "" if it is not there, or damaged.
std::string ReadImage(const std::string& path) {
  std::string file;
  try {
    file = ReadFile(path, kLargest);
  } catch (const DataError&) {
    return "";
  }
  if (file.size() <= sizeof(Head)) return "";
  std::string image = file.substr(sizeof(Head));
  const Head head = HeadOf(image);
  return std::memcmp(&head, file.data(), sizeof head) == 0 ? image : "";
}

void WriteImage(const std::string& path, const std::string& image) {
  const Head head = HeadOf(image);
  try {
    MakeFolderOf(path);
    WriteFileAtomically(path, std::string(reinterpret_cast<const char*>(&head), sizeof head) + image);
  } catch (const DataError& error) {
    LogLine(LogLevel::kInfo, fmt::format("a fused kernel is not kept for other processes: {}", error.message()));
  }
}

// For ever.
const unsigned long long* Keep(const std::string& image) {
  auto& words = *new std::vector<unsigned long long>(image.size() / sizeof(unsigned long long) + 1);
  std::memcpy(words.data(), image.data(), image.size());
  return words.data();
}

}  // namespace

std::string CompileFused(const NvrtcApi& api, const std::string& source, int capability) {
  NvrtcProgram* program = nullptr;
  const auto check = [&](NvrtcResult result, const char* call) {
    if (result != kNvrtcSuccess) Throw<DeviceError>("{}: {}", call, api.get_error_string(result));
  };
  std::vector<const char*> names, texts;
  for (const FusedHeader& header : FusedHeaders()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  check(api.create_program(&program, source.c_str(), "bindery_fused.cu", static_cast<int>(names.size()), texts.data(),
                           names.data()),
        "nvrtcCreateProgram");
  const std::unique_ptr<NvrtcProgram, std::function<void(NvrtcProgram*)>> owned(
      program, [&](NvrtcProgram* made) { api.destroy_program(&made); });
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  const std::string architecture = fmt::format("--gpu-architecture=sm_{}", capability);
  options.push_back(architecture.c_str());
  const NvrtcResult result = api.compile_program(program, static_cast<int>(options.size()), options.data());
  if (result != kNvrtcSuccess) {
    size_t bytes = 0;
    std::string log;
    if (api.get_program_log_size(program, &bytes) == kNvrtcSuccess && bytes > 1) {
      log.resize(bytes);
      if (api.get_program_log(program, log.data()) != kNvrtcSuccess) log.clear();
    }
    Throw<DeviceError>("nvrtcCompileProgram for sm_{}: {}: {}", capability, api.get_error_string(result), log.c_str());
  }
  size_t bytes = 0;
  check(api.get_cubin_size(program, &bytes), "nvrtcGetCUBINSize");
  std::string image(bytes, '\0');
  check(api.get_cubin(program, image.data()), "nvrtcGetCUBIN");
  return image;
}

const unsigned long long* FusedImage(const NvrtcApi& api, const std::string& source, int capability) {
  const std::string name = Name(api, source, capability);
  Images& all = All();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.of.find(name); found != all.of.end()) return found->second;
  if (!all.folder) all.folder = FusedFolder();
  const std::string path = *all.folder + "/" + name;
  std::string image = all.folder->empty() ? "" : ReadImage(path);
  if (image.empty()) {
    try {
      image = CompileFused(api, source, capability);
    } catch (const DeviceError& error) {
      LogLine(LogLevel::kWarning,
              fmt::format("a chain of elementwise operators is launched one by one: {}", error.message()));
      return all.of[name] = nullptr;
    }
    if (!all.folder->empty()) WriteImage(path, image);
  }
  return all.of[name] = Keep(image);
}

std::string FusedFolder() {
  const auto of = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text ? text : "");
  };
  // What is not absolute is to be ignored, as the XDG specification has it.
  if (const std::string cache = of("XDG_CACHE_HOME"); cache.starts_with('/')) return cache + "/bindery/fused";
  if (const std::string home = of("HOME"); home.starts_with('/')) return home + "/.cache/bindery/fused";
  return "";
}

void UseFusedFolder(const std::string& folder) {
  Images& all = All();
  const std::lock_guard lock(all.mutex);
  all.folder = folder;
  all.of.clear();
}

}  // namespace bindery::cuda
