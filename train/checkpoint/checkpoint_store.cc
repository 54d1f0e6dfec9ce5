#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <ranges>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/parse_number.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/set_aside.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kSuffix = ".ckpt";

std::string FileName(int64_t step) { return fmt::format("{}{:010}{}", kPrefix, step, kSuffix); }

// The step in a file's name; no value if it is not a checkpoint's.
std::optional<int64_t> StepOf(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(kPrefix.size());
  const auto step = ParseNumber<int64_t>(digits.substr(0, digits.size() - kSuffix.size()));
  if (!step || *step < 0 || FileName(*step) != name) return std::nullopt;
  return step;
}

bool IsTemporary(const std::string& name) { return name.starts_with(".bindery-") && name.ends_with(".tmp"); }

std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    Throw<DataError>("cannot read the folder \"{}\": {} (errno {})", folder, error.message(), error.value());
  }
  return names;
}

std::vector<int64_t> StepsOf(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : FilesOf(folder)) {
    if (const std::optional<int64_t> step = StepOf(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Of a run that keeps it: that of the best epoch, and those behind it that cannot be read now, be they damaged or the
// machine short of something: each of them may be it.
std::set<std::string> PerhapsBest(const CheckpointStore& store) {
  std::set<std::string> found;
  const std::vector<std::string> paths = store.List();
  for (const std::string& path : std::views::reverse(paths)) {
    try {
      if (!IsOfBestEpoch(LoadCheckpointInfo(path))) continue;
      found.insert(path);
      break;
    } catch (const std::exception&) {
      found.insert(path);
    }
  }
  return found;
}

// A file that nobody is writing any more, of a killed run: what others write here now is locked (base/files.cc). Opened
// for writing, as locks of NFS want it; where there are no locks, all are removed.
void RemoveIfLeft(const std::string& path, std::error_code* error) {
  error->clear();
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return;  // moved into place, or removed, by now; or nothing that is ours
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) fs::remove(path, *error);
  ::close(descriptor);
}

// Tidying up must not end a run.
void Tidy(const std::string& path, const std::error_code& error) {
  if (error) LogLine(LogLevel::kWarning, fmt::format("cannot remove or rename \"{}\": {}", path, error.message()));
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, int keep) : folder_(std::move(folder)), keep_(keep) {
  if (folder_.empty()) Throw("a store of checkpoints needs a folder");
  if (keep < 1) Throw("a store of checkpoints keeps at least 1, got {}", keep);
}

std::string CheckpointStore::Save(const Checkpoint& checkpoint) {
  MakeFolder(folder_);
  std::error_code error;
  const auto path_of = [&](const std::string& name) { return (fs::path(folder_) / name).string(); };

  for (const int64_t step : StepsOf(folder_)) {
    if (step <= checkpoint.step) continue;
    const std::string later = path_of(FileName(step));
    const std::string kept = SetAside(later, &error);
    Tidy(later, error);
    if (!error) {
      LogLine(LogLevel::kWarning, fmt::format("\"{}\" is of a later step than this run's {}: it is kept as \"{}\"",
                                              later, checkpoint.step, kept));
    }
  }
  const std::string path = path_of(FileName(checkpoint.step));
  SaveCheckpoint(checkpoint, path);
  for (const std::string& name : FilesOf(folder_)) {
    if (!IsTemporary(name)) continue;
    RemoveIfLeft(path_of(name), &error);
    Tidy(path_of(name), error);
  }
  // Only now, when this one is there whole.
  const std::set<std::string> spared = KeepsBest(checkpoint.info) ? PerhapsBest(*this) : std::set<std::string>();
  const std::vector<int64_t> steps = StepsOf(folder_);
  for (size_t i = 0; i + static_cast<size_t>(keep_) < steps.size() && steps[i] < checkpoint.step; ++i) {
    const std::string old = path_of(FileName(steps[i]));
    if (spared.contains(old)) continue;
    fs::remove(old, error);
    Tidy(old, error);
  }
  return path;
}

// A run may be writing there: it removes what was the newest a moment ago, and then there are newer ones.
std::optional<Checkpoint> CheckpointStore::LoadNewest() const {
  std::set<std::string> tried;
  std::string complaint;
  for (;;) {
    std::vector<std::string> paths = List();
    std::erase_if(paths, [&](const std::string& path) { return tried.contains(path); });
    if (paths.empty()) break;
    for (const std::string& path : std::views::reverse(paths)) {
      tried.insert(path);
      try {
        return LoadCheckpoint(path);
      } catch (const CheckpointError& error) {
        std::error_code unknown;
        if (fs::symlink_status(path, unknown).type() == fs::file_type::not_found) continue;
        LogLine(LogLevel::kWarning, fmt::format("skipping a damaged checkpoint: {}", error.message()));
        if (complaint.empty()) complaint = error.message();
      }
    }
  }
  if (complaint.empty()) return std::nullopt;
  Throw<CheckpointError>("none of the {} checkpoints in \"{}\" can be read; the newest: {}", tried.size(), folder_,
                         complaint);
}

std::optional<std::map<std::string, std::string>> CheckpointStore::NewestInfo() const {
  const std::vector<std::string> paths = List();
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    try {
      return LoadCheckpointInfo(*path);
    } catch (const CheckpointError&) {  // LoadNewest complains of it
    }
  }
  return std::nullopt;
}

std::vector<std::string> CheckpointStore::List() const {
  std::vector<std::string> paths;
  for (const int64_t step : StepsOf(folder_)) paths.push_back((fs::path(folder_) / FileName(step)).string());
  return paths;
}

std::optional<std::string> CheckpointStore::AheadOf(int64_t step) const {
  const std::vector<int64_t> steps = StepsOf(folder_);
  if (steps.empty() || steps.back() <= step) return std::nullopt;
  return List().back();
}

}  // namespace bindery
