// The kernels that the fake has: images, and in each by name what runs a body for CPUs. Engine's are there; whoever has
// others adds them before the first device is asked for.
#pragma once

#include <functional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/engine/cuda/cpu_block.h"
#include "tests/engine/cuda/fake/device.h"

namespace bindery::cuda::fake {

// What a kernel is launched with.
struct Blocks {
  int count, threads;
  bool real_threads;
};

// A kernel: what launches it with a copy of its arguments.
struct FakeKernel {
  std::string_view name;
  std::function<std::function<CUresult()>(const FakeGpu& gpu, const void* arguments, Blocks blocks)> bind;
  Accesses (*accesses)(const void* arguments);
  bool fixed_threads;  // it takes blocks of one size only
};

template <class Args>
std::function<CUresult()> BindKernel(const FakeGpu& gpu, const void* arguments, Blocks blocks) {
  return [&gpu, args = *static_cast<const Args*>(arguments), blocks]() mutable {
    bool found = true;
    args.Addresses([&](auto& address) {
      if (!address) return;
      char* const view = Resolve(gpu, reinterpret_cast<CUdeviceptr>(address), 1, Args::kName);
      found = found && view;
      address = reinterpret_cast<std::remove_reference_t<decltype(address)>>(view);
    });
    if (!found) return CUDA_ERROR_ILLEGAL_ADDRESS;
    blocks.real_threads ? RunOnThreads(args, blocks.count, blocks.threads)
                        : RunOnCpu(args, blocks.count, blocks.threads);
    return CUDA_SUCCESS;
  };
}

// Where operands begin, and whether they are const.
template <class Args>
Accesses AccessesOf(const void* arguments) {
  Accesses accesses;
  Args args = *static_cast<const Args*>(arguments);
  args.Addresses([&](auto& address) {
    constexpr bool kReads = std::is_const_v<std::remove_pointer_t<std::remove_reference_t<decltype(address)>>>;
    if (address) accesses.push_back({.begin = reinterpret_cast<CUdeviceptr>(address), .writes = !kReads});
  });
  return accesses;
}

template <class Args>
constexpr bool HasFixedThreads() {
  return requires { Args::kThreads; };
}

void AddImage(const unsigned long long* image, std::vector<FakeKernel> kernels);
// Makes the kernels of an image that was not added, one that was compiled by a fake, say; none: it is not one of its
// own. Set before the first device is asked for.
void SetLoader(std::vector<FakeKernel> (*load)(const void* image));
// Of a tuple of all arguments; their bodies are known.
template <class Image>
void AddImage(const unsigned long long* image) {
  const auto add = [&]<class... Args>(std::type_identity<std::tuple<Args...>>) {
    AddImage(image, {{Args::kName, &BindKernel<Args>, &AccessesOf<Args>, HasFixedThreads<Args>()}...});
  };
  add(std::type_identity<Image>());
}

}  // namespace bindery::cuda::fake
