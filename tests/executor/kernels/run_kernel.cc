#include "tests/executor/kernels/run_kernel.h"

#include <array>

#include "engine/team.h"

namespace bindery {
namespace {

std::vector<float> Noise(int64_t n, int seed) {
  std::vector<float> numbers(static_cast<size_t>(n));
  uint32_t state = 12345u + static_cast<uint32_t>(seed);
  for (float& x : numbers) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return numbers;
}

// Between plain order and a format.
std::vector<float> InFormat(const std::vector<float>& plain, const Shape& shape, const Format& format, bool back) {
  std::vector<float> moved(static_cast<size_t>(back ? shape.Elements() : StorageElements(format, shape)));
  std::array<int64_t, Shape::kMaxRank> index{};
  for (int64_t i = 0; i < shape.Elements(); ++i) {
    int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; rest /= shape[axis--]) {
      index[static_cast<size_t>(axis)] = rest % shape[axis];
    }
    const auto at = static_cast<size_t>(ElementOffset(format, shape, index.data()));
    (back ? moved[static_cast<size_t>(i)] : moved[at]) = back ? plain[at] : plain[static_cast<size_t>(i)];
  }
  return moved;
}

// Weights in a format of a kernel's own, from another.
std::vector<float> InOwnFormat(std::vector<float> from, const Shape& shape, const Format& given, const Format& own,
                               int threads) {
  const Kernel reorder = MakeReorder(DType::kFloat32, shape, given, own, threads, KernelPolicy::kFast);
  std::vector<float> made(static_cast<size_t>(StorageBytes(own, DType::kFloat32, shape)) / sizeof(float), -7.0f);
  void* const input = from.data();
  void* const output = made.data();
  const StepBlock step;
  const TeamScope team(reorder.threads);
  reorder.bind({.inputs = {&input, 1}, .outputs = {&output, 1}, .step = &step})();
  return made;
}

}  // namespace

std::vector<float> RunOnNoise(const Kernel& kernel, const KernelSpec& spec, size_t output) {
  std::vector<std::vector<float>> values;
  std::vector<void*> inputs;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const Shape& shape = spec.inputs[i].shape;
    const Format &taken = kernel.input_formats[i], &given = spec.input_formats[i];
    const bool is_own = taken.kind == Format::Kind::kOpaque;
    values.push_back(InFormat(Noise(shape.Elements(), static_cast<int>(i)), shape, is_own ? given : taken, false));
    if (is_own) values.back() = InOwnFormat(values.back(), shape, given, taken, spec.threads);
  }
  for (auto& value : values) inputs.push_back(value.data());
  std::vector<std::vector<float>> results;
  std::vector<void*> outputs;
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    results.emplace_back(static_cast<size_t>(StorageElements(kernel.output_formats[o], spec.outputs[o].shape)), -7.0f);
  }
  for (size_t o = 0; o < results.size(); ++o) outputs.push_back(spec.output_used[o] ? results[o].data() : nullptr);
  std::vector<float> scratch(static_cast<size_t>(kernel.scratch_bytes) / sizeof(float) + 1, 1e30f);
  const StepBlock step;
  const TeamScope team(kernel.threads);
  kernel.bind({.inputs = inputs, .outputs = outputs, .scratch = scratch.data(), .step = &step})();
  return InFormat(results[output], spec.outputs[output].shape, kernel.output_formats[output], true);
}

}  // namespace bindery
