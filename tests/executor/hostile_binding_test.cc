// Hostile shapes and attributes, bound: every operator and its gradient, by both kernel tables, with an extent of 0, of
// 2^31 or of 2^62 at every axis of every input, with other ranks, and with every odd value of every attribute. What
// comes is a program or an Error. A program that needs little memory runs, and both tables agree (but where a
// coefficient is beyond what float32 holds); binding others allocates nothing of the size that their values have.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "engine/backend.h"
#include "executor/plan/program.h"
#include "symbol/op_def.h"
#include "tests/symbol/hostile_values.h"
#include "tests/symbol/op_examples.h"
#include "tests/symbol/op_rules.h"

namespace bindery {
namespace {

constexpr int64_t kSmall = 1 << 20;  // bytes of a program that is run

int64_t PeakMegabytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

// 0, 1, 0, 1, ...: numbers, indices and labels to every operator.
void FillAlternating(HostTensor& tensor) {
  for (int64_t i = 1; i < tensor.elements(); i += 2) tensor.Set(i, 1);
}

std::vector<HostTensor> RunOnce(const std::shared_ptr<const Program>& program) {
  const Plan& plan = program->plan;
  std::vector<HostTensor> arguments, gradients, states;
  const auto add = [](std::vector<HostTensor>& list, const ValueType& type) {
    list.emplace_back(type.dtype, type.shape);
  };
  for (const PlanArgument& argument : plan.arguments) add(arguments, argument.type);
  for (const PlanGradient& gradient : plan.gradients) add(gradients, plan.ArgumentOf(gradient).type);
  for (const PlanState& state : plan.auxiliary) add(states, state.type);
  for (size_t i = 0; i < arguments.size(); ++i) {
    FillAlternating(arguments[i]);
    if (plan.arguments[i].name != "lengths") continue;
    for (int64_t at = 0; at < arguments[i].elements(); ++at) arguments[i].Set(at, 1);  // 0 steps have no last one
  }
  for (HostTensor& state : states) FillAlternating(state);
  HostTensor arena(DType::kUInt8, {plan.arena_bytes});
  const StepBlock step{.batch_size = 5};
  const std::unique_ptr<Stream> stream = Backend::Of(DeviceKind::kCpu).MakeStream(Cpu(0), Lane::kCompute);
  Instance::Addresses addresses{.arena = static_cast<char*>(arena.raw()), .step = &step, .stream = stream.get()};
  for (HostTensor& tensor : arguments) addresses.arguments.push_back(tensor.raw());
  for (HostTensor& tensor : gradients) addresses.gradients.push_back(tensor.raw());
  for (HostTensor& tensor : states) addresses.auxiliary.push_back(tensor.raw());
  const Instance instance(program, addresses);
  for (size_t segment = 0; segment < plan.segments.size(); ++segment) instance.Run(static_cast<int>(segment));
  std::vector<HostTensor> results;
  for (const PlanOutput& output : plan.outputs) {
    const ValueType& type = plan.values[output.value].type;
    results.emplace_back(type.dtype, type.shape);
    if (results.back().bytes() > 0) {
      std::memcpy(results.back().raw(), instance.AddressOf(output.value), results.back().bytes());
    }
  }
  results.insert(results.end(), std::make_move_iterator(gradients.begin()), std::make_move_iterator(gradients.end()));
  return results;
}

// Kernels that compute in float32 have infinity or 0 for such a coefficient where the reference, in float64, has it.
bool IsBeyondFloat(const AttrValue& value) {
  const auto is_beyond = [](double x) { return x != 0 && std::isfinite(x) && !std::isnormal(static_cast<float>(x)); };
  if (const auto* number = std::get_if<double>(&value)) return is_beyond(*number);
  const auto* list = std::get_if<std::vector<double>>(&value);
  return list != nullptr && std::ranges::any_of(*list, is_beyond);
}

void ExpectAgree(const HostTensor& fast, const HostTensor& reference) {
  ASSERT_EQ(fast.shape(), reference.shape());
  for (int64_t i = 0; i < fast.elements(); ++i) {
    const double a = fast.At(i), b = reference.At(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || std::abs(a - b) <= 1e-4 * std::max(1.0, std::abs(b))) continue;
    ADD_FAILURE() << "element " << i << " of " << ToString(fast.shape()) << " is " << a << ", by the reference kernels "
                  << b;
    return;
  }
}

class HostileBinding : public testing::Test {
 protected:
  // A node alone whose inputs have these shapes, as far as they are given.
  void Try(const OpExample& example, const AnyAttrs& attrs, const Shapes& shapes) {
    try {
      const OpDef& op = *example.op;
      std::vector<Symbol> outputs = NodeOf(op, attrs, static_cast<int>(shapes.size()));
      outputs.resize(NumVisibleOutputs(op, attrs));
      const Symbol symbol = Group(outputs);
      CompileOptions options{.signature = Signature::Of(symbol), .plain_parameters = true};
      const std::vector<std::string> names = op.inputs.Names(attrs, static_cast<int>(shapes.size()));
      for (Argument& argument : options.signature.arguments) {
        const auto place = std::ranges::find(names, argument.name) - names.begin();
        if (place == std::ssize(names) || place >= std::ssize(shapes)) continue;
        argument.shape = shapes[place];
        const int axis = example.batch_axes[place];
        if (!argument.shape || argument.shape->rank() <= axis) continue;
        argument.batch_axis = axis;
        if (axis >= 0) argument.role = Role::kData;
      }
      const std::vector<PlanArgument> arguments = CompileBoth(symbol, options);
      options.mode = Mode::kTrain;
      options.with_backward = true;
      for (size_t i = 0; i < options.signature.arguments.size(); ++i) {
        if (IsFloat(arguments[i].type.dtype)) options.signature.arguments[i].request = GradReq::kWrite;
      }
      CompileBoth(symbol, options);
    } catch (const Error&) {
      ++errors_;
    }
  }

