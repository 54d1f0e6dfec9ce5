// Keeps other trainings out of a folder of checkpoints: two would rename and remove each other's. Who only reads needs
// none.
#pragma once

#include <memory>
#include <string>

namespace bindery {

// The folder is this thread's as long as one of these lives, or until its process ends, however it does. A thread may
// have several of one folder. In it lies a file ".lock" meanwhile, which says whose it is. Where no file can be locked
// (the folder cannot be written, its file system knows no locks) there is none: who writes says why.
class FolderLock {
 public:
  FolderLock() = default;  // of none
  // Makes the folder, if that can be done. Throws DataError, naming the process, if it is another one's, or another
  // thread's.
  explicit FolderLock(const std::string& folder);

 private:
  class Held;
  static std::shared_ptr<Held> Take(const std::string& folder);

  std::shared_ptr<Held> held_;
};

}  // namespace bindery
