#include "train/data/gunzip.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace bindery {
namespace {

constexpr int kGzipWindow = 15 + 16;             // the largest window, and gzip's header around it
constexpr int64_t kMaxPiece = int64_t{1} << 30;  // zlib counts with 32 bits
constexpr std::string_view kMagic = "\x1f\x8b";

}  // namespace

PackedReader::PackedReader(std::string_view bytes, std::string name)
    : packed_(bytes.starts_with(kMagic)), name_(std::move(name)), size_(static_cast<int64_t>(bytes.size())),
      rest_(bytes) {
  if (packed_ && inflateInit2(&stream_, kGzipWindow) != Z_OK) Throw("zlib does not start");
}

PackedReader::~PackedReader() {
  if (packed_) inflateEnd(&stream_);
}

int64_t PackedReader::MaxContent() const { return packed_ ? size_ * 1032 : size_; }

bool PackedReader::Read(void* to, int64_t size) {
  char* out = static_cast<char*>(to);
  while (size > 0) {
    const int64_t got = ReadSome(out, size);
    if (got == 0) return false;
    out += got;
    size -= got;
  }
  return true;
}

bool PackedReader::AtEnd() {
  char byte;
  return ReadSome(&byte, 1) == 0;
}

int64_t PackedReader::ReadSome(char* to, int64_t size) {
  if (!packed_) {
    const size_t count = std::min(rest_.size(), static_cast<size_t>(size));
    std::copy_n(rest_.data(), count, to);
    rest_.remove_prefix(count);
    return static_cast<int64_t>(count);
  }
  const int64_t piece = std::min(size, kMaxPiece);
  stream_.next_out = reinterpret_cast<Bytef*>(to);
  stream_.avail_out = static_cast<uInt>(piece);
  while (stream_.avail_out == static_cast<uInt>(piece)) {
    if (member_over_) {
      if (stream_.avail_in == 0 && rest_.empty()) return 0;
      inflateReset(&stream_);  // an other member, or bytes that inflate will call damaged
      member_over_ = false;
    }
    if (stream_.avail_in == 0) {
      const std::string_view next = rest_.substr(0, kMaxPiece);
      rest_.remove_prefix(next.size());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next.data()));
      stream_.avail_in = static_cast<uInt>(next.size());
    }
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      member_over_ = true;
    } else if (result == Z_BUF_ERROR) {
      Throw<DataError>("\"{}\": cut off: the gzip stream does not end", name_);
    } else if (result != Z_OK) {
      Throw<DataError>("\"{}\": damaged: {}", name_, stream_.msg != nullptr ? stream_.msg : "not a gzip stream");
    }
  }
  return piece - stream_.avail_out;
}

std::string Gzip(std::string_view bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    Throw("zlib does not start");
  }
  std::string packed;
  std::string buffer(size_t{1} << 16, '\0');
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    if (stream.avail_in == 0 && !bytes.empty()) {
      const std::string_view next = bytes.substr(0, kMaxPiece);
      bytes.remove_prefix(next.size());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next.data()));
      stream.avail_in = static_cast<uInt>(next.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    result = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    packed.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return packed;
}

}  // namespace bindery
