// IDX files, the form of MNIST and its like: 0, 0, element type, number of axes, the extents as big-endian 32-bit
// numbers, the elements, big-endian. Plain or packed by gzip. Reading a file from an untrusted source gives a tensor or
// an error that says which file and what was expected; nothing is allocated that the file cannot fill.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/host_tensor.h"
#include "train/data/image_set.h"

namespace bindery {

struct IdxLimits {
  int64_t file_bytes = int64_t{4} << 30;
  int64_t tensor_bytes = int64_t{4} << 30;
};

// uint8, int8, int16, int32, float32 and float64. Throws DataError.
HostTensor ReadIdx(const std::string& path, const IdxLimits& limits = {});
// The same for a file's content; `name` is for messages.
HostTensor ParseIdx(std::string_view bytes, const std::string& name, const IdxLimits& limits = {});

// Of the types that can be read. Written atomically; packed if the name ends in ".gz". Throws DataError.
void WriteIdx(const HostTensor& tensor, const std::string& path);

// Images (N, rows, columns) and labels (N) of bytes. Throws DataError: the numbers of images and labels differ, a label
// is not below `classes`.
ImageSet ReadIdxImages(const std::string& images_path, const std::string& labels_path, int64_t classes = 10,
                       const IdxLimits& limits = {});

// The reverse; pixels are rounded to bytes. Throws DataError if the set has other than bytes' worth of labels.
void WriteIdxImages(const ImageSet& set, const std::string& images_path, const std::string& labels_path);

// A folder with the four files of MNIST, Fashion-MNIST and others: train-images-idx3-ubyte, train-labels-idx1-ubyte,
// t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte; plain or with ".gz", also as train-images.idx3-ubyte.
enum class MnistPart { kTrain, kTest };
ImageSet ReadMnist(const std::string& folder, MnistPart part, int64_t classes = 10);
struct MnistFolder {
  explicit MnistFolder(const std::string& path, int64_t classes = 10);
  ImageSet train, test;
};

}  // namespace bindery
