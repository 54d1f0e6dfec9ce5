#include "symbol/onnx/reader.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/parse_number.h"
#include "symbol/model/source.h"
#include "symbol/model/wire.h"

namespace bindery::onnx {
namespace {

struct ElementType {
  int number;
  DType dtype;
};
constexpr ElementType kElementTypes[] = {
    {1, DType::kFloat32}, {2, DType::kUInt8},   {3, DType::kInt8},      {4, DType::kUInt16},   {5, DType::kInt16},
    {6, DType::kInt32},   {7, DType::kInt64},   {9, DType::kBool},      {10, DType::kFloat16}, {11, DType::kFloat64},
    {12, DType::kUInt32}, {13, DType::kUInt64}, {16, DType::kBFloat16},
};

// Several in a byte, the first in the lowest bits. In memory each has a byte of its own.
struct PackedType {
  int number;
  DType dtype;
  int bits;
};
constexpr PackedType kPackedTypes[] = {
    {21, DType::kUInt8, 4}, {22, DType::kInt8, 4}, {25, DType::kUInt8, 2}, {26, DType::kInt8, 2}};

const PackedType* FindPacked(int number) {
  const auto* found = std::ranges::find(kPackedTypes, number, &PackedType::number);
  return found == std::end(kPackedTypes) ? nullptr : found;
}

Shape ShapeOf(const TensorProto& message) {
  if (message.dims_size() > Shape::kMaxRank) {
    Throw<ModelError>("{} dims, at most {} are possible", message.dims_size(), Shape::kMaxRank);
  }
  for (const int64_t extent : message.dims()) {
    if (extent < 0) Throw<ModelError>("a tensor cannot have an extent of {}", extent);
  }
  return Shape(std::span<const int64_t>(message.dims().data(), static_cast<size_t>(message.dims_size())));
}

// Elements from a typed list, whose numbers must fit.
template <class T, class List>
void Fill(const List& list, HostTensor* tensor) {
  const std::span<T> to = tensor->data<T>();
  for (size_t i = 0; i < to.size(); ++i) {
    auto from = list[static_cast<int>(i)];
    if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
      to[i].bits = static_cast<uint16_t>(from);
    } else if constexpr (std::is_same_v<T, bool>) {
      to[i] = from != 0;
    } else {
      to[i] = static_cast<T>(from);
      if constexpr (std::is_integral_v<T> && std::is_integral_v<decltype(from)>) {
        if (std::cmp_not_equal(to[i], from))
          Throw<ModelError>("element {}: {} cannot be held by {}", i, from, tensor->dtype());
      }
    }
  }
}

// The list that holds elements of this type, and what it is called.
template <class F>
auto WithList(const TensorProto& message, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(message.float_data(), "float_data");
    case DType::kFloat64: return f(message.double_data(), "double_data");
    case DType::kInt64: return f(message.int64_data(), "int64_data");
    case DType::kUInt32:
    case DType::kUInt64: return f(message.uint64_data(), "uint64_data");
    default: return f(message.int32_data(), "int32_data");
  }
}

int64_t ParseBytes(const std::string& key, const std::string& text) {
  const std::optional<int64_t> bytes = ParseNumber<int64_t>(text);
  if (!bytes || *bytes < 0) {
    Throw<ModelError>("external data: {} must be a number of bytes, got {}", key, QuotedName(text));
  }
  return *bytes;
}

// A byte that is neither 0 nor 1 is no bool, and reading it as one is undefined.
void MakeBools(HostTensor* tensor) {
  if (tensor->dtype() != DType::kBool) return;
  auto* bytes = static_cast<uint8_t*>(tensor->raw());
  std::transform(bytes, bytes + tensor->bytes(), bytes, [](uint8_t byte) { return byte != 0; });
}

}  // namespace

int NumberOf(DType dtype) {
  return std::ranges::find(kElementTypes, dtype, &ElementType::dtype)->number;  // every DType is there
}

DType DTypeOf(int number) {
  const auto* found = std::ranges::find(kElementTypes, number, &ElementType::number);
  if (found != std::end(kElementTypes)) return found->dtype;
  const PackedType* packed = FindPacked(number);
  const std::string what = packed == nullptr ? "" : fmt::format(", {} bits, is of constants alone: it", packed->bits);
  Throw<ModelError>("element type {} of ONNX{} has no counterpart", number, what);
}

int PackedBits(const TensorProto& message) {
  const PackedType* packed = FindPacked(message.data_type());
  return packed == nullptr ? 0 : packed->bits;
}

