// Files of records, of which there may be more than a process can have open: few of them are open at a time.
//
// Thread safety: immutable; any threads may read.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/random_file.h"

namespace bindery {

class OpenFiles;

// A regular file, read at any place. It is opened anew when it is read after many others, and must be the same then.
class RecordFile {
 public:
  // Throws DataError as RandomFile does. `open`: of all files that are read together.
  RecordFile(const std::string& path, std::shared_ptr<OpenFiles> open);
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Throw DataError as RandomFile's, and if another file has its name by now.
  std::string Read(int64_t offset, int64_t size) const;
  void Read(int64_t offset, int64_t size, void* to) const;

 private:
  friend class OpenFiles;
  std::shared_ptr<const RandomFile> Open() const;

  const std::string path_, full_path_;  // as it was given, and from any current folder
  const std::shared_ptr<OpenFiles> open_;
  int64_t size_ = 0;
  std::pair<dev_t, ino_t> identity_ = {};
};

// Those that were read last. A file that is let go is closed when its last reading is over.
class OpenFiles {
 public:
  static constexpr size_t kMost = 64;
  std::shared_ptr<const RandomFile> Get(const RecordFile* file);  // opens it, if it is not open

 private:
  std::mutex mutex_;
  std::list<std::pair<const RecordFile*, std::shared_ptr<const RandomFile>>> files_;  // guarded; the last used last
};

}  // namespace bindery
