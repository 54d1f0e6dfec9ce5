// ONNX messages that nobody has checked.
#pragma once

#include <string>
#include <string_view>

#include "base/host_tensor.h"
#include "proto/onnx.pb.h"
#include "symbol/model.h"
#include "symbol/model/data_file.h"

namespace bindery::onnx {

inline constexpr int kExternal = 1;  // of a tensor's data_location

// ONNX' number of an element type; and back, ModelError for types that we have none for.
int NumberOf(DType dtype);
DType DTypeOf(int number);
// Of a tensor's integers, if they are fewer than 8: they are read as int8 or uint8. Else 0.
int PackedBits(const TensorProto& message);
// Integers of 2, 4 or 8 bits, several in a byte, as int8 or uint8 (rows, columns); each row begins with a byte.
HostTensor Unpacked(const HostTensor& bytes, int bits, DType dtype, int64_t rows, int64_t columns);

// Throws ModelError for what is damaged, too large, or not ONNX.
ModelProto ReadMessage(std::string_view bytes, const std::string& source_name, const ModelLimits& limits);

// Makes tensors of messages: sizes are compared with what is there before anything is allocated. Throws ModelError, or
// DataError for data files.
class OnnxTensorReader {
 public:
  OnnxTensorReader(const ModelLimits& limits, std::string folder)
      : limit_(limits.tensor_bytes), file_(std::move(folder)) {}
  HostTensor Read(const TensorProto& message);
  void Charge(int64_t bytes);  // throws if so many more are too many

 private:
  HostTensor ReadAs(const TensorProto& message, DType dtype, const Shape& shape);
  HostTensor ReadExternal(const TensorProto& message, DType dtype, const Shape& shape);
  const int64_t limit_;
  int64_t total_bytes_ = 0;
  DataFile file_;
};

}  // namespace bindery::onnx
