// A folder of images: a folder inside for each class, named by it; the images in it, and in folders further down, are
// the records: fields "image" (bytes) and "label". Files that are not *.jpg, *.jpeg or *.png and those whose names
// begin with a dot do not count; links to folders are not followed. Classes and files are in the order of their names' bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/data/records/record.h"

namespace bindery {

struct ImageFolderOptions {
  std::vector<std::string> classes = {};  // in this order; empty: all folders there are
  int64_t file_bytes = int64_t{256} << 20;
};

// Throws DataError: no folder, no classes, a class without images, a folder that is none of the classes.
RecordSourcePtr OpenImageFolder(const std::string& path, const ImageFolderOptions& options = {});

}  // namespace bindery
