#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "proto/checkpoint.pb.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_format.h"

namespace bindery {
namespace {

using Role = proto::StoredTensor::Role;

// Fills in the header, and lists the tensors in its order.
std::vector<const HostTensor*> MakeHeader(const Checkpoint& checkpoint, proto::Checkpoint* header) {
  if (!checkpoint.model.symbol.empty()) {
    header->set_model(SerializeModel({.symbol = checkpoint.model.symbol}));
  }
  header->set_optimizer(checkpoint.optimizer);
  header->set_schedule(checkpoint.schedule);
  header->set_step(checkpoint.step);
  header->set_epoch(checkpoint.epoch);
  header->set_batch_in_epoch(checkpoint.batch_in_epoch);
  header->set_seed(checkpoint.seed);
  for (const auto& [key, value] : checkpoint.iterator) {
    proto::Count* count = header->add_iterator();
    count->set_key(key);
    count->set_value(value);
  }
  for (const auto& [key, value] : checkpoint.numbers) {
    proto::Number* number = header->add_number();
    number->set_key(key);
    number->set_value(value);
  }
  header->set_metrics(checkpoint.metrics);
  for (const double total : checkpoint.metric_totals) header->add_metric_total(total);
  const auto set_text = [](const std::pair<const std::string, std::string>& entry, proto::Text* text) {
    text->set_key(entry.first);
    text->set_value(entry.second);
  };
  for (const auto& entry : checkpoint.info) set_text(entry, header->add_info());
  for (const auto& entry : checkpoint.model.metadata) set_text(entry, header->add_metadata());
  std::vector<const HostTensor*> tensors;
  const auto add = [&](Role role, const HostTensorMap& map) {
    for (const auto& [name, tensor] : map) {
      proto::StoredTensor* stored = header->add_tensor();
      stored->set_role(role);
      stored->set_name(name);
      stored->set_dtype(static_cast<proto::DType>(tensor.dtype()));
      for (const int64_t extent : tensor.shape()) stored->add_dim(extent);
      stored->set_checksum(Checksum(tensor.raw(), tensor.bytes()));
      tensors.push_back(&tensor);
    }
  };
  add(proto::StoredTensor::PARAM, checkpoint.model.params);
  add(proto::StoredTensor::AUX, checkpoint.model.aux);
  add(proto::StoredTensor::OPTIMIZER, checkpoint.optimizer_state);
  return tensors;
}

// Calls open(bytes), whose bytes(sink) gives all of them to a ByteSink. Throws before that for what cannot be written to
// `path`.
template <class Open>
void Write(const Checkpoint& checkpoint, const std::string& path, const Open& open) {
  const auto [least, most] = std::minmax({checkpoint.step, checkpoint.epoch, checkpoint.batch_in_epoch});
  if (least < 0 || most > kMaxCheckpointStep) {
    Throw("a checkpoint's step {}, epoch {} and batch {} must be in 0..{}", checkpoint.step, checkpoint.epoch,
          checkpoint.batch_in_epoch, kMaxCheckpointStep);
  }
  proto::Checkpoint header;
  const std::vector<const HostTensor*> tensors = MakeHeader(checkpoint, &header);
  // Saving refuses what loading would refuse.
  const auto header_bytes = static_cast<int64_t>(header.ByteSizeLong());
  const int64_t fields = header.iterator_size() + header.number_size() + header.info_size() + header.metadata_size() +
                         header.tensor_size() + proto::Checkpoint::descriptor()->field_count();  // these once at most
  if (header_bytes > kMaxCheckpointHeader || fields > kMaxCheckpointFields) {
    Throw<DataError>("cannot write \"{}\": a checkpoint's header of {} entries and {} bytes is too large", path, fields,
                     header_bytes);
  }
  std::string message;
  if (!header.SerializeToString(&message))
    Throw<DataError>("cannot write \"{}\": its header cannot be serialized", path);

  CheckpointPreamble preamble;
  std::memcpy(preamble.magic, kCheckpointMagic, sizeof(preamble.magic));
  preamble.header_bytes = header_bytes;
  preamble.header_checksum = Checksum(message.data(), header_bytes);
  preamble.file_bytes = kPreambleBytes + header_bytes;
  for (const HostTensor* tensor : tensors)
    preamble.file_bytes = CheckedAdd(NextTensor(preamble.file_bytes), tensor->bytes());
  preamble.checksum = Checksum(&preamble, kPreambleChecked);

  open([&](const ByteSink& sink) {
    static constexpr char kZeros[kCheckpointAlignment] = {};
    sink(&preamble, kPreambleBytes);
    sink(message.data(), header_bytes);
    int64_t end = kPreambleBytes + header_bytes;
    for (const HostTensor* tensor : tensors) {
      const int64_t begin = NextTensor(end);
      sink(kZeros, begin - end);
      sink(tensor->raw(), tensor->bytes());
      end = begin + tensor->bytes();
    }
  });
}

}  // namespace

void SaveCheckpoint(const Checkpoint& checkpoint, const std::string& path) {
  Write(checkpoint, path, [&](const auto& bytes) { WriteFileAtomically(path, bytes); });
}

std::string CheckpointToBytes(const Checkpoint& checkpoint) {
  std::string all;
  Write(checkpoint, "memory", [&](const auto& bytes) {
    bytes([&](const void* data, int64_t count) {
      all.append(static_cast<const char*>(data), static_cast<size_t>(count));
    });
  });
  return all;
}

}  // namespace bindery
