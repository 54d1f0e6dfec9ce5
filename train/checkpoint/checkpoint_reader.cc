// Reads a checkpoint that nobody has checked. Before anything is allocated, its size is compared with what the file
// really has: first the frame, then the header, then all tensors together, then each tensor's bytes.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/random_file.h"
#include "proto/checkpoint.pb.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_format.h"

namespace bindery {
namespace {

class Reader {
 public:
  Reader(const std::string& path, const ModelLimits& limits)
      : file_(path, fmt::format("\"{}\"", path.c_str())), limits_(limits) {}
  Reader(int descriptor, const std::string& path, const ModelLimits& limits)
      : file_(descriptor, path, fmt::format("\"{}\"", path)), limits_(limits) {}

  Checkpoint Read() {
    const CheckpointPreamble preamble = ReadPreamble();
    const proto::Checkpoint header = ReadHeader(preamble);
    Checkpoint checkpoint = Translate(header);
    CheckTensors(header, preamble);
    ReadTensors(header, preamble, &checkpoint);
    return checkpoint;
  }
  std::map<std::string, std::string> ReadInfo() { return TranslateTexts(ReadHeader(ReadPreamble()).info()); }

 private:
  template <class... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    Throw<CheckpointError>("\"{}\": {}", file_.path(), fmt::format(format, std::forward<Args>(args)...));
  }

  void ReadAt(int64_t offset, void* data, int64_t count, const std::string& what) const {
    const int64_t got = file_.ReadSome(offset, count, data);
    if (got < count) Fail("the file ends at byte {}, within {}", offset + got, what);
  }

  CheckpointPreamble ReadPreamble() const {
    CheckpointPreamble preamble;
    const int64_t there = std::min(file_.size(), kPreambleBytes);
    ReadAt(0, &preamble, there, "its first bytes");
    if (std::memcmp(preamble.magic, kCheckpointMagic, std::min<size_t>(there, sizeof(kCheckpointMagic))) != 0) {
      Fail("this is not a checkpoint: it does not begin with \"BNDCKPT\"");
    }
    if (there < kPreambleBytes) Fail("the file was cut off after {} bytes", file_.size());
    if (preamble.version != kCheckpointVersion) {
      Fail("its format is {}, this program reads format {}: it was written by {} Bindery", preamble.version,
           kCheckpointVersion, preamble.version < kCheckpointVersion ? "an older" : "a newer");
    }
    if (preamble.checksum != Checksum(&preamble, kPreambleChecked))
      Fail("bytes 0..47 are damaged: the checksum is wrong");
    if (file_.size() < preamble.file_bytes)
      Fail("the file was cut off: it has {} of {} bytes", file_.size(), preamble.file_bytes);
    if (file_.size() > preamble.file_bytes)
      Fail("the file has {} bytes, but should end after {}", file_.size(), preamble.file_bytes);
    const int64_t limit = std::min({kMaxCheckpointHeader, limits_.file_bytes, file_.size() - kPreambleBytes});
    if (preamble.header_bytes < 0 || preamble.header_bytes > limit || preamble.zero != 0) {
      Fail("its header claims to have {} bytes, at most {} are possible here", preamble.header_bytes, limit);
    }
    return preamble;
  }

  proto::Checkpoint ReadHeader(const CheckpointPreamble& preamble) const {
    std::string bytes(static_cast<size_t>(preamble.header_bytes), '\0');
    ReadAt(kPreambleBytes, bytes.data(), preamble.header_bytes, "the header");
    if (preamble.header_checksum != Checksum(bytes.data(), preamble.header_bytes)) {
      Fail("the header, bytes {}..{}, is damaged: the checksum is wrong", kPreambleBytes,
           kPreambleBytes + preamble.header_bytes - 1);
    }
    CheckFieldCount(bytes);
    proto::Checkpoint header;
    if (!header.ParseFromString(bytes)) Fail("the header is not a valid message");
    bool unknown = !header.unknown_fields().empty();
    for (const proto::StoredTensor& tensor : header.tensor()) unknown |= !tensor.unknown_fields().empty();
    for (const proto::Count& count : header.iterator()) unknown |= !count.unknown_fields().empty();
    for (const proto::Number& number : header.number()) unknown |= !number.unknown_fields().empty();
    for (const proto::Text& text : header.info()) unknown |= !text.unknown_fields().empty();
    for (const proto::Text& text : header.metadata()) unknown |= !text.unknown_fields().empty();
    if (unknown) Fail("the header has fields that this program does not know");
    return header;
  }