HostTensor Unpacked(const HostTensor& bytes, int bits, DType dtype, int64_t rows, int64_t columns) {
  HostTensor result(dtype, {rows, columns});
  if (result.elements() == 0) return result;
  const auto* from = static_cast<const uint8_t*>(bytes.raw());
  auto* to = static_cast<uint8_t*>(result.raw());
  const int64_t per_row = bytes.elements() / rows, per_byte = 8 / bits;
  const int unused = 8 - bits;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) {
      const int shift = static_cast<int>(i % per_byte) * bits;
      const auto top =
          static_cast<uint8_t>(from[row * per_row + i / per_byte] >> shift << unused);  // the sign is above
      to[row * columns + i] = dtype == DType::kInt8 ? static_cast<uint8_t>(static_cast<int8_t>(top) >> unused)
                                                    : static_cast<uint8_t>(top >> unused);
    }
  }
  return result;
}

ModelProto ReadMessage(std::string_view bytes, const std::string& source_name, const ModelLimits& limits) {
  const ModelSource source(source_name, false);
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    source.Fail({}, "a message of 2 GiB or more cannot be read; its tensors belong into data files");
  }
  CheckOnnxWire(bytes, limits, source);
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetRecursionLimit(limits.recursion);
  ModelProto message;
  if (!message.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) source.Fail({}, "damaged or cut off");
  if (!message.has_ir_version() || !message.has_graph()) source.Fail({}, "not an ONNX model: it has no graph");
  return message;
}

HostTensor OnnxTensorReader::Read(const TensorProto& message) {
  const Shape shape = ShapeOf(message);
  const PackedType* packed = FindPacked(message.data_type());
  if (packed == nullptr) return ReadAs(message, DTypeOf(message.data_type()), shape);
  const int64_t elements = shape.Elements(), per_byte = 8 / packed->bits;
  const HostTensor bytes = ReadAs(message, DType::kUInt8, {elements / per_byte + (elements % per_byte != 0)});
  Charge(elements);
  return Unpacked(bytes, packed->bits, packed->dtype, 1, elements).Reshape(shape);
}

void OnnxTensorReader::Charge(int64_t bytes) {
  if (bytes > limit_ - total_bytes_)
    Throw<ModelError>("all tensors together take more than {} bytes, the limit", limit_);
  total_bytes_ += bytes;
}

HostTensor OnnxTensorReader::ReadAs(const TensorProto& message, DType dtype, const Shape& shape) {
  const int64_t elements = shape.Elements();
  const int64_t bytes = CheckedMul(elements, SizeOf(dtype), "bytes of a tensor");
  const bool is_external = message.data_location() == kExternal;
  // What is there, before anything is made for it. What is outside is compared when its file is open.
  if (message.has_raw_data() && !is_external) {
    const auto got = static_cast<int64_t>(message.raw_data().size());
    if (got != bytes) Throw<ModelError>("{} {} takes {} bytes, got {} of raw_data", dtype, shape, bytes, got);
  } else if (!is_external) {
    WithList(message, dtype, [&](const auto& list, const char* name) {
      if (list.size() == elements) return;
      Throw<ModelError>("{} {} has {} elements, got {} of {}", dtype, shape, elements, list.size(), name);
    });
  }
  Charge(bytes);

  HostTensor tensor;
  if (is_external) {
    tensor = ReadExternal(message, dtype, shape);
  } else if (tensor = HostTensor(dtype, shape); message.has_raw_data()) {
    if (bytes > 0) std::memcpy(tensor.raw(), message.raw_data().data(), static_cast<size_t>(bytes));
  } else {
    WithList(message, dtype,
             [&](const auto& list, const char*) { Dispatch(dtype, [&]<class T>() { Fill<T>(list, &tensor); }); });
  }
  MakeBools(&tensor);
  return tensor;
}

HostTensor OnnxTensorReader::ReadExternal(const TensorProto& message, DType dtype, const Shape& shape) {
  std::string location;
  int64_t offset = 0, length = -1;
  for (const StringStringEntryProto& entry : message.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = ParseBytes(entry.key(), entry.value());
    if (entry.key() == "length") length = ParseBytes(entry.key(), entry.value());
  }
  file_.Open(location);
  const int64_t bytes = shape.Elements() * SizeOf(dtype);
  const int64_t got = length >= 0 ? length : file_.bytes() - offset;
  if (got != bytes) Throw<ModelError>("{} {} takes {} bytes, got {} of external data", dtype, shape, bytes, got);
  file_.CheckRange(offset, bytes);
  HostTensor tensor(dtype, shape);
  file_.Read(offset, bytes, tensor.raw());
  return tensor;
}

}  // namespace bindery::onnx
