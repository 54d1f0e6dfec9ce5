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
#include <string>
#include <vector>

#include "train/data/records/record.h"

namespace bindery {

struct TfRecordOptions {
  int64_t record_bytes = int64_t{256} << 20;  // of the longest
};

// Throws DataError, with file and record.
RecordSourcePtr OpenTfRecords(const std::vector<std::string>& paths, const TfRecordOptions& options = {});

}  // namespace bindery
