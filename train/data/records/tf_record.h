// TFRecord files of tf.train.Example messages, one or several, whose records follow each other. A record is
//
//   8 bytes   its length, little-endian
//   4         masked CRC-32C of those 8
//   ...       the message
//   4         masked CRC-32C of the message
//
// Lengths are read and checked when the files are opened, messages when they are wanted. A file may be packed by gzip or
// zlib as a whole, whatever its name is, as TFRecordOptions of TensorFlow do it: it is unpacked once when it is opened,
// and from then on read at any place (packed_file.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/records/record.h"

namespace bindery {

struct TfRecordOptions {
  int64_t record_bytes = int64_t{256} << 20;  // of the longest
};

// What is around a message; of TensorBoard's event files, too.
constexpr int64_t kRecordHeaderBytes = 12, kRecordFooterBytes = 4;
// The length that a header tells; none if it is not whole, or its checksum is another.
std::optional<uint64_t> LengthIn(std::string_view header);
// The message before a footer; none if the checksum there is another. `bytes`: both, at least the footer.
std::optional<std::string_view> MessageIn(std::string_view bytes);

// Throws DataError, with file and record.
RecordSourcePtr OpenTfRecords(const std::vector<std::string>& paths, const TfRecordOptions& options = {});

}  // namespace bindery
