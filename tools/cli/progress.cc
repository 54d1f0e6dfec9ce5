#include "tools/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "tools/cli/console.h"
#include "tools/cli/rate.h"
#include "train/extensions/reports.h"
#include "train/updater/updater.h"

namespace bindery::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLine{5};

bool IsTerminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) && term && std::strcmp(term, "dumb") != 0;
}

// What a bar says, of one epoch.
struct Now {
  int64_t epoch = 0, epochs = 0;  // from 1
  int64_t batch = 0, batches = 0;
  double part = 0;                        // of the epoch, 0 to 1
  double seconds = 0, left = 0;           // NaN: not known
  std::string rate;                       // "--": not known
  std::vector<std::string> metrics = {};  // "accuracy 0.9812"
};

// The longest that is shorter than the line, so that the cursor stays on it: with a bar of 6 to 24 characters where
// there is room for one; else without it, the rate, the metrics from the last on, the batches, the time.
std::string Fitting(const Now& now, size_t columns) {
  const size_t room = columns > 1 ? columns - 1 : 1;
  const std::string epoch = fmt::format("epoch {}/{}:", now.epoch, now.epochs),
                    percent = fmt::format("{:3.0f}%", now.part * 100);
  const std::string batches = fmt::format("{}/{}", now.batch, now.batches);
  const std::string times = fmt::format("{}<{}", Duration(now.seconds), Duration(now.left));
  std::string metrics = fmt::format("{}", fmt::join(now.metrics, ", "));
  const std::string after = fmt::format("{} [{}, {} samples/s] {}", batches, times, now.rate, metrics);
  std::string line = fmt::format("{} {} {}", epoch, percent, after);
  constexpr size_t kLeast = 6, kMost = 24, kEdges = 2;
  if (line.size() + kEdges + kLeast <= room) {
    const size_t width = std::min(kMost, room - line.size() - kEdges);
    const auto full = static_cast<size_t>(now.part * static_cast<double>(width));
    return fmt::format("{} {}|{}{}| {}", epoch, percent, std::string(full, '#'), std::string(width - full, ' '), after);
  }
  std::vector<std::string> shorter = {line, fmt::format("{} {} {} [{}] {}", epoch, percent, batches, times, metrics)};
  for (size_t kept = now.metrics.size(); kept > 0; --kept) {
    metrics =
        fmt::format("{}", fmt::join(now.metrics.begin(), now.metrics.begin() + static_cast<ptrdiff_t>(kept), ", "));
    shorter.push_back(fmt::format("{} {} {} {}", epoch, percent, times, metrics));
  }
  shorter.push_back(fmt::format("{} {} {}", epoch, percent, times));
  shorter.push_back(fmt::format("{}/{} {} <{}", now.epoch, now.epochs, percent, Duration(now.left)));
  shorter.push_back(fmt::format("{}/{} {}", now.epoch, now.epochs, percent));
  shorter.push_back(percent);
  for (const std::string& one : shorter) {
    if (one.size() <= room) return one;
  }
  return percent.substr(0, room);
}

// Each part on lines of its own that are shorter than `columns`, cut at spaces; what goes on with another begins further
// to the right. A word that is longer than a line stays whole.
std::string OnNarrowLines(const std::vector<std::string>& parts, size_t columns) {
  std::string text;
  for (const std::string& part : parts) {
    std::string line = text.empty() ? "" : "  ";
    bool is_begun = false;
    for (size_t begin = 0; begin < part.size();) {
      const size_t end = std::min(part.find(' ', begin), part.size());
      const std::string word = part.substr(begin, end - begin);
      begin = std::min(part.find_first_not_of(' ', end), part.size());
      if (is_begun && line.size() + 1 + word.size() >= columns) {
        text += line + "\n";
        line = "    ";
        is_begun = false;
      }
      line += (is_begun ? " " : "") + word;
      is_begun = true;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace

int Columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string ToText(double value) {
  if (std::isnan(value)) return "--";
  const std::string text = fmt::format("{:.4f}", value);
  return text == "-0.0000" ? "0.0000" : text;
}

std::string ToText(const NamedValues& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, ToText(value));
  }
  return text;
}

std::string AsLines(const std::string& line) {
  return IsTerminal() ? OnNarrowLines({line}, static_cast<size_t>(Columns())) : line + "\n";
}

Progress::Progress(ProgressStyle style, bool keeps_best, std::string judged_on)
    : style_(style), keeps_best_(keeps_best), judged_on_(std::move(judged_on)) {
  if (style_ == ProgressStyle::kAuto) style_ = IsTerminal() ? ProgressStyle::kBar : ProgressStyle::kLines;
}

void Progress::OnBatch(const BatchReport& report, int64_t epochs) {
  if (style_ == ProgressStyle::kNone) return;
  const Clock::time_point now = Clock::now();
  // Two steps may be in flight: of the first ones of an epoch nothing may have been computed.
  const bool is_known = report.batch > Updater::kInFlight && report.seconds > 0;
  const std::string rate = is_known ? Rate(static_cast<double>(report.samples) / report.seconds) : "--";
  if (style_ == ProgressStyle::kLines) {
    if (last_ == Clock::time_point{}) last_ = now;
    if (now - last_ < kLine) return;
    last_ = now;
    Say("epoch {}/{}  batch {}/{}  {} samples/s  {}\n", report.epoch + 1, epochs, report.batch, report.batches, rate,
        ToText(report.metric->Get()));
    return;
  }
  if (now - last_ < kRedraw && report.batch != report.batches) return;
  last_ = now;
  const double part =
      report.batches > 0 ? std::min(1.0, static_cast<double>(report.batch) / static_cast<double>(report.batches)) : 0;
  Now state{.epoch = report.epoch + 1,
            .epochs = epochs,
            .batch = report.batch,
            .batches = report.batches,
            .part = part,
            .seconds = report.seconds,
            .left = is_known && part > 0 ? report.seconds / part - report.seconds : NAN,
            .rate = rate};
  for (const auto& value : report.metric->Get()) state.metrics.push_back(ToText({value}));
  const std::string line = Fitting(state, static_cast<size_t>(Columns()));
  Say("\r\x1b[K{}", line);
  on_line_ = true;
}

void Progress::Clear() {
  if (!on_line_) return;
  Say("\r\x1b[K");
  on_line_ = false;
}

void Progress::OnEpoch(const EpochReport& report, int64_t epochs) {
  Clear();
  if (style_ == ProgressStyle::kNone) return;
  std::vector<std::string> parts = {
      fmt::format("epoch {}/{}  {}  {} samples/s  lr {:.4g}", report.epoch + 1, epochs, Duration(report.seconds),
                  Rate(report.samples_per_second), report.learning_rate),
      "train: " + ToText(report.train)};
  if (!report.validation.empty()) parts.push_back(judged_on_ + ": " + ToText(report.validation));
  if (report.best) parts.back() += keeps_best_ ? "  (best, saved)" : "  (best so far)";
  const std::string line = fmt::format("{}", fmt::join(parts, "  "));
  const bool fits = style_ != ProgressStyle::kBar || line.size() < static_cast<size_t>(Columns());
  Say("{}", fits ? line + "\n" : OnNarrowLines(parts, static_cast<size_t>(Columns())));
}

}  // namespace bindery::cli
