// A file read at any place. Thread safety: immutable; any threads may read.
#pragma once

#include <cstdint>
#include <string>

namespace bindery {

class RandomFile {
 public:
  explicit RandomFile(std::string path);  // throws DataError if it is not a regular file that can be read
  ~RandomFile();
  RandomFile(const RandomFile&) = delete;
  RandomFile& operator=(const RandomFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  // Throws DataError if the file is shorter by now, or cannot be read. `offset` + `size` is at most size().
  std::string Read(int64_t offset, int64_t size) const;
  void Read(int64_t offset, int64_t size, void* to) const;

 private:
  const std::string path_;
  int file_ = -1;
  int64_t size_ = 0;
};

}  // namespace bindery
