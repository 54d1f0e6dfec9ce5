// Where NVIDIA's libraries are found, and which of them are used. Private to engine/cuda.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/library_functions.h"
#include "base/log.h"
#include "engine/cuda/switch.h"

namespace bindery::cuda {

// By the loader's search path, else from the toolkit's folder: CUDA_HOME's, into which packages of PyPI are laid, too, or
// the usual one. Null if it is not there; never closed. `problem`: the loader's reason.
void* OpenLibrary(const std::string& file, std::string* problem = nullptr);
// Throws DeviceError with the loader's reason.
LibraryFunctions OpenFunctions(const std::string& file);

// Of a library: a table of functions has one, `kAbout`.
struct AboutLibrary {
  const char* name;  // of the switch in the environment that leaves it out
  const char* file;
  const char* without;  // is logged once, before the reason, if it cannot be opened
};

// The table of a library's functions that is used: one that was given, else NVIDIA's, which is opened by the first call
// that wants it. Of a library X, x_api.h has the three functions by the names OpenX, UseX and X. Thread safe.
template <class Api>
class ChosenLibrary {
 public:
  using ApiPtr = std::shared_ptr<const Api>;
  explicit ChosenLibrary(const AboutLibrary& about = Api::kAbout) : about_(about) {}
  static ChosenLibrary& The() {
    static auto& chosen = *new ChosenLibrary;
    return chosen;
  }
  // Throws DeviceError with the loader's reason, or naming the function that it lacks.
  static ApiPtr Open(const std::string& file) { return std::make_shared<const Api>(Api{.find = OpenFunctions(file)}); }
  // In place of NVIDIA's: for tests. Null: none.
  void Use(ApiPtr api) {
    const std::lock_guard lock(mutex_);
    api_ = std::move(api);
  }
  // Logs a line if it cannot be opened. Null if there is none, or the environment has NAME=no now. Throws Error if that
  // is neither yes nor no.
  ApiPtr Get() {
    if (!SwitchOf(about_.name, true)) return nullptr;
    const std::lock_guard lock(mutex_);
    if (api_) return *api_;
    try {
      api_ = Open(about_.file);
    } catch (const DeviceError& error) {
      api_ = nullptr;
      LogLine(LogLevel::kWarning, fmt::format("{}: {}", about_.without, error.message()));
    }
    return *api_;
  }

 private:
  const AboutLibrary about_;
  std::mutex mutex_;
  std::optional<ApiPtr> api_;  // none: nobody has asked
};

}  // namespace bindery::cuda
