// Data files beside a model: read where somebody else's file says, and nowhere but in the model's folder.
#pragma once

#include <cstdint>
#include <string>

namespace bindery {

class DataFile {
 public:
  // `folder` holds the files; empty: there are none.
  explicit DataFile(std::string folder) : folder_(std::move(folder)) {}
  ~DataFile();
  DataFile(const DataFile&) = delete;

  // Opens a file, if it is not the one that is open. `file` is a path below the folder: neither absolute nor with "..",
  // and no step of it a link. Throws ModelError for other paths, DataError for what cannot be opened or is not regular.
  void Open(const std::string& file);
  // Throws ModelError if bytes [offset, offset + bytes) are not all there.
  void CheckRange(int64_t offset, int64_t bytes) const;
  int64_t bytes() const { return file_bytes_; }
  // Throws DataError.
  void Read(int64_t offset, int64_t bytes, void* to) const;

 private:
  void Close();
  const std::string folder_;
  std::string open_file_;
  int descriptor_ = -1;
  int64_t file_bytes_ = 0;
};

}  // namespace bindery
