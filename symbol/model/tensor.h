// Tensors in messages: inside, or in a data file beside the message.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/host_tensor.h"
#include "proto/model.pb.h"
#include "symbol/model.h"
#include "symbol/model/data_file.h"

namespace bindery {

using TensorPtr = std::shared_ptr<const HostTensor>;

// Collects the tensors of one message. Those of more than `inline_bytes` go to a data file: their bytes one after the
// other, each from a multiple of 4096 on, so that the file can be mapped.
class TensorWriter {
 public:
  TensorWriter(int64_t inline_bytes, bool text) : inline_bytes_(inline_bytes), text_(text) {}
  TensorWriter(const TensorWriter&) = delete;

  // `message` must stay where it is; and the tensor, which a null pointer is not.
  void Write(const TensorPtr& tensor, proto::Tensor* message);

  const std::vector<TensorPtr>& tensors() const { return tensors_; }  // all of them, in order
  bool has_external() const { return !external_.empty(); }
  // Where all tensors together take no more than that, none goes to a data file after all.
  void TakeIn(int64_t bytes);
  // A name that depends on the content: `<prefix>.<16 hex digits>.data`. Fills it in everywhere.
  std::string NameDataFile(const std::string& prefix);
  void WriteDataFile(const ByteSink& sink) const;

 private:
  struct Piece {
    TensorPtr tensor;
    proto::Tensor* message;
  };
  const int64_t inline_bytes_;
  const bool text_;
  std::vector<TensorPtr> tensors_;
  std::vector<Piece> external_;
  int64_t end_ = 0, total_bytes_ = 0;
};

// Makes tensors of messages that nobody has checked: sizes are compared with what is there before anything is
// allocated. Throws ModelError, or DataError for data files.
class TensorReader {
 public:
  // `folder` holds the data files; empty: there are none.
  TensorReader(const ModelLimits& limits, std::string folder);

  HostTensor Read(const proto::Tensor& message);

 private:
  const int64_t limit_;
  int64_t total_bytes_ = 0;
  DataFile file_;
};

}  // namespace bindery
