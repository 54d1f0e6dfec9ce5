#include "executor/plan/program.h"

#include <chrono>

#include "engine/team.h"

namespace bindery {
namespace {

std::string Describe(const PlanCall& call) {
  return call.who.empty() ? fmt::format("{} \"{}\"", call.op, call.node) : call.who;
}

[[noreturn]] void RethrowAt(const PlanCall& call) {
  const std::string where = Describe(call) + ": ";
  try {
    throw;
  } catch (const Error&) {
    std::rethrow_exception(CurrentErrorAfter(where));
  } catch (const std::exception& e) {
    throw Error(where + e.what());
  }
}

}  // namespace

Instance::Instance(std::shared_ptr<const Program> program, const Addresses& addresses)
    : program_(std::move(program)), addresses_(addresses) {
  const Plan& plan = program_->plan;
  calls_.reserve(plan.calls.size());
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const PlanCall& call = plan.calls[i];
    std::vector<void*> inputs, outputs;
    for (const int v : call.inputs) inputs.push_back(v < 0 ? nullptr : AddressOf(v));
    for (const int v : call.outputs) outputs.push_back(v < 0 ? nullptr : AddressOf(v));
    void* scratch = call.scratch < 0 ? nullptr : addresses_.arena + plan.storages[call.scratch].offset;
    const TeamScope team(call.threads);
    calls_.push_back(program_->kernels[i].bind({.inputs = inputs,
                                                .outputs = outputs,
                                                .scratch = scratch,
                                                .step = addresses_.step,
                                                .stream = addresses_.stream}));
  }
}

void* Instance::AddressOf(int value) const {
  const PlanValue& v = program_->plan.values[value];
  switch (v.place) {
    case Place::kNone: return nullptr;
    case Place::kArena: return addresses_.arena + program_->plan.storages[v.storage].offset;
    case Place::kArgument: return addresses_.arguments[v.slot];
    case Place::kGradient: return addresses_.gradients[v.slot];
    case Place::kAuxiliary: return addresses_.auxiliary[v.slot];
    case Place::kDerived: return addresses_.derived[v.slot];
  }
  return nullptr;
}

void Instance::RunCalls(int begin, int end, std::vector<int64_t>* times) const {
  using Clock = std::chrono::steady_clock;
  const std::vector<PlanCall>& calls = program_->plan.calls;
  int at = begin;
  try {
    while (at < end) {
      const int threads = calls[at].threads;
      const TeamScope team(threads);
      for (; at < end && calls[at].threads == threads; ++at) {
        at_.store(at, std::memory_order_relaxed);
        const Clock::time_point start = times ? Clock::now() : Clock::time_point();
        calls_[at]();
        if (times) (*times)[at] = std::chrono::nanoseconds(Clock::now() - start).count();
      }
    }
    at_.store(-1, std::memory_order_relaxed);
  } catch (...) {
    at_.store(-1, std::memory_order_relaxed);
    RethrowAt(calls[at]);
  }
}

std::string Instance::At() const {
  const int at = at_.load(std::memory_order_relaxed);
  return at < 0 ? "" : Describe(program_->plan.calls[at]);
}

}  // namespace bindery
