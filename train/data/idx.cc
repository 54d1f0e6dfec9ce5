#include "train/data/idx.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/files.h"
#include "train/data/gunzip.h"

namespace bindery {
namespace {

// The codes of element types in the third byte of a file.
constexpr std::pair<uint8_t, DType> kTypes[] = {{0x08, DType::kUInt8},   {0x09, DType::kInt8},
                                                {0x0b, DType::kInt16},   {0x0c, DType::kInt32},
                                                {0x0d, DType::kFloat32}, {0x0e, DType::kFloat64}};

std::optional<DType> DTypeOf(uint8_t code) {
  for (const auto& [known, dtype] : kTypes) {
    if (known == code) return dtype;
  }
  return std::nullopt;
}

uint8_t CodeOf(DType dtype, const std::string& path) {
  std::vector<DType> dtypes;
  for (const auto& [code, known] : kTypes) {
    if (known == dtype) return code;
    dtypes.push_back(known);
  }
  Throw<DataError>("\"{}\": an IDX file holds {}, got {}", path, fmt::join(dtypes, ", "), dtype);
}

uint32_t FromBigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Between big-endian and the host's order.
void ReverseBytes(void* data, int64_t elements, int64_t size) {
  auto* bytes = static_cast<uint8_t*>(data);
  for (int64_t i = 0; size > 1 && i < elements; ++i) std::reverse(bytes + i * size, bytes + (i + 1) * size);
}

HostTensor Parse(PackedReader* reader, const std::string& name, const IdxLimits& limits) {
  std::array<uint8_t, 4> magic;
  if (!reader->Read(magic.data(), 4)) Throw<DataError>("\"{}\": cut off within its header", name);
  const std::optional<DType> dtype = DTypeOf(magic[2]);
  const int rank = magic[3];
  if (magic[0] != 0 || magic[1] != 0 || !dtype) {
    Throw<DataError>(
        "\"{}\": not an IDX file: expected 00 00, a type (08, 09, 0b to 0e) and the number of axes, got "
        "{:02x} {:02x} {:02x} {:02x}",
        name, magic[0], magic[1], magic[2], magic[3]);
  }
  if (rank > Shape::kMaxRank) Throw<DataError>("\"{}\": {} axes, at most {} are possible", name, rank, Shape::kMaxRank);
  std::vector<int64_t> dims;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<uint8_t, 4> extent;
    if (!reader->Read(extent.data(), 4)) Throw<DataError>("\"{}\": cut off within its header", name);
    dims.push_back(FromBigEndian(extent.data()));
  }
  const Shape shape{std::span<const int64_t>(dims)};
  int64_t bytes = 0;
  try {
    bytes = CheckedMul(shape.Elements(), SizeOf(*dtype));
  } catch (const ShapeError&) {
    Throw<DataError>("\"{}\": impossible extents {}", name, shape);
  }
  // Before anything is allocated: could the file hold this much?
  if (bytes > reader->MaxContent()) {
    Throw<DataError>("\"{}\": cut off: {} of {} take {} bytes, which it cannot hold", name, shape, *dtype, bytes);
  }
  if (bytes > limits.tensor_bytes) {
    Throw<DataError>("\"{}\": {} of {} take {} bytes, the limit is {}", name, shape, *dtype, bytes,
                     limits.tensor_bytes);
  }
  HostTensor tensor(*dtype, shape);
  if (!reader->Read(tensor.raw(), bytes)) Throw<DataError>("\"{}\": cut off within its elements", name);
  ReverseBytes(tensor.raw(), tensor.elements(), SizeOf(*dtype));
  if (!reader->AtEnd()) Throw<DataError>("\"{}\": bytes are left after its {} elements", name, tensor.elements());
  return tensor;
}

HostTensor ReadAs(const std::string& path, const char* what, int rank, const IdxLimits& limits) {
  HostTensor tensor = ReadIdx(path, limits);
  if (tensor.dtype() != DType::kUInt8 || tensor.shape().rank() != rank) {
    Throw<DataError>("\"{}\": expected {}, got {} {}", path, what, tensor.dtype(), tensor.shape());
  }
  return tensor;
}

// The name of the file that is there.
std::string FindFile(const std::string& folder, const std::string& name) {
  std::string dotted = name;
  dotted[dotted.find("-idx")] = '.';
  std::vector<std::string> tried;
  for (const std::string& file : {name, name + ".gz", dotted, dotted + ".gz"}) {
    const std::string path = folder + "/" + file;
    if (::access(path.c_str(), F_OK) == 0) return path;
    tried.push_back(file);
  }
  Throw<DataError>("folder \"{}\" has none of {}", folder, fmt::join(tried, ", "));
}

}  // namespace

