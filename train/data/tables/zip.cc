#include "train/data/tables/zip.h"

#include <zlib.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace bindery {
namespace {

uint32_t NumberAt(std::string_view bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

// The end record stands at the end, before a comment of at most 65535 bytes.
size_t FindEnd(std::string_view bytes, const std::string& archive) {
  constexpr size_t kEndBytes = 22, kMostComment = 65535;
  if (bytes.size() >= kEndBytes) {
    const size_t last = bytes.size() - kEndBytes, first = last > kMostComment ? last - kMostComment : 0;
    for (size_t at = last + 1; at-- > first;) {
      if (bytes.substr(at, 4) == "PK\5\6" && at + kEndBytes + NumberAt(bytes, at + 20, 2) == bytes.size()) return at;
    }
  }
  Throw<DataError>("\"{}\": not a zip archive, or cut off: it has no directory at its end", archive);
}

int64_t MaxUnpacked(const ZipEntry& entry) {  // deflate shrinks at most by a factor of 1032
  return entry.method == 0 ? entry.packed_bytes : entry.packed_bytes * 1032 + 1032;
}

}  // namespace

std::vector<ZipEntry> ListZip(std::string_view bytes, const std::string& archive) {
  const size_t end = FindEnd(bytes, archive);
  const uint32_t count = NumberAt(bytes, end + 10, 2), directory = NumberAt(bytes, end + 16, 4);
  if (count == 0xffff || directory == 0xffffffff) Throw<DataError>("\"{}\": archives of zip64 are not read", archive);
  if (NumberAt(bytes, end + 4, 2) != 0 || NumberAt(bytes, end + 6, 2) != 0 || NumberAt(bytes, end + 8, 2) != count) {
    Throw<DataError>("\"{}\": it is one of several parts of an archive", archive);
  }
  std::vector<ZipEntry> entries;
  std::set<std::string> names;
  size_t at = directory;
  for (uint32_t i = 0; i < count; ++i) {
    constexpr size_t kHeaderBytes = 46;
    if (at > end || end - at < kHeaderBytes || bytes.substr(at, 4) != "PK\1\2") {
      Throw<DataError>("\"{}\": its directory is damaged at file {} of {}", archive, i, count);
    }
    const size_t name_bytes = NumberAt(bytes, at + 28, 2);
    const size_t more = name_bytes + NumberAt(bytes, at + 30, 2) + NumberAt(bytes, at + 32, 2);
    if (end - at - kHeaderBytes < more) {
      Throw<DataError>("\"{}\": its directory is damaged at file {} of {}", archive, i, count);
    }
    ZipEntry entry{.name = std::string(bytes.substr(at + kHeaderBytes, name_bytes)),
                   .method = static_cast<int>(NumberAt(bytes, at + 10, 2)),
                   .crc32 = NumberAt(bytes, at + 16, 4),
                   .packed_bytes = NumberAt(bytes, at + 20, 4),
                   .bytes = NumberAt(bytes, at + 24, 4),
                   .offset = NumberAt(bytes, at + 42, 4)};
    if (!names.insert(entry.name).second) Throw<DataError>("\"{}\": \"{}\" is there twice", archive, entry.name);
    if (NumberAt(bytes, at + 8, 2) & 1) Throw<DataError>("\"{}\": \"{}\" is encrypted", archive, entry.name);
    if (entry.method != 0 && entry.method != 8) {
      Throw<DataError>("\"{}\": \"{}\" is packed by method {}; known are 0 and 8", archive, entry.name, entry.method);
    }
    entries.push_back(std::move(entry));
    at += kHeaderBytes + more;
  }
  return entries;
}

std::string Unzip(std::string_view bytes, const ZipEntry& entry, const std::string& archive, int64_t limit) {
  constexpr int64_t kHeaderBytes = 30;
  const auto size = static_cast<int64_t>(bytes.size());
  const auto damaged = [&](const char* what) {
    Throw<DataError>("\"{}\": \"{}\" is damaged: {}", archive, entry.name, what);
  };
  if (entry.offset > size - kHeaderBytes) damaged("it lies outside");
  const auto header = static_cast<size_t>(entry.offset);
  if (bytes.substr(header, 4) != "PK\3\4") damaged("it has no header");
  const int64_t begin = entry.offset + kHeaderBytes + NumberAt(bytes, header + 26, 2) + NumberAt(bytes, header + 28, 2);
  if (begin > size || entry.packed_bytes > size - begin) damaged("it ends outside");
  if (entry.bytes > MaxUnpacked(entry)) damaged("it cannot unpack to as many bytes as it says");
  if (entry.bytes > limit) {
    Throw<DataError>("\"{}\": \"{}\" has {} bytes, the limit is {}", archive, entry.name, entry.bytes, limit);
  }
  const std::string_view packed = bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(entry.packed_bytes));
  std::string content;
  if (entry.method == 0) {
    if (entry.bytes != entry.packed_bytes) damaged("two sizes of a stored file");
    content = packed;
  } else {
    content.resize(static_cast<size_t>(entry.bytes));
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    Bytef extra = 0;  // a place to go on to, so that content that is too long shows
    stream.next_out = content.empty() ? &extra : reinterpret_cast<Bytef*>(content.data());
    stream.avail_out = content.empty() ? 1 : static_cast<uInt>(content.size());
    const int result = inflate(&stream, Z_FINISH);
    const bool whole = result == Z_STREAM_END && stream.avail_in == 0 && stream.total_out == content.size();
    inflateEnd(&stream);
    if (!whole) damaged("it does not unpack to as many bytes as it says");
  }
  if (::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()) != entry.crc32) {
    damaged("its checksum is another");
  }
  return content;
}

}  // namespace bindery
