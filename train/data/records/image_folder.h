// A folder of images: a folder inside for each class, named by it; the images in it, and in folders further down, are
// the records: fields "image" (bytes) and "label". Where asked for, a folder without folders and a single file are
// records, too, without labels. Files that are not *.jpg, *.jpeg or *.png and those whose names begin with a dot do not
// count; links to folders are not followed. Classes and files are in the order of their names' bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "train/data/image_set.h"
#include "train/data/images/transform.h"
#include "train/data/records/record.h"

namespace bindery {

struct ImageFolderOptions {
  std::vector<std::string> classes = {};  // in this order; empty: all folders there are
  int64_t file_bytes = int64_t{256} << 20;
  bool unlabelled = false;  // images may have no class: files of a folder that has no folders, or one file
  bool warns = false;       // in a line of the log, of images that are not read: *.webp, *.bmp and such
};

// Throws DataError: no folder, no classes, no images at all or of a class, a folder that is none of the classes.
RecordSourcePtr OpenImageFolder(const std::string& path, const ImageFolderOptions& options = {});

// How many of its images are in colour, not grey; of so many of them at most, from all places of the folder. Those that
// are damaged are not.
struct ColourCount {
  int64_t coloured = 0, seen = 0;
};
ColourCount CountColours(const RecordSource& folder, int64_t most);

// One image file as a model takes it (PreprocessingOfImages in train/data/open.h), without what is random: float32
// (channels, rows, columns). Throws DataError.
HostTensor ReadImageFile(const std::string& path, const ImageOptions& options);

// Images (N, channels, rows, columns) as such a folder of PNGs: FOLDER/LABEL/000012.png, the number being the image's
// place in the set. Throws DataError.
void WriteImageFolder(const ImageSet& set, const std::string& path);

}  // namespace bindery
