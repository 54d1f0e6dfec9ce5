#include "train/data/records/tf_record.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "proto/example.pb.h"
#include "train/data/records/crc32c.h"
#include "train/data/records/random_file.h"

namespace bindery {
namespace {

constexpr int64_t kHeaderBytes = 12, kFooterBytes = 4;

template <class T>
T Number(const char* bytes) {
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

class TfRecords : public RecordSource {
 public:
  TfRecords(const std::vector<std::string>& paths, const TfRecordOptions& options) {
    for (const std::string& path : paths) {
      files_.push_back(std::make_unique<RandomFile>(path));
      List(*files_.back(), options);
    }
  }

  int64_t records() const override { return static_cast<int64_t>(places_.size()); }

  Record Read(int64_t number) const override {
    const Place& place = places_[static_cast<size_t>(number)];
    const std::string bytes = place.file->Read(place.offset, place.bytes + kFooterBytes);
    const std::string_view message(bytes.data(), static_cast<size_t>(place.bytes));
    if (MaskedCrc32c(message) != Number<uint32_t>(bytes.data() + place.bytes)) {
      Throw<DataError>("{}: damaged: its checksum is another", Name(number));
    }
    proto::Example example;
    if (!example.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
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
    const RandomFile* file;
    int64_t number;         // in the file
    int64_t offset, bytes;  // of the message
  };

  void List(const RandomFile& file, const TfRecordOptions& options) {
    const auto fail = [&](int64_t number, const std::string& what) {
      Throw<DataError>("\"{}\", record {}: {}", file.path(), number, what);
    };
    int64_t number = 0;
    for (int64_t at = 0; at < file.size(); ++number) {
      if (file.size() - at < kHeaderBytes) fail(number, "cut off within its header");
      char header[kHeaderBytes];
      file.Read(at, kHeaderBytes, header);
      if (MaskedCrc32c({header, 8}) != Number<uint32_t>(header + 8)) {
        fail(number, at == 0 ? "the checksum of its length is another: not a TFRecord file, or one that is packed"
                             : "damaged: the checksum of its length is another");
      }
      const auto bytes = Number<uint64_t>(header);
      if (bytes > static_cast<uint64_t>(options.record_bytes)) {
        fail(number, fmt::format("it has {} bytes, the limit is {}", bytes, options.record_bytes));
      }
      at += kHeaderBytes;
      const auto length = static_cast<int64_t>(bytes);
      if (file.size() - at < length + kFooterBytes) fail(number, fmt::format("cut off: it has {} bytes", bytes));
      places_.push_back({&file, number, at, length});
      fingerprint_ = Checksum(header, kHeaderBytes, fingerprint_);
      at += length + kFooterBytes;
    }
  }

  std::vector<std::unique_ptr<RandomFile>> files_;
  std::vector<Place> places_;
  std::vector<std::string> classes_;
  uint64_t fingerprint_ = 0;
};

}  // namespace

RecordSourcePtr OpenTfRecords(const std::vector<std::string>& paths, const TfRecordOptions& options) {
  return std::make_shared<TfRecords>(paths, options);
}

}  // namespace bindery
