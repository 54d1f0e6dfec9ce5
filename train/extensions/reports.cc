#include "train/extensions/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "train/loop/loop.h"
#include "train/quoted_text.h"

namespace bindery {
namespace {

// RunningMeans of what is reported between the times that a trigger is due.
struct Collector {
  Trigger trigger;
  RunningMeans means = {};

  // No values until then.
  std::optional<std::map<std::string, double>> Look(Loop& loop) {
    means.Add(loop.observation());
    if (!trigger.Due(loop.now(), loop.observation())) return std::nullopt;
    std::map<std::string, double> values = means.Take();
    values["epoch"] = static_cast<double>(loop.now().epoch);
    values["iteration"] = static_cast<double>(loop.now().iteration);
    values["seconds"] = loop.now().seconds;
    return values;
  }
  void Serialize(Archive* archive) {
    Archive due = archive->In("trigger"), sums = archive->In("means");
    trigger.Serialize(&due);
    means.Serialize(&sums);
  }
};

// Epoch, iteration and seconds first.
std::string JsonLine(std::map<std::string, double> values) {
  std::string line;
  const auto add = [&](const std::string& name, double value) {
    line += fmt::format("{}{}:{}", line.empty() ? "{" : ",", JsonText(name), JsonNumber(value));
  };
  for (const char* first : {"epoch", "iteration", "seconds"}) {
    add(first, values.at(first));
    values.erase(first);
  }
  for (const auto& [name, value] : values) add(name, value);
  return line + "}";
}

// A file that grows by lines, and knows how many bytes of it are of this run's past. Whether it is this run's, its
// first line tells, whatever it is called now: it says to the last bit how long the first steps took.
class LogFile {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  // Makes it as it was after `iteration`, so that a run that cannot write it ends before it has begun.
  void Begin(double iteration) {
    if (path_.empty()) return;
    MakeFolderOf(path_);
    Cut(iteration);
    Write("");
  }
  void Append(const std::string& line, double iteration) {
    if (path_.empty()) return;
    if (!cut_) Cut(iteration - 1);
    Write(line + "\n");
    if (bytes_ == 0) first_ = MarkOf(line);
    bytes_ += static_cast<double>(line.size() + 1);
  }
  void Serialize(Archive* archive) {
    archive->Number("bytes", &bytes_);
    Archive first = archive->In("first line");
    if (archive->reading()) first_.clear();
    if (!archive->reading() || !first.empty()) first.Text("checksum", &first_);
    if (!archive->reading()) return;
    if (!(bytes_ >= 0)) Throw<CheckpointError>("a log of {} bytes cannot be", bytes_);
    cut_ = false;
  }

 private:
  static std::string MarkOf(std::string_view line) {
    return fmt::format("{:016x}", Checksum(line.data(), std::ssize(line)));
  }
  static double IterationOf(std::string_view line) {
    constexpr std::string_view kName = "\"iteration\":";
    const size_t at = line.find(kName);
    double iteration = 0;
    if (at != line.npos) std::from_chars(line.data() + at + kName.size(), line.data() + line.size(), iteration);
    return iteration;
  }
  void Write(const std::string& text) const {
    std::ofstream file(path_, std::ios::app | std::ios::binary);
    file << text << std::flush;
    if (!file) Throw<DataError>("cannot write \"{}\"", path_);
  }
  void Cut(double iteration) {
    cut_ = true;
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path_, error);
    if (error || size == 0) {
      if (bytes_ > 0)
        LogLine(LogLevel::kWarning, fmt::format("\"{}\" has no lines of the run so far: it begins anew", path_));
      bytes_ = 0;
      return;
    }
    const size_t past = PastOf(ReadFile(path_), iteration);
    std::filesystem::resize_file(path_, past, error);
    if (error) Throw<DataError>("cannot write \"{}\": {}", path_, error.message());
    bytes_ = static_cast<double>(past);
  }
  // Bytes of the lines that are of this run's past, as far as they are there.
  size_t PastOf(std::string_view text, double iteration) const {
    const size_t length = text.find('\n');
    const std::string_view first = text.substr(0, length);
    // Nothing is, if all is of later steps: what a run began that was killed before it was saved.
    const bool is_broken = length == text.npos && first.starts_with("{\"epoch\":");
    if (iteration <= 0 || is_broken || IterationOf(first) > iteration) return 0;
    if (bytes_ == 0 || (!first_.empty() && first_ != MarkOf(first))) {
      Throw<DataError>("\"{}\" is the log of another run, or of another part of this one: give it another name", path_);
    }
    if (static_cast<double>(text.size()) < bytes_) {
      LogLine(LogLevel::kWarning,
              fmt::format("\"{}\" has lost lines of the run so far: it goes on behind them", path_));
    }
    const auto most = static_cast<size_t>(std::min(bytes_, static_cast<double>(text.size())));
    const size_t end = text.rfind('\n', most - 1);
    return end == text.npos ? 0 : end + 1;
  }

