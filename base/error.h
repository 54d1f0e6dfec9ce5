// Errors of Bindery: few flat types, all derived from `Error`.
//
// A message says who, which argument, what was expected, what came, and where it helps, what to do:
//   ShapeError: FullyConnected "fc1", argument "weight": expected (500, 800), got (500, 784)
// Operators say what is wrong; the graph adds which node. `what()` starts with the type's name.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace bindery {

// Wrong use of the library, and the base of the others.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : Error("Error", message) {}
  // The message without the type's name, for a caller that adds context and throws again.
  const std::string& message() const { return message_; }

 protected:
  Error(const char* type, const std::string& message)
      : std::runtime_error(std::string(type) + ": " + message), message_(message) {}

 private:
  std::string message_;
};

// Shapes or dtypes that do not fit each other.
class ShapeError : public Error {
 public:
  explicit ShapeError(const std::string& message) : Error("ShapeError", message) {}
};
// A graph or a model file that is not valid.
class ModelError : public Error {
 public:
  explicit ModelError(const std::string& message) : Error("ModelError", message) {}
};
// A data file, a batch or a label that is not valid; a file that cannot be read or written.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error("DataError", message) {}
};
// A checkpoint or parameter file that is damaged or does not fit the model.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error("CheckpointError", message) {}
};
// A device that is absent, out of memory or failed.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error("DeviceError", message) {}
};
// A device that does not come to an end with something. Nothing has failed: all that was pushed is in flight still, and
// goes on if the device does.
class HangError final : public DeviceError {
 public:
  using DeviceError::DeviceError;
};
// NaN, infinity or divergence where finite numbers are required.
class NumericError : public Error {
 public:
  explicit NumericError(const std::string& message) : Error("NumericError", message) {}
};

// Throw<ShapeError>("expected {}, got {}", a, b)
template <class E = Error, class... Args>
[[noreturn]] void Throw(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

// The exception being handled, of the same type, with `prefix` before its message unless it is there already. The very
// object if it is none of our flat types.
std::exception_ptr CurrentErrorAfter(const std::string& prefix) noexcept;

// For our own mistakes only: throws `Error` with the call site. Never use it to judge a user's input.
void CheckFailed(const char* condition, const char* file, int line);
inline void Check(bool condition, const char* meaning, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!condition) [[unlikely]]
    CheckFailed(meaning, file, line);
}

}  // namespace bindery

#if FMT_VERSION < 100000
// fmt 10 prints every type that has a format_as; fmt 9 does so for some enums only.
template <class T>
requires requires(const T& value) {
  { format_as(value) } -> std::same_as<std::string>;
}
struct fmt::formatter<T> : fmt::formatter<fmt::string_view> {
  auto format(const T& value, fmt::format_context& context) const {
    const std::string text = format_as(value);
    return formatter<fmt::string_view>::format(text, context);
  }
};
#endif
