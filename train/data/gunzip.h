// Bytes that may be packed by gzip, read piece by piece, so that nothing is unpacked that nobody asked for.
// Thread safety: none; one thread at a time.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace bindery {

class PackedReader {
 public:
  // `bytes` must outlive the reader; `name` is for messages.
  PackedReader(std::string_view bytes, std::string name);
  ~PackedReader();
  PackedReader(const PackedReader&) = delete;
  PackedReader& operator=(const PackedReader&) = delete;

  // Fills `to`; false if the content ends before. Throws DataError if it is damaged.
  bool Read(void* to, int64_t size);
  // Is the content over? Its checksum is then verified.
  bool AtEnd();
  // No content of these bytes is longer: deflate shrinks at most by a factor of 1032.
  int64_t MaxContent() const;

 private:
  int64_t ReadSome(char* to, int64_t size);  // 0 at the end

  const bool packed_;
  const std::string name_;
  const int64_t size_;
  std::string_view rest_;  // not yet given to zlib, or not yet read
  z_stream stream_{};
  bool member_over_ = false;  // gzip files may be strung together
};

// One gzip member, the same bytes for the same content.
std::string Gzip(std::string_view bytes);

}  // namespace bindery