  // Many tiny fields would take far more memory than they have bytes.
  void CheckFieldCount(const std::string& bytes) const {
    using google::protobuf::internal::WireFormatLite;
    google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                 static_cast<int>(bytes.size()));
    int64_t count = 0;
    while (const uint32_t tag = input.ReadTag()) {
      if (!WireFormatLite::SkipField(&input, tag)) Fail("the header is not a valid message");
      if (++count > kMaxCheckpointFields) Fail("the header has more than {} entries", kMaxCheckpointFields);
    }
  }

  Checkpoint Translate(const proto::Checkpoint& header) const {
    Checkpoint checkpoint;
    if (header.has_model()) {
      try {
        checkpoint.model = ParseModel(header.model(), false, "graph", limits_);
      } catch (const Error& error) {
        Fail("{}", error.message());
      }
      if (!checkpoint.model.params.empty() || !checkpoint.model.aux.empty())
        Fail("its graph brings tensors of its own");
    }
    checkpoint.model.metadata = TranslateTexts(header.metadata());
    checkpoint.optimizer = header.optimizer();
    checkpoint.schedule = header.schedule();
    checkpoint.step = header.step();
    checkpoint.epoch = header.epoch();
    checkpoint.batch_in_epoch = header.batch_in_epoch();
    const auto [least, most] = std::minmax({checkpoint.step, checkpoint.epoch, checkpoint.batch_in_epoch});
    if (least < 0 || most > kMaxCheckpointStep) {
      Fail("step {}, epoch {} and batch {} are not all in 0..{}", checkpoint.step, checkpoint.epoch,
           checkpoint.batch_in_epoch, kMaxCheckpointStep);
    }
    checkpoint.seed = header.seed();
    for (const proto::Count& count : header.iterator()) checkpoint.iterator[count.key()] = count.value();
    checkpoint.metrics = header.metrics();
    checkpoint.metric_totals.assign(header.metric_total().begin(), header.metric_total().end());
    for (const proto::Number& number : header.number()) checkpoint.numbers[number.key()] = number.value();
    if (checkpoint.iterator.size() != static_cast<size_t>(header.iterator_size()) ||
        checkpoint.numbers.size() != static_cast<size_t>(header.number_size()))
      Fail("a name in the header is there twice");
    checkpoint.info = TranslateTexts(header.info());
    return checkpoint;
  }

  std::map<std::string, std::string> TranslateTexts(
      const google::protobuf::RepeatedPtrField<proto::Text>& texts) const {
    std::map<std::string, std::string> result;
    for (const proto::Text& text : texts) {
      if (!result.emplace(text.key(), text.value()).second) Fail("a name in the header is there twice");
    }
    return result;
  }

  static std::string NameOf(const proto::StoredTensor& tensor) {
    switch (tensor.role()) {
      case proto::StoredTensor::PARAM: return fmt::format("parameter \"{}\"", tensor.name());
      case proto::StoredTensor::AUX: return fmt::format("auxiliary state \"{}\"", tensor.name());
      case proto::StoredTensor::OPTIMIZER: return fmt::format("optimizer state \"{}\"", tensor.name());
    }
    return tensor.name();
  }

  static DType DTypeOf(const proto::StoredTensor& tensor) { return static_cast<DType>(tensor.dtype()); }

