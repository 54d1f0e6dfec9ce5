// Zip archives in memory, as numpy and many others write them: stored and deflated files, below 4 GiB. Only what the
// central directory names is there. Source: APPNOTE.TXT 6.3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bindery {

struct ZipEntry {
  std::string name;
  int method = 0;  // 0 stored, 8 deflated
  uint32_t crc32 = 0;
  int64_t packed_bytes = 0, bytes = 0, offset = 0;  // of its local header
};

// `archive` is for messages. Throw DataError: the archive is damaged, split, encrypted, of zip64, has a name twice.
std::vector<ZipEntry> ListZip(std::string_view bytes, const std::string& archive);
// The content of a file, of at most `limit` bytes, its checksum verified.
std::string Unzip(std::string_view bytes, const ZipEntry& entry, const std::string& archive, int64_t limit);

}  // namespace bindery
