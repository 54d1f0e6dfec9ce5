#include "tools/compare_onnxruntime/ort_session.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace bindery::compare {
namespace {

constexpr uint32_t kInterface = 1;  // the table's first version: all that is called here is in it

// Places in the table of functions.
enum Function {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetIntraOpNumThreads = 24,
  kSessionGetInputCount = 30,
  kSessionGetOutputCount = 31,
  kSessionGetInputName = 36,
  kSessionGetOutputName = 37,
  kCreateTensorWithDataAsOrtValue = 49,
  kGetTensorMutableData = 51,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kCreateCpuMemoryInfo = 69,
  kAllocatorFree = 76,
  kGetAllocatorWithDefaultOptions = 78,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseTensorTypeAndShapeInfo = 99,
  kReleaseSessionOptions = 100,
};
constexpr int kFloat = 1;            // an element type
constexpr int kArena = 1, kCpu = 0;  // kinds of allocator and of memory
constexpr int kWarning = 2;          // what is logged

// What GetApiBase returns.
struct Base {
  const void* const* (*get_table)(uint32_t version);
  const char* (*version)();
};

}  // namespace

struct OrtSession::Library {
  ~Library() {
    Release(kReleaseSession, session);
    Release(kReleaseSessionOptions, options);
    Release(kReleaseMemoryInfo, memory);
    Release(kReleaseEnv, environment);
    // The library stays loaded: its threads may still be ending.
  }
  // Calls that return an error, or null.
  template <class... Arguments>
  void Call(Function function, Arguments... arguments) const {
    void* const status = reinterpret_cast<void* (*)(Arguments...)>(const_cast<void*>(table[function]))(arguments...);
    if (status == nullptr) return;
    const std::string message =
        reinterpret_cast<const char* (*)(const void*)>(const_cast<void*>(table[kGetErrorMessage]))(status);
    Release(kReleaseStatus, status);
    Throw("ONNX Runtime: {}", message);
  }
  void Release(Function function, void* what) const {
    if (what) reinterpret_cast<void (*)(void*)>(const_cast<void*>(table[function]))(what);
  }

  const Base* base = nullptr;
  const void* const* table = nullptr;
  void *environment = nullptr, *options = nullptr, *memory = nullptr, *session = nullptr;
};

OrtSession::OrtSession(const std::string& library, const std::string& model, int threads)
    : library_(std::make_unique<Library>()) {
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) Throw("{}", dlerror());
  const auto get_base = reinterpret_cast<const Base* (*)()>(dlsym(opened, "OrtGetApiBase"));
  if (get_base == nullptr) Throw("\"{}\" is not ONNX Runtime: {}", library, dlerror());
  Library& l = *library_;
  l.base = get_base();
  l.table = l.base->get_table(kInterface);
  if (l.table == nullptr) Throw("ONNX Runtime {} has no such interface any more", l.base->version());
  l.Call(kCreateEnv, kWarning, "compare", &l.environment);
  l.Call(kCreateSessionOptions, &l.options);
  l.Call(kSetIntraOpNumThreads, l.options, threads);
  l.Call(kCreateCpuMemoryInfo, kArena, kCpu, &l.memory);
  l.Call(kCreateSession, l.environment, model.c_str(), l.options, &l.session);

  void* allocator = nullptr;
  l.Call(kGetAllocatorWithDefaultOptions, &allocator);
  const auto name_of = [&](Function function, size_t index) {
    char* name = nullptr;
    l.Call(function, l.session, index, allocator, &name);
    std::string copy = name;
    l.Call(kAllocatorFree, allocator, static_cast<void*>(name));
    return copy;
  };
  size_t inputs = 0, outputs = 0;
  l.Call(kSessionGetInputCount, l.session, &inputs);
  l.Call(kSessionGetOutputCount, l.session, &outputs);
  if (inputs != 1) Throw("\"{}\" has {} inputs: expected one", model, inputs);
  input_ = name_of(kSessionGetInputName, 0);
  for (size_t i = 0; i < outputs; ++i) outputs_.push_back(name_of(kSessionGetOutputName, i));
}

OrtSession::~OrtSession() = default;

std::string OrtSession::version() const { return library_->base->version(); }

std::vector<HostTensor> OrtSession::Run(const HostTensor& input) const {
  const Library& l = *library_;
  const auto release = [&l](void* value) { l.Release(kReleaseValue, value); };
  using Value = std::unique_ptr<void, decltype(release)>;
  const Shape& shape = input.shape();
  std::vector<int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  void* wrapped = nullptr;
  // It does not write to it.
  l.Call(kCreateTensorWithDataAsOrtValue, l.memory, const_cast<void*>(static_cast<const void*>(input.raw())),
         static_cast<size_t>(input.bytes()), extents.data(), extents.size(), kFloat, &wrapped);
  const Value in(wrapped, release);
  std::vector<const char*> names;
  for (const std::string& name : outputs_) names.push_back(name.c_str());
  std::vector<void*> values(outputs_.size(), nullptr);
  const char* const input_name = input_.c_str();
  l.Call(kRun, l.session, static_cast<void*>(nullptr), &input_name, &wrapped, size_t{1}, names.data(), names.size(),
         values.data());
  std::vector<Value> outs;
  for (void* value : values) outs.emplace_back(value, release);
  std::vector<HostTensor> outputs;
  for (const Value& out : outs) {
    void *info = nullptr, *data = nullptr;
    size_t rank = 0;
    l.Call(kGetTensorTypeAndShape, out.get(), &info);
    l.Call(kGetDimensionsCount, info, &rank);
    std::vector<int64_t> sides(rank);
    l.Call(kGetDimensions, info, sides.data(), rank);
    l.Release(kReleaseTensorTypeAndShapeInfo, info);
    l.Call(kGetTensorMutableData, out.get(), &data);
    HostTensor& output = outputs.emplace_back(DType::kFloat32, Shape(std::span<const int64_t>(sides)));
    std::memcpy(output.data<float>().data(), data, static_cast<size_t>(output.bytes()));
  }
  return outputs;
}

}  // namespace bindery::compare
