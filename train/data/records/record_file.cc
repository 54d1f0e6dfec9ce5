#include "train/data/records/record_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"

namespace bindery {
namespace {

// By its name, just after it was opened. Where there is none by now, it is no file that was there before.
std::pair<dev_t, ino_t> IdentityOf(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

}  // namespace

RecordFile::RecordFile(const std::string& path, std::shared_ptr<OpenFiles> open)
    : path_(path), full_path_(std::filesystem::absolute(path)), open_(std::move(open)) {
  const RandomFile first(full_path_, fmt::format("cannot read \"{}\"", path_.c_str()));
  size_ = first.size();
  identity_ = IdentityOf(full_path_);
}

std::shared_ptr<const RandomFile> RecordFile::Open() const {
  const std::string complaint = fmt::format("cannot read \"{}\"", path_);
  auto file = std::make_shared<const RandomFile>(full_path_, complaint);
  if (file->size() != size_ || IdentityOf(full_path_) != identity_) {
    Throw<DataError>("{}: it is another file than when it was opened first", complaint);
  }
  return file;
}

std::string RecordFile::Read(int64_t offset, int64_t size) const { return open_->Get(this)->Read(offset, size); }

void RecordFile::Read(int64_t offset, int64_t size, void* to) const { open_->Get(this)->Read(offset, size, to); }

std::shared_ptr<const RandomFile> OpenFiles::Get(const RecordFile* file) {
  const auto of_file = [&](const auto& one) { return one.first == file; };
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = std::ranges::find_if(files_, of_file); found != files_.end()) {
      files_.splice(files_.end(), files_, found);
      return found->second;
    }
  }
  std::shared_ptr<const RandomFile> opened = file->Open();  // others read meanwhile, and perhaps open it, too
  const std::lock_guard lock(mutex_);
  if (std::ranges::none_of(files_, of_file)) files_.emplace_back(file, opened);
  if (files_.size() > kMost) files_.pop_front();
  return opened;
}

}  // namespace bindery
