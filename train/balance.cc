#include "train/balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "base/seconds_since.h"
#include "base/split_text.h"
#include "executor/group/split_batch.h"
#include "train/call_text.h"

namespace bindery {
namespace {

using Clock = std::chrono::steady_clock;

// When each device is done with what it has been given, in seconds since `begun`; empty if some of it failed.
std::vector<double> WaitForEach(ExecutorGroup& group, Clock::time_point begun) {
  const auto& executors = group.stages()[0]->executors();
  std::vector<double> seconds(executors.size());
  std::vector<char> good(executors.size());
  const auto wait = [&](size_t d) {
    try {
      group.engine()->Wait(executors[d]->arena()->var());
      seconds[d] = SecondsSince(begun);
      good[d] = true;
    } catch (const std::exception&) {  // whoever settles the step is told
    }
  };
  {
    std::vector<std::jthread> waiting;
    for (size_t d = 1; d < executors.size(); ++d) waiting.emplace_back(wait, d);
    wait(0);
  }
  if (!std::ranges::all_of(good, [](char g) { return g; })) return {};
  return seconds;
}

std::vector<double> ParseNumbers(const std::string& text) {
  std::vector<double> numbers;
  for (const std::string_view part : SplitText(text, ':')) {
    const auto number = ParseNumber<double>(part);
    if (!number || !std::isfinite(*number) || *number < 0) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

std::string Balancing::Text() const {
  return CallPrinter("measured")
      .Add("every", fmt::format("{}", every))
      .Add("damping", damping)
      .Add("gain", gain)
      .Add("first", fmt::format("{}", first))
      .Add("until", fmt::format("{}", until))
      .Text();
}

std::optional<Balancing> ParseBalancing(std::string_view text) {
  if (text.empty()) return std::nullopt;
  CallText call("balance", text);
  if (call.name() != "measured") {
    const std::vector<std::string> known = {"measured"};
    Throw("unknown balance \"{}\"{}", call.name(), NameHint(call.name(), known));
  }
  call.Declare({"every", "damping", "gain", "first", "until"});
  Balancing b;
  b.every = call.Integer("every").value_or(b.every);
  b.damping = call.Number("damping").value_or(b.damping);
  b.gain = call.Number("gain").value_or(b.gain);
  b.first = call.Integer("first").value_or(b.first);
  b.until = call.Integer("until").value_or(b.until);
  if (b.every < 1) call.Fail("every must be >= 1");
  if (!(b.damping > 0 && b.damping <= 1)) call.Fail("damping must be in (0, 1]");
  if (!(b.gain >= 0 && b.gain < 1)) call.Fail("gain must be in [0, 1)");
  if (b.first < 1) call.Fail("first must be >= 1");
  if (b.until < 0) call.Fail("until must be >= 0");
  return b;
}

void MoveSpeeds(const std::vector<int64_t>& samples, const std::vector<double>& seconds, double damping,
                std::vector<double>* speeds) {
  double sum = 0;
  int64_t known = 0;
  for (size_t d = 0; d < samples.size(); ++d) {
    double& speed = (*speeds)[d];
    if (samples[d] > 0 && seconds[d] > 0) {
      const double now = static_cast<double>(samples[d]) / seconds[d];
      speed = speed > 0 ? speed + damping * (now - speed) : now;
    }
    if (speed <= 0) continue;
    sum += speed;
    ++known;
  }
  for (double& speed : *speeds) {
    if (speed <= 0) speed = known > 0 ? sum / static_cast<double>(known) : 1;
  }
}

double GainOf(const std::vector<int64_t>& units, const std::vector<double>& speeds) {
  const std::vector<SampleRange> shares = SplitBatch(std::accumulate(units.begin(), units.end(), int64_t{0}), speeds);
  double now = 0, then = 0;
  for (size_t d = 0; d < units.size(); ++d) {
    now = std::max(now, static_cast<double>(units[d]) / speeds[d]);
    then = std::max(then, static_cast<double>(shares[d].size()) / speeds[d]);
  }
  return now > 0 ? 1 - then / now : 0;
}

Balancer::Balancer(std::optional<Balancing> balancing, const std::vector<double>& workload, size_t devices)
    : balancing_(balancing), workload_(workload.empty() ? std::vector<double>(devices, 1) : workload),
      speeds_(devices) {}

bool Balancer::IsDue() const {
  if (!balancing_ || frozen_ || workload_.size() < 2) return false;
  const int64_t step = steps_ + 1;
  if (balancing_->until > 0 && step > balancing_->until) return false;
  return step >= balancing_->first && (step - balancing_->first) % balancing_->every == 0;
}

void Balancer::BeginStep(Updater* updater) {
  ++steps_;
  if (!changed_) return;
  changed_ = false;
  updater->SetWorkload(workload_);
}

void Balancer::Measure(const Updater& updater, ExecutorGroup& group, const std::vector<int64_t>& samples,
                       Clock::time_point begun) {
  const std::vector<double> seconds = WaitForEach(group, begun);
  if (seconds.empty()) return;
  std::vector<int64_t> units = samples;
  for (int64_t& share : units) share = updater.block() > 0 ? CeilDiv(share, updater.block()) : share;
  MoveSpeeds(units, seconds, balancing_->damping, &speeds_);
  const double gain = GainOf(units, speeds_);
  if (gain <= balancing_->gain) return;
  // Numbers for people: the fastest device has 1.
  const double fastest = *std::ranges::max_element(speeds_);
  for (size_t d = 0; d < speeds_.size(); ++d) workload_[d] = speeds_[d] / fastest;
  changed_ = true;
  std::vector<std::string> parts;
  for (size_t d = 0; d < seconds.size(); ++d) {
    parts.push_back(fmt::format("{} {} samples in {:.2f} ms", group.devices()[d], samples[d], 1e3 * seconds[d]));
  }
  LogLine(LogLevel::kInfo, fmt::format("balance: {}; workload {:.3f}, a step {:.0f}% shorter", fmt::join(parts, ", "),
                                       fmt::join(workload_, ":"), 100 * gain));
}

std::string Balancer::Text() const {
  return fmt::format("{} {} {}", fmt::join(workload_, ":"), fmt::join(speeds_, ":"), frozen_ ? "frozen" : "measured");
}

void Balancer::Set(const std::string& text) {
  const size_t first = text.find(' '), second = text.find(' ', first + 1);
  const auto fail = [&] { Throw<CheckpointError>("the checkpoint's balance cannot be read: \"{}\"", text); };
  if (first == std::string::npos || second == std::string::npos) fail();
  const std::vector<double> workload = ParseNumbers(text.substr(0, first));
  const std::vector<double> speeds = ParseNumbers(text.substr(first + 1, second - first - 1));
  const std::string state = text.substr(second + 1);
  const bool positive = std::ranges::any_of(workload, [](double w) { return w > 0; });
  if (!positive || workload.size() != speeds.size() || (state != "frozen" && state != "measured")) fail();
  if (workload.size() != workload_.size()) return;
  workload_ = workload;
  speeds_ = speeds;
  frozen_ = frozen_ || state == "frozen";
  changed_ = true;
}

}  // namespace bindery