  int64_t errors_ = 0, programs_ = 0, runs_ = 0;
  bool beyond_float_ = false;

 private:
  std::vector<PlanArgument> CompileBoth(const Symbol& symbol, CompileOptions options) {
    std::vector<std::vector<HostTensor>> results;
    std::vector<PlanArgument> arguments;
    for (const KernelPolicy policy : {KernelPolicy::kReference, KernelPolicy::kFast}) {
      options.switches.policy = policy;
      const std::shared_ptr<const Program> program = Compile(symbol, options);
      ++programs_;
      arguments = program->plan.arguments;
      const MemoryReport m = ReportMemory(program->plan);
      const auto [least, most] = std::minmax({m.parameters, m.gradients, m.auxiliary, m.inputs, m.arena});
      EXPECT_GE(least, 0) << ToString(m);
      if (most > kSmall) continue;
      results.push_back(RunOnce(program));
      ++runs_;
    }
    const bool comparable = results.size() == 2 && !beyond_float_;
    for (size_t i = 0; comparable && i < results[0].size(); ++i) ExpectAgree(results[1][i], results[0][i]);
    return arguments;
  }
};

// One input's shape as it should not be, the others as usual or as they follow from it.
TEST_F(HostileBinding, EveryExtentOfEveryInput) {
  const int64_t before = PeakMegabytes();
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    const Shapes usual(example.inputs.begin(), example.inputs.end());
    for (size_t i = 0; i < usual.size(); ++i) {
      std::vector<Shape> hostile = {{}, {0}, {1, 1, 1, 1, 1, 1, 1, 1}};
      for (int axis = 0; axis < usual[i]->rank(); ++axis) {
        for (const int64_t extent : {int64_t{0}, int64_t{1} << 31, int64_t{1} << 62}) {
          hostile.push_back(usual[i]->With(axis, extent));
        }
      }
      for (const Shape& shape : hostile) {
        SCOPED_TRACE(fmt::format("input {} {}", i, shape));
        Shapes alone(usual.size()), beside = usual;
        alone[i] = beside[i] = shape;
        Try(example, example.attrs, alone);
        Try(example, example.attrs, beside);
      }
    }
  }
  EXPECT_LT(PeakMegabytes() - before, 1000);
  EXPECT_GT(errors_, 1200);
  EXPECT_GT(runs_, 1200);
}

// A batch of no samples, or of more than can be.
TEST_F(HostileBinding, EveryBatch) {
  const int64_t before = PeakMegabytes();
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    for (const int64_t samples : {int64_t{0}, int64_t{1}, (int64_t{1} << 31) + 1, int64_t{1} << 62}) {
      SCOPED_TRACE(samples);
      Shapes shapes(example.inputs.begin(), example.inputs.end());
      for (size_t i = 0; i < shapes.size(); ++i) {
        if (example.batch_axes[i] >= 0) shapes[i]->Set(example.batch_axes[i], samples);
      }
      Try(example, example.attrs, shapes);
    }
  }
  EXPECT_LT(PeakMegabytes() - before, 1000);
  EXPECT_GT(runs_, 600);
}

TEST_F(HostileBinding, EveryAttribute) {
  const int64_t before = PeakMegabytes();
  for (const OpExample& example : OpExamples()) {
    const AttrMap usual = example.attrs.ToFullMap();
    for (const auto& [field, value] : usual) {
      const std::vector<AttrValue> hostile = HostileValues(value);
      for (size_t i = 0; i < hostile.size(); ++i) {
        SCOPED_TRACE(fmt::format("{} with {} {}", example.label, field, i));
        AttrMap map = usual;
        map[field] = hostile[i];
        beyond_float_ = IsBeyondFloat(hostile[i]);
        try {
          const AnyAttrs attrs = example.op->attrs_type->FromMap(map);
          if (example.op->check) example.op->check(attrs);
          const Shapes shapes(example.inputs.begin(), example.inputs.end());
          Try(example, attrs, shapes);
          Shapes first(shapes.size());
          if (!first.empty()) first[0] = shapes[0];
          Try(example, attrs, first);
        } catch (const Error&) {
          ++errors_;
        }
      }
    }
  }
  EXPECT_LT(PeakMegabytes() - before, 1000);
  EXPECT_GT(errors_, 1200);
  EXPECT_GT(runs_, 1200);
}

}  // namespace
}  // namespace bindery
