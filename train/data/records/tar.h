// Tar archives as WebDataset has them, one or several: files that follow each other with the same name up to the first
// dot of its last part are a record, and what is behind the dot, in lower case, is the name of a field in bytes:
// images/0001.jpg and images/0001.cls are a record with the fields jpg and cls.
//
// Archives are POSIX's and GNU's (ustar, pax, long names), not packed. Names are listed when an archive is opened,
// contents read when they are wanted. Folders and links are passed over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/data/records/record.h"

namespace bindery {

struct TarOptions {
  int64_t record_bytes = int64_t{256} << 20;  // of the largest, all fields together
};

// Throws DataError, with archive and record.
RecordSourcePtr OpenTars(const std::vector<std::string>& paths, const TarOptions& options = {});

}  // namespace bindery