  Shape ShapeOf(const proto::StoredTensor& tensor) const {
    const auto& dims = tensor.dim();
    if (dims.size() > Shape::kMaxRank)
      Fail("{} has {} axes, at most {} are possible", NameOf(tensor), dims.size(), Shape::kMaxRank);
    for (const int64_t extent : dims) {
      if (extent < 0) Fail("{} has a negative extent, {}", NameOf(tensor), extent);
    }
    return Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(dims.size())));
  }

  // That all tensors together are just what the file has room for.
  void CheckTensors(const proto::Checkpoint& header, const CheckpointPreamble& preamble) const {
    int64_t end = kPreambleBytes + preamble.header_bytes, total = 0;
    for (const proto::StoredTensor& tensor : header.tensor()) {
      const Shape shape = ShapeOf(tensor);
      int64_t bytes = 0;
      try {
        bytes = CheckedMul(shape.Elements(), SizeOf(DTypeOf(tensor)));
        end = CheckedAdd(NextTensor(end), bytes);
        total = CheckedAdd(total, bytes);
      } catch (const ShapeError& error) {
        Fail("{} of shape {}: {}", NameOf(tensor), shape, error.message());
      }
      if (end > file_.size())
        Fail("{} of {} {} does not fit in the file's {} bytes", NameOf(tensor), DTypeOf(tensor), shape, file_.size());
      if (total > limits_.tensor_bytes) Fail("its tensors have more than {} bytes, the limit", limits_.tensor_bytes);
    }
    if (end != file_.size()) Fail("{} bytes follow the last tensor", file_.size() - end);
  }

  void ReadTensors(const proto::Checkpoint& header, const CheckpointPreamble& preamble, Checkpoint* checkpoint) const {
    int64_t end = kPreambleBytes + preamble.header_bytes;
    for (const proto::StoredTensor& stored : header.tensor()) {
      const std::string name = NameOf(stored);
      const int64_t begin = NextTensor(end);
      CheckZeros(end, begin, name);
      HostTensorMap& map = stored.role() == proto::StoredTensor::PARAM ? checkpoint->model.params
                           : stored.role() == proto::StoredTensor::AUX ? checkpoint->model.aux
                                                                       : checkpoint->optimizer_state;
      const auto [place, is_new] = map.try_emplace(stored.name());
      if (!is_new) Fail("{} is there twice", name);
      HostTensor& tensor = place->second = HostTensor(DTypeOf(stored), ShapeOf(stored));
      end = begin + tensor.bytes();
      ReadAt(begin, tensor.raw(), tensor.bytes(), name);
      if (Checksum(tensor.raw(), tensor.bytes()) != stored.checksum()) {
        Fail("{}, bytes {}..{}, is damaged: the checksum is wrong", name, begin, end - 1);
      }
      if (tensor.dtype() == DType::kBool) {
        const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
        if (std::any_of(bytes, bytes + tensor.bytes(), [](unsigned char byte) { return byte > 1; })) {
          Fail("{} has a bool that is neither 0 nor 1", name);
        }
      }
    }
  }

  void CheckZeros(int64_t begin, int64_t end, const std::string& next) const {
    char bytes[kCheckpointAlignment];
    ReadAt(begin, bytes, end - begin, "the padding");
    if (std::any_of(bytes, bytes + (end - begin), [](char byte) { return byte != 0; })) {
      Fail("bytes {}..{}, before {}, are damaged: they are not zero", begin, end - 1, next);
    }
  }

  const RandomFile file_;
  const ModelLimits limits_;
};

// What `read` gives, which reads the file.
template <class Read>
auto ReadFrom(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const DataError& error) {  // of the file
    throw CheckpointError(error.message());
  } catch (const std::bad_alloc&) {  // the header
    Throw<CheckpointError>("\"{}\": it does not fit in memory", path);
  } catch (const DeviceError&) {  // a tensor
    Throw<CheckpointError>("\"{}\": it does not fit in memory", path);
  }
}

}  // namespace

std::map<std::string, std::string> LoadCheckpointInfo(const std::string& path) {
  return ReadFrom(path, [&] { return Reader(path, {}).ReadInfo(); });
}

Checkpoint LoadCheckpoint(const std::string& path, const ModelLimits& limits) {
  return ReadFrom(path, [&] { return Reader(path, limits).Read(); });
}

// By a file that has no name.
Checkpoint CheckpointFromBytes(const std::string& bytes, const ModelLimits& limits) {
  const std::string name = "checkpoint in memory";
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0) Throw<CheckpointError>("a {} cannot be made: {}", name, std::strerror(errno));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::string problem = std::strerror(errno);
      close(file);
      Throw<CheckpointError>("a {} cannot be made: {}", name, problem);
    }
    done += static_cast<size_t>(count);
  }
  return ReadFrom(name, [&] { return Reader(file, name, limits).Read(); });
}

}  // namespace bindery
