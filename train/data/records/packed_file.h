// A file packed by gzip or zlib as a whole, read at any place of its content.
//
// It is unpacked once, from the beginning to the end. On the way points are noted, a mebibyte apart or more, at which
// unpacking can begin again: the place in the file, and the 32 KiB of content before it, to which a deflate stream may
// refer. A reading begins at the last point before its place, or where an earlier reading ended, if that is nearer: what
// is read in order is unpacked once. Of points there are at most 256, 8 MiB, whatever the file's length; fewer,
// further apart, where many files share what one process keeps of them.
//
// Thread safety: Scan is for one thread, before the first Read; any threads may Read.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/records/record_file.h"

namespace bindery {

class PackedFile {
 public:
  // What is kept of one: points, and places at which readings ended.
  struct Limits {
    size_t points = 256, idle = 16;
  };
  // Of each of so many files: together what 32 keep, but at least 8 points and one place each.
  static Limits LimitsOf(size_t files);

  explicit PackedFile(const RecordFile* file, const Limits& limits = LimitsOf(1));  // which must outlive it
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  // Does it begin as gzip's and zlib's files do? Others may, by chance.
  static bool IsLike(std::string_view begin);

  // The next bytes of the content: `size` of them, or fewer where it ends. `to`: nullptr passes over them. Throws
  // DataError, which does not name the file: the stream is cut off or damaged.
  int64_t Scan(void* to, int64_t size);
  // What has been scanned. Throws DataError if the file is another by now.
  void Read(int64_t offset, int64_t size, void* to) const;

 private:
  struct Point;
  class Cursor;
  void Note();

  const RecordFile* file_;
  const Limits limits_;
  std::unique_ptr<Cursor> scan_;  // none: it is at the end
  std::vector<Point> points_;
  int64_t span_;  // between points, at least
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Cursor>> idle_;  // guarded by mutex_; the last used last
};

}  // namespace bindery