  std::string path_;
  double bytes_ = 0;
  std::string first_;  // mark of the first line; empty: there is none, or an earlier version's checkpoint has none
  bool cut_ = false;   // to these bytes
};

}  // namespace

std::string Duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) return "--:--";
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

Extension LogReport(LogReportOptions options) {
  struct State {
    Collector collector;
    LogFile file;
  };
  const auto state = std::make_shared<State>(State{{std::move(options.trigger)}, LogFile(options.path)});
  return {.name = "log",
          .trigger = Always(),
          .run =
              [state, write = std::move(options.write)](Loop& loop) {
                const auto values = state->collector.Look(loop);
                if (!values) return;
                const std::string line = JsonLine(*values);
                state->file.Append(line, values->at("iteration"));
                if (write) write(line);
              },
          .begin = [state](Loop& loop) { state->file.Begin(static_cast<double>(loop.now().iteration)); },
          .serialize =
              [state](Archive* archive) {
                state->collector.Serialize(archive);
                state->file.Serialize(archive);
              }};
}

Extension PrintReport(std::vector<std::string> columns, WriteLine write, Trigger trigger) {
  const auto collector = std::make_shared<Collector>(Collector{std::move(trigger)});
  const auto row = [columns, write = std::move(write)](const auto& cell) {
    std::string line;
    for (const std::string& column : columns) {
      line += fmt::format("{:<{}}  ", cell(column), std::max<size_t>(column.size(), 10));
    }
    line.resize(line.find_last_not_of(' ') + 1);
    write(line);
  };
  return {.name = "print",
          .trigger = Always(),
          .run =
              [collector, row](Loop& loop) {
                const auto values = collector->Look(loop);
                if (!values) return;
                row([&](const std::string& column) {
                  const auto found = values->find(column);
                  return found == values->end() ? std::string() : fmt::format("{:.6g}", found->second);
                });
              },
          .begin = [row](Loop&) { row([](const std::string& column) { return column; }); },
          .serialize = [collector](Archive* archive) { collector->Serialize(archive); }};
}

Extension PrintProgress(double epochs, WriteLine write, double seconds) {
  struct Start {
    Moment moment;
    double lines = 0;
  };
  const auto start = std::make_shared<Start>();
  return {.name = "progress",
          .trigger = Always(),
          .run =
              [=](Loop& loop) {
                const Moment &now = loop.now(), &from = start->moment;
                const double passed = now.seconds - from.seconds;
                if (passed < seconds * (start->lines + 1)) return;
                start->lines = std::floor(passed / seconds);
                const double left =
                    std::max(0.0, epochs - now.epoch_detail) / (now.epoch_detail - from.epoch_detail) * passed;
                write(fmt::format("epoch {:.2f}/{:g}  iteration {}  {:.1f}/s  {} left", now.epoch_detail, epochs,
                                  now.iteration, static_cast<double>(now.iteration - from.iteration) / passed,
                                  Duration(left)));
              },
          .begin = [start](Loop& loop) { *start = {.moment = loop.now()}; }};
}

Extension Evaluator(std::string place, std::function<NamedValues()> evaluate, Trigger trigger) {
  return {.name = place, .trigger = std::move(trigger), .priority = kWrites, .run = [=](Loop& loop) {
            loop.observation().Report(place, evaluate());
          }};
}

Extension ObserveValue(std::string name, std::function<double(Loop&)> value, Trigger trigger) {
  return {.name = "observe " + name, .trigger = std::move(trigger), .priority = kWrites, .run = [=](Loop& loop) {
            loop.observation().Report(name, value(loop));
          }};
}

Extension ObserveRate(const std::string& model) {
  return ObserveValue(model + "/learning-rate",
                      [model](Loop& loop) { return loop.learner().updater(model).LearningRate(); });
}

}  // namespace bindery
