// A regular file, read at any place. Thread safety: immutable; any threads may read.
#pragma once

#include <cstdint>
#include <string>

namespace bindery {

class RandomFile {
 public:
  // Throws DataError if it is not a regular file that can be read; a pipe is refused at once, without its writer. What
  // this and reading throw begins with `cannot read "<path>": `, or with `complaint` and a colon.
  explicit RandomFile(const std::string& path);
  RandomFile(std::string path, std::string complaint);
  // Takes a descriptor that is open for reading, and closes it in the end, or here if it throws.
  RandomFile(int descriptor, std::string path, std::string complaint);
  ~RandomFile();
  RandomFile(const RandomFile&) = delete;
  RandomFile& operator=(const RandomFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  // Throw DataError if the file has no such bytes, or no longer, or cannot be read.
  std::string Read(int64_t offset, int64_t size) const;
  void Read(int64_t offset, int64_t size, void* to) const;
  // Those of the bytes that are there now, and how many they are: fewer where the file ends. Throws DataError.
  int64_t ReadSome(int64_t offset, int64_t size, void* to) const;

 private:
  const std::string path_, complaint_;
  const int descriptor_;
  const int64_t size_;
};

}  // namespace bindery