HostTensor ParseIdx(std::string_view bytes, const std::string& name, const IdxLimits& limits) {
  PackedReader reader(bytes, name);
  try {
    return Parse(&reader, name, limits);
  } catch (const DeviceError&) {
    Throw<DataError>("\"{}\": its elements do not fit in memory", name);
  }
}

HostTensor ReadIdx(const std::string& path, const IdxLimits& limits) {
  return ParseIdx(ReadFile(path, limits.file_bytes), path, limits);
}

void WriteIdx(const HostTensor& tensor, const std::string& path) {
  const uint8_t code = CodeOf(tensor.dtype(), path);
  std::string bytes{'\0', '\0', static_cast<char>(code), static_cast<char>(tensor.shape().rank())};
  for (const int64_t extent : tensor.shape()) {
    if (extent > UINT32_MAX) Throw<DataError>("\"{}\": an IDX file holds extents of 32 bits, got {}", path, extent);
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  }
  const size_t header = bytes.size();
  bytes.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes()));
  ReverseBytes(bytes.data() + header, tensor.elements(), SizeOf(tensor.dtype()));
  WriteFileAtomically(path, path.ends_with(".gz") ? Gzip(bytes) : bytes);
}

ImageSet ReadIdxImages(const std::string& images_path, const std::string& labels_path, int64_t classes,
                       const IdxLimits& limits) {
  const HostTensor pixels = ReadAs(images_path, "images, uint8 (N, rows, columns)", 3, limits);
  const HostTensor classes_of = ReadAs(labels_path, "labels, uint8 (N)", 1, limits);
  const int64_t count = pixels.shape()[0];
  if (classes_of.elements() != count) {
    Throw<DataError>("\"{}\" has {} images, but \"{}\" has {} labels", images_path, count, labels_path,
                     classes_of.elements());
  }
  ImageSet set;
  try {
    set = {HostTensor(DType::kFloat32, pixels.shape().Insert(1, 1)), HostTensor(DType::kFloat32, {count})};
  } catch (const DeviceError&) {
    Throw<DataError>("\"{}\": its {} images do not fit in memory as float32", images_path, count);
  }
  std::transform(pixels.data<uint8_t>().begin(), pixels.data<uint8_t>().end(), set.images.data<float>().begin(),
                 [](uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; });
  const auto labels = classes_of.data<uint8_t>();
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= classes) {
      Throw<DataError>("\"{}\": label {} is {}, expected 0 to {}", labels_path, i, labels[i], classes - 1);
    }
    set.labels.data<float>()[i] = labels[i];
  }
  return set;
}

void WriteIdxImages(const ImageSet& set, const std::string& images_path, const std::string& labels_path) {
  const Shape& shape = set.images.shape();
  if (shape.rank() != 4 || shape[1] != 1 || set.labels.shape() != Shape{shape[0]}) {
    Throw<DataError>("expected images (N, 1, rows, columns) and labels (N), got {} and {}", shape, set.labels.shape());
  }
  HostTensor pixels(DType::kUInt8, shape.Erase(1)), labels(DType::kUInt8, set.labels.shape());
  for (int64_t i = 0; i < pixels.elements(); ++i) pixels.Set(i, 255 * set.images.At(i));  // rounds and saturates
  for (int64_t i = 0; i < labels.elements(); ++i) {
    labels.Set(i, set.labels.At(i));
    if (labels.At(i) != set.labels.At(i)) {
      Throw<DataError>("label {} is {}, expected a whole number from 0 to 255", i, set.labels.At(i));
    }
  }
  WriteIdx(pixels, images_path);
  WriteIdx(labels, labels_path);
}

ImageSet ReadMnist(const std::string& folder, MnistPart part, int64_t classes) {
  const std::string name = part == MnistPart::kTrain ? "train" : "t10k";
  const std::string images = FindFile(folder, name + "-images-idx3-ubyte");
  return ReadIdxImages(images, FindFile(folder, name + "-labels-idx1-ubyte"), classes);
}

MnistFolder::MnistFolder(const std::string& path, int64_t classes)
    : train(ReadMnist(path, MnistPart::kTrain, classes)), test(ReadMnist(path, MnistPart::kTest, classes)) {}

}  // namespace bindery
