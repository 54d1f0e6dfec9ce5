#include "executor/kernels/cuda/fused_image.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cache_files.h"
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

using Image = const unsigned long long*;
struct Images {
  std::mutex mutex = {};
  std::optional<std::string> folder = {};
  std::map<std::string, std::shared_future<Image>> of = {};  // by name; null: it cannot be compiled
  std::set<int> left_out = {};                               // capabilities
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
std::string ReadImage(const std::string& folder, const std::string& name) {
  const std::string file = ReadCached(folder, name, kLargest);
  if (file.size() <= sizeof(Head)) return "";
  std::string image = file.substr(sizeof(Head));
  const Head head = HeadOf(image);
  return std::memcmp(&head, file.data(), sizeof head) == 0 ? image : "";
}

void WriteImage(const std::string& folder, const std::string& name, const std::string& image) {
  const Head head = HeadOf(image);
  WriteCached(folder, name, std::string(reinterpret_cast<const char*>(&head), sizeof head) + image, "a fused kernel");
}

// For ever.
Image Keep(const std::string& image) {
  auto* const words = new unsigned long long[image.size() / sizeof(unsigned long long) + 1]();
  std::memcpy(words, image.data(), image.size());
  return words;
}

struct Compiled {
  std::string image = {};
  NvrtcResult result = kNvrtcSuccess;
  std::string problem = {};  // unless it is success
};

Compiled Compile(const NvrtcApi& api, const std::string& source, int capability) {
  NvrtcProgram* program = nullptr;
  const auto refused = [&](NvrtcResult result, const char* call) {
    return Compiled{.result = result, .problem = fmt::format("{}: {}", call, api.get_error_string(result))};
  };
  std::vector<const char*> names, texts;
  for (const FusedHeader& header : FusedHeaders()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  NvrtcResult result = api.create_program(&program, source.c_str(), "bindery_fused.cu", static_cast<int>(names.size()),
                                          texts.data(), names.data());
  if (result != kNvrtcSuccess) return refused(result, "nvrtcCreateProgram");
  const std::unique_ptr<NvrtcProgram, std::function<void(NvrtcProgram*)>> owned(
      program, [&](NvrtcProgram* made) { api.destroy_program(&made); });
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  const std::string architecture = fmt::format("--gpu-architecture=sm_{}", capability);
  options.push_back(architecture.c_str());
  result = api.compile_program(program, static_cast<int>(options.size()), options.data());
  if (result != kNvrtcSuccess) {
    size_t bytes = 0;
    std::string log;
    if (api.get_program_log_size(program, &bytes) == kNvrtcSuccess && bytes > 1) {
      log.resize(bytes);
      if (api.get_program_log(program, log.data()) != kNvrtcSuccess) log.clear();
    }
    Compiled compiled = refused(result, fmt::format("nvrtcCompileProgram for sm_{}", capability).c_str());
    if (!log.empty()) compiled.problem += fmt::format(": {}", log.c_str());
    return compiled;
  }
  Compiled compiled;
  size_t bytes = 0;
  result = api.get_cubin_size(program, &bytes);
  if (result != kNvrtcSuccess) return refused(result, "nvrtcGetCUBINSize");
  compiled.image.resize(bytes);
  result = api.get_cubin(program, compiled.image.data());
  if (result != kNvrtcSuccess) return refused(result, "nvrtcGetCUBIN");
  return compiled;
}

// From its file, or by NVRTC.
Image Make(const NvrtcApi& api, const std::string& source, int capability, const std::string& folder,
           const std::string& name) {
  if (const std::string image = ReadImage(folder, name); !image.empty()) return Keep(image);
  const Compiled compiled = Compile(api, source, capability);
  if (compiled.result == kNvrtcErrorCompilation) {
    LogLine(LogLevel::kWarning,
            fmt::format("a chain of elementwise operators is launched one by one: {}", compiled.problem));
    return nullptr;
  }
  if (compiled.result != kNvrtcSuccess) {
    LeaveOutFused(capability, compiled.problem);
    return nullptr;
  }
  WriteImage(folder, name, compiled.image);
  return Keep(compiled.image);
}

// The folder now.
std::string Folder(Images* locked) {
  if (!locked->folder) locked->folder = FusedFolder();
  return *locked->folder;
}

}  // namespace

std::string CompileFused(const NvrtcApi& api, const std::string& source, int capability) {
  Compiled compiled = Compile(api, source, capability);
  if (compiled.result != kNvrtcSuccess) Throw<DeviceError>("{}", compiled.problem);
  return std::move(compiled.image);
}

const unsigned long long* FusedImage(const NvrtcApi& api, const std::string& source, int capability) {
  const std::string name = Name(api, source, capability);
  Images& all = All();
  std::promise<Image> promise;
  std::shared_future<Image> others;
  std::string folder;
  {
    const std::lock_guard lock(all.mutex);
    if (all.left_out.contains(capability)) return nullptr;
    std::shared_future<Image>& of = all.of[name];
    if (of.valid()) {
      others = of;
    } else {
      of = promise.get_future().share();
      folder = Folder(&all);
    }
  }
  if (others.valid()) return others.get();
  try {
    const Image image = Make(api, source, capability, folder, name);
    promise.set_value(image);
    return image;
  } catch (...) {  // no memory, say: the next who asks tries again
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(all.mutex);
    all.of.erase(name);
    throw;
  }
}

void LeaveOutFused(int capability, const std::string& reason) {
  Images& all = All();
  const std::lock_guard lock(all.mutex);
  if (!all.left_out.insert(capability).second) return;
  LogLine(LogLevel::kWarning, fmt::format("elementwise operators on GPUs are launched one by one: {}", reason));
}

bool IsLeftOutOfFused(int capability) {
  Images& all = All();
  const std::lock_guard lock(all.mutex);
  return all.left_out.contains(capability);
}

void RefuseFused(const NvrtcApi& api, const std::string& source, int capability, const std::string& reason) {
  std::string folder;
  {
    const std::lock_guard lock(All().mutex);
    folder = Folder(&All());
  }
  if (!folder.empty() && IsOwnFolder(folder)) ::unlink((folder + "/" + Name(api, source, capability)).c_str());
  LeaveOutFused(capability, reason);
}

std::string FusedFolder() { return CacheFolder("fused"); }

void UseFusedFolder(const std::string& folder) {
  Images& all = All();
  const std::lock_guard lock(all.mutex);
  all.folder = folder;
  all.of.clear();
  all.left_out.clear();
}

}  // namespace bindery::cuda
