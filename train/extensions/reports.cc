#include "train/extensions/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
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

// A file that grows by lines, and knows how many bytes of it are of this run's past.
class LogFile {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  // Makes it as it was, so that a run that cannot write it ends before it has begun.
  void Begin() {
    if (path_.empty()) return;
    MakeFolderOf(path_);
    Cut();
    Write("");
  }
  void Append(const std::string& line) {
    if (path_.empty()) return;
    if (!cut_) Cut();
    Write(line + "\n");
    bytes_ += static_cast<double>(line.size() + 1);
  }
  void Serialize(Archive* archive) {
    archive->Number("bytes", &bytes_);
    if (!archive->reading()) return;
    if (!(bytes_ >= 0)) Throw<CheckpointError>("a log of {} bytes cannot be", bytes_);
    cut_ = false;
  }

 private:
  void Write(const std::string& text) const {
    std::ofstream file(path_, std::ios::app | std::ios::binary);
    file << text << std::flush;
    if (!file) Throw<DataError>("cannot write \"{}\"", path_);
  }
  void Cut() {
    cut_ = true;
    std::error_code error;
    const auto size = static_cast<double>(std::filesystem::file_size(path_, error));
    if (error) {
      if (bytes_ > 0) LogLine(LogLevel::kWarning, fmt::format("\"{}\" has gone: it begins anew", path_));
      bytes_ = 0;
      return;
    }
    if (size < bytes_) {
      LogLine(LogLevel::kWarning,
              fmt::format("\"{}\" has lost lines of the run so far: it goes on behind them", path_));
      bytes_ = size;
    }
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(bytes_), error);
    if (error) Throw<DataError>("cannot write \"{}\": {}", path_, error.message());
  }

  std::string path_;
  double bytes_ = 0;
  bool cut_ = false;  // to these bytes
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
                state->file.Append(line);
                if (write) write(line);
              },
          .begin = [state](Loop&) { state->file.Begin(); },
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
