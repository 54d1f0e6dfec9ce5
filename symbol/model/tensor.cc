#include "symbol/model/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/checked.h"
#include "symbol/model/source.h"

namespace bindery {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kMaxReadable = 16;  // elements that text shows as numbers

// The shape, if elements and bytes can be counted.
Shape ShapeOf(const proto::Tensor& message) {
  if (message.dim_size() > Shape::kMaxRank) {
    Throw<ModelError>("{} dims, at most {} are possible", message.dim_size(), Shape::kMaxRank);
  }
  for (const int64_t extent : message.dim()) {
    if (extent < 0) Throw<ModelError>("a tensor cannot have an extent of {}", extent);
  }
  return Shape(std::span<const int64_t>(message.dim().data(), static_cast<size_t>(message.dim_size())));
}

// A byte that is neither 0 nor 1 is no bool, and reading it as one is undefined.
void CheckBools(const HostTensor& tensor) {
  if (tensor.dtype() != DType::kBool) return;
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
  const auto* wrong = std::find_if(bytes, bytes + tensor.bytes(), [](uint8_t byte) { return byte > 1; });
  if (wrong != bytes + tensor.bytes()) {
    Throw<ModelError>("element {} of a bool tensor is {}, expected 0 or 1", wrong - bytes, *wrong);
  }
}

// The elements as numbers, if they are few and the numbers give the same bits back.
std::optional<std::array<double, kMaxReadable>> AsNumbers(const HostTensor& tensor) {
  if (tensor.elements() > kMaxReadable) return std::nullopt;
  std::array<double, kMaxReadable> values{};
  HostTensor copy(tensor.dtype(), tensor.shape());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    values[static_cast<size_t>(i)] = tensor.At(i);
    if (values[static_cast<size_t>(i)] != values[static_cast<size_t>(i)]) return std::nullopt;  // NaN has many bits
    copy.Set(i, tensor.At(i));
  }
  if (!(copy == tensor)) return std::nullopt;
  return values;
}

}  // namespace

void TensorWriter::Write(const TensorPtr& tensor, proto::Tensor* message) {
  CheckBools(*tensor);
  total_bytes_ = CheckedAdd(total_bytes_, tensor->bytes(), "bytes of all tensors");
  if (total_bytes_ > ModelLimits{}.tensor_bytes) {
    Throw<ModelError>("tensors of more than {} bytes in all cannot be loaded again", ModelLimits{}.tensor_bytes);
  }
  tensors_.push_back(tensor);
  message->set_dtype(static_cast<proto::DType>(tensor->dtype()));
  for (const int64_t extent : tensor->shape()) message->add_dim(extent);
  if (tensor->elements() == 0) return;
  if (tensor->bytes() > inline_bytes_) {
    proto::External* place = message->mutable_external();
    place->set_offset(end_);
    place->set_bytes(tensor->bytes());
    place->set_checksum(Checksum(tensor->raw(), tensor->bytes()));
    end_ = RoundUp(CheckedAdd(end_, tensor->bytes()), kPage);
    external_.push_back({tensor, message});
    return;
  }
  if (text_) {
    if (const auto values = AsNumbers(*tensor)) {
      message->mutable_value()->Add(values->begin(), values->begin() + tensor->elements());
      return;
    }
  }
  message->set_data(tensor->raw(), static_cast<size_t>(tensor->bytes()));
}

void TensorWriter::TakeIn(int64_t bytes) {
  if (total_bytes_ > bytes) return;
  for (const Piece& piece : external_) {
    piece.message->clear_external();
    piece.message->set_data(piece.tensor->raw(), static_cast<size_t>(piece.tensor->bytes()));
  }
  external_.clear();
}

std::string TensorWriter::NameDataFile(const std::string& prefix) {
  std::vector<uint64_t> content;
  for (const Piece& piece : external_) {
    content.push_back(piece.message->external().checksum());
    content.push_back(static_cast<uint64_t>(piece.tensor->bytes()));
  }
  const uint64_t checksum = Checksum(content.data(), static_cast<int64_t>(content.size() * sizeof(uint64_t)));
  const std::string name = fmt::format("{}.{:016x}.data", prefix, checksum);
  for (const Piece& piece : external_) piece.message->mutable_external()->set_file(name);
  return name;
}

void TensorWriter::WriteDataFile(const ByteSink& sink) const {
  static constexpr std::array<char, kPage> kZeros{};
  int64_t position = 0;
  for (const Piece& piece : external_) {
    const int64_t offset = piece.message->external().offset();
    sink(kZeros.data(), offset - position);
    sink(piece.tensor->raw(), piece.tensor->bytes());
    position = offset + piece.tensor->bytes();
  }
}

TensorReader::TensorReader(const ModelLimits& limits, std::string folder)
    : limit_(limits.tensor_bytes), file_(std::move(folder)) {}

HostTensor TensorReader::Read(const proto::Tensor& message) {
  const Shape shape = ShapeOf(message);
  const auto dtype = static_cast<DType>(message.dtype());
  const int64_t elements = shape.Elements();
  const int64_t bytes = CheckedMul(elements, SizeOf(dtype), "bytes of a tensor");
  const int sources = message.has_data() + (message.value_size() > 0) + message.has_external();
  if (sources > 1) Throw<ModelError>("expected one of data, value and external, got {}", sources);
  // What is there, before anything is made for it.
  if (message.value_size() > 0 || sources == 0) {
    if (message.value_size() != elements) {
      Throw<ModelError>("{} {} has {} elements, got {} values", dtype, shape, elements, message.value_size());
    }
  } else {
    const int64_t got = message.has_data() ? static_cast<int64_t>(message.data().size()) : message.external().bytes();
    if (got != bytes) Throw<ModelError>("{} {} takes {} bytes, got {}", dtype, shape, bytes, got);
  }
  if (bytes > limit_ - total_bytes_)
    Throw<ModelError>("all tensors together take more than {} bytes, the limit", limit_);
  total_bytes_ += bytes;

  if (!message.has_external()) {
    HostTensor tensor(dtype, shape);
    if (message.has_data() && bytes > 0) std::memcpy(tensor.raw(), message.data().data(), static_cast<size_t>(bytes));
    for (int i = 0; i < message.value_size(); ++i) {
      tensor.Set(i, message.value(i));
      if (!IsFloat(dtype) && tensor.At(i) != message.value(i)) {
        Throw<ModelError>("element {}: {} cannot be held by {}", i, message.value(i), dtype);
      }
    }
    CheckBools(tensor);
    return tensor;
  }
  const proto::External& place = message.external();
  if (place.file().find('/') != std::string::npos) {  // DataFile, which ONNX' files use, too, takes ones of folders
    Throw<ModelError>("data file {}: expected the name of a file in the model's folder", QuotedName(place.file()));
  }
  if (!place.has_checksum()) Throw<ModelError>("data file {}: no checksum is given", QuotedName(place.file()));
  file_.Open(place.file());
  file_.CheckRange(place.offset(), bytes);
  HostTensor tensor(dtype, shape);
  file_.Read(place.offset(), bytes, tensor.raw());
  if (Checksum(tensor.raw(), bytes) != place.checksum()) {
    Throw<DataError>("data file {}: damaged: bytes {} to {} do not have their checksum", QuotedName(place.file()),
                     place.offset(), place.offset() + bytes);
  }
  CheckBools(tensor);
  return tensor;
}

}  // namespace bindery
