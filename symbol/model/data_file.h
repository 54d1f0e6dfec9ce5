// Data files beside a model: read where somebody else's file says, and nowhere but in the model's folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/random_file.h"

namespace bindery {

class DataFile {
 public:
  // `folder` holds the files; empty: there are none.
  explicit DataFile(std::string folder) : folder_(std::move(folder)) {}
  DataFile(const DataFile&) = delete;

  // Opens a file, if it is not the one that is open. `file` is a path below the folder: neither absolute nor with "..",
  // and no step of it a link. Throws ModelError for other paths, DataError for what cannot be opened or is not regular.
  void Open(const std::string& file);
  // Throws ModelError if bytes [offset, offset + bytes) are not all there.
  void CheckRange(int64_t offset, int64_t bytes) const;
  int64_t bytes() const { return open_->size(); }
  // Throws DataError.
  void Read(int64_t offset, int64_t bytes, void* to) const { open_->Read(offset, bytes, to); }

 private:
  const std::string folder_;
  std::optional<RandomFile> open_;  // with its path below the folder
};

}  // namespace bindery
