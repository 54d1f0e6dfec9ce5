#include "train/data/records/tf_record.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "proto/example.pb.h"
#include "train/data/records/crc32c.h"
#include "train/data/records/packed_file.h"
#include "train/data/records/record_file.h"

namespace bindery {
namespace {

template <class T>
T FromBytes(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

Record ToRecord(const proto::Example& example) {
  Record record;
  for (const auto& [name, feature] : example.features().feature()) {
    RecordField& field = record[name];
    field.bytes.assign(feature.bytes_list().value().begin(), feature.bytes_list().value().end());
    field.floats.assign(feature.float_list().value().begin(), feature.float_list().value().end());
    field.ints.assign(feature.int64_list().value().begin(), feature.int64_list().value().end());
  }
  return record;
}

// The content of a file, which may be packed: from the beginning to the end, and then at any place.
class Content {
 public:
  Content(const std::string& path, const std::shared_ptr<OpenFiles>& open, const PackedFile::Limits& limits)
      : file_(path, open) {
    // A length may look like the beginning of a packed file; with its checksum it does not.
    const std::string begin = file_.Read(0, std::min(file_.size(), kRecordHeaderBytes));
    if (!LengthIn(begin) && PackedFile::IsLike(begin)) packed_ = std::make_unique<PackedFile>(&file_, limits);
  }

  const std::string& path() const { return file_.path(); }
  bool is_packed() const { return packed_ != nullptr; }
  // As PackedFile's.
  int64_t Scan(void* to, int64_t size) {
    if (packed_) return packed_->Scan(to, size);
    const int64_t some = std::min(size, file_.size() - at_);
    if (to != nullptr) file_.Read(at_, some, to);
    at_ += some;
    return some;
  }
  void Read(int64_t offset, int64_t size, void* to) const {
    packed_ ? packed_->Read(offset, size, to) : file_.Read(offset, size, to);
  }

 private:
  const RecordFile file_;
  std::unique_ptr<PackedFile> packed_;
  int64_t at_ = 0;  // of what is not packed
};

class TfRecords : public RecordSource {
 public:
  TfRecords(const std::vector<std::string>& paths, const TfRecordOptions& options) {
    const auto open = std::make_shared<OpenFiles>();
    const PackedFile::Limits limits = PackedFile::LimitsOf(paths.size());
    for (const std::string& path : paths) {
      files_.push_back(std::make_unique<Content>(path, open, limits));
      List(files_.back().get(), options);
    }
  }

  int64_t records() const override { return static_cast<int64_t>(places_.size()); }

  Record Read(int64_t number) const override {
    const Place& place = places_[static_cast<size_t>(number)];
    std::string bytes(static_cast<size_t>(place.bytes + kRecordFooterBytes), '\0');
    try {
      place.file->Read(place.offset, std::ssize(bytes), bytes.data());
    } catch (const DataError& e) {
      if (!place.file->is_packed()) throw;
      Throw<DataError>("{}: {}", Name(number), e.message());
    }
    const std::optional<std::string_view> message = MessageIn(bytes);
    if (!message) Throw<DataError>("{}: damaged: its checksum is another", Name(number));
    proto::Example example;
    if (!example.ParseFromArray(message->data(), static_cast<int>(message->size()))) {
      Throw<DataError>("{}: not a tf.train.Example", Name(number));
    }
    return ToRecord(example);
  }

  std::string Name(int64_t number) const override {
    const Place& place = places_[static_cast<size_t>(number)];
    return fmt::format("\"{}\", record {}", place.file->path(), place.number);
  }
  uint64_t Fingerprint() const override { return fingerprint_; }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  struct Place {
    const Content* file;
    int64_t number;         // in the file
    int64_t offset, bytes;  // of the message
  };

  void List(Content* file, const TfRecordOptions& options) {
    const auto fail = [&](int64_t number, const std::string& what) {
      Throw<DataError>("\"{}\", record {}: {}", file->path(), number, what);
    };
    int64_t at = 0, number = 0;
    const auto scan = [&](void* to, int64_t size) {
      try {
        const int64_t got = file->Scan(to, size);
        at += got;
        return got;
      } catch (const DataError& e) {
        if (file->is_packed()) fail(number, e.message());
        throw;
      }
    };
    for (;; ++number) {
      char header[kRecordHeaderBytes];
      const bool first = at == 0;
      const int64_t got = scan(header, kRecordHeaderBytes);
      if (got == 0) return;
      if (got < kRecordHeaderBytes) fail(number, "cut off within its header");
      const std::optional<uint64_t> bytes = LengthIn({header, kRecordHeaderBytes});
      if (!bytes) {
        fail(number, first ? "the checksum of its length is another: not a TFRecord file"
                           : "damaged: the checksum of its length is another");
      }
      if (*bytes > static_cast<uint64_t>(options.record_bytes)) {
        fail(number, fmt::format("it has {} bytes, the limit is {}", *bytes, options.record_bytes));
      }
      const auto length = static_cast<int64_t>(*bytes);
      places_.push_back({file, number, at, length});
      fingerprint_ = Checksum(header, kRecordHeaderBytes, fingerprint_);
      if (scan(nullptr, length + kRecordFooterBytes) < length + kRecordFooterBytes) {
        fail(number, fmt::format("cut off: it has {} bytes", length));
      }
    }
  }

  std::vector<std::unique_ptr<Content>> files_;
  std::vector<Place> places_;
  std::vector<std::string> classes_;
  uint64_t fingerprint_ = 0;
};

}  // namespace

std::optional<uint64_t> LengthIn(std::string_view header) {
  if (std::ssize(header) != kRecordHeaderBytes) return std::nullopt;
  if (MaskedCrc32c(header.substr(0, 8)) != FromBytes<uint32_t>(header.data() + 8)) return std::nullopt;
  return FromBytes<uint64_t>(header.data());
}

std::optional<std::string_view> MessageIn(std::string_view bytes) {
  const std::string_view message = bytes.substr(0, bytes.size() - kRecordFooterBytes);
  if (MaskedCrc32c(message) != FromBytes<uint32_t>(message.data() + message.size())) return std::nullopt;
  return message;
}

RecordSourcePtr OpenTfRecords(const std::vector<std::string>& paths, const TfRecordOptions& options) {
  return std::make_shared<TfRecords>(paths, options);
}

}  // namespace bindery
