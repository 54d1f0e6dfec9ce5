#include "tools/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/cli/console.h"
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

size_t Columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

std::string ToText(const NamedValues& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", name, std::isnan(value) ? "--" : fmt::format("{:.4f}", value));
  }
  return text;
}

Progress::Progress(ProgressStyle style) : style_(style) {
  if (style_ == ProgressStyle::kAuto) style_ = IsTerminal() ? ProgressStyle::kBar : ProgressStyle::kLines;
}

void Progress::OnBatch(const BatchReport& report, int64_t epochs) {
  if (style_ == ProgressStyle::kNone) return;
  const Clock::time_point now = Clock::now();
  // Two steps may be in flight: of the first ones of an epoch nothing may have been computed.
  const bool is_known = report.batch > Updater::kInFlight && report.seconds > 0;
  const std::string rate =
      is_known ? fmt::format("{:.0f}", static_cast<double>(report.samples) / report.seconds) : "--";
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
  const double left = is_known && part > 0 ? report.seconds / part - report.seconds : NAN;
  // The bar takes what the figures leave of the line; on a narrow one there is none, nor the rate.
  const std::string before = fmt::format("epoch {}/{}: {:3.0f}%", report.epoch + 1, epochs, part * 100);
  const std::string metrics = ToText(report.metric->Get());
  const std::string after = fmt::format(" {}/{} [{}<{}, {} samples/s] {}", report.batch, report.batches,
                                        Duration(report.seconds), Duration(left), rate, metrics);
  std::string line = before + after;
  if (line.size() >= Columns()) {
    line = fmt::format("{} {}/{} [{}<{}] {}", before, report.batch, report.batches, Duration(report.seconds),
                       Duration(left), metrics);
  } else if (line.size() + 6 < Columns()) {
    const size_t width = std::min<size_t>(24, Columns() - line.size() - 3);
    const auto full = static_cast<size_t>(part * static_cast<double>(width));
    line = fmt::format("{}|{}{}|{}", before, std::string(full, '#'), std::string(width - full, ' '), after);
  }
  line.resize(std::min(line.size(), Columns() - 1));
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
  Say("epoch {}/{}  {}  {:.0f} samples/s  lr {:.4g}  train: {}{}{}{}\n", report.epoch + 1, epochs,
      Duration(report.seconds), report.samples_per_second, report.learning_rate, ToText(report.train),
      report.validation.empty() ? "" : "  test: ", ToText(report.validation), report.best ? "  (best)" : "");
}

}  // namespace bindery::cli
