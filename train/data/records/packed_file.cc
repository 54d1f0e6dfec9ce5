#include "train/data/records/packed_file.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace bindery {
namespace {

constexpr int kRaw = -15,
              kWrapped = 15 + 32;  // windowBits: deflate alone; in gzip's or zlib's wrapping, which it tells
constexpr int64_t kWindow = int64_t{1} << 15, kInput = int64_t{1} << 15, kSkipped = int64_t{1} << 16;
constexpr int64_t kSpan = int64_t{1} << 20;
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr int64_t kGzipTrailer = 8, kZlibTrailer = 4;  // a checksum and the length, a checksum alone

}  // namespace

// Where a block of deflate begins.
struct PackedFile::Point {
  int64_t content = 0, file = 0;  // bytes before it
  int bits = 0;                   // of the file's last byte before it that are the block's already
  int64_t trailer = 0;            // bytes behind the last block of its stream
  std::string window = {};        // the content's last bytes
};

// Unpacks from one place on.
class PackedFile::Cursor {
 public:
  explicit Cursor(const RecordFile* file) : file_(file), input_(static_cast<size_t>(kInput), '\0') {
    if (inflateInit2(&stream_, kWrapped) != Z_OK) Throw("zlib does not start");
  }
  Cursor(const RecordFile* file, const Point& point)
      : file_(file), input_(static_cast<size_t>(kInput), '\0'), raw_(true), begins_(false), trailer_(point.trailer),
        next_(point.file), at_(point.content) {
    if (inflateInit2(&stream_, kRaw) != Z_OK) Throw("zlib does not start");
    if (point.bits > 0) {
      unsigned char byte = 0;
      file_->Read(point.file - 1, 1, &byte);
      inflatePrime(&stream_, point.bits, byte >> (8 - point.bits));
    }
    if (!point.window.empty()) {
      inflateSetDictionary(&stream_, reinterpret_cast<const Bytef*>(point.window.data()),
                           static_cast<uInt>(point.window.size()));
    }
  }
  ~Cursor() { inflateEnd(&stream_); }
  Cursor(const Cursor&) = delete;

  int64_t at() const { return at_; }  // of the content

  // Some bytes, at most `size`, up to the end of a block at most; 0: perhaps at one, or at the end.
  int64_t ReadSome(char* to, int64_t size) {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(size);
    at_block_ = false;
    if (member_over_ && !BeginMember()) return 0;
    if (stream_.avail_in == 0 && !Fill()) Throw<DataError>("cut off: the packed stream does not end");
    if (std::exchange(begins_, false)) trailer_ = *stream_.next_in == kGzipMagic[0] ? kGzipTrailer : kZlibTrailer;
    const int result = inflate(&stream_, Z_BLOCK);
    if (result == Z_STREAM_END) {
      member_over_ = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {  // the latter: it wants more input
      Throw<DataError>("damaged: {}", stream_.msg != nullptr ? stream_.msg : "not a stream of gzip or zlib");
    }
    // zlib: 128 is the end of a header or block, 64 the last block, whose end begins no other.
    at_block_ = result == Z_OK && (stream_.data_type & 128) != 0 && (stream_.data_type & 64) == 0;
    const int64_t got = size - stream_.avail_out;
    at_ += got;
    return got;
  }
  bool IsAtBlock() const { return at_block_; }
  bool IsAtEnd() { return member_over_ && stream_.avail_in == 0 && next_ == file_->size(); }

  Point Here() {
    Point point{.content = at_, .file = next_ - stream_.avail_in, .bits = stream_.data_type & 7, .trailer = trailer_};
    point.window.resize(static_cast<size_t>(kWindow));
    uInt length = 0;
    inflateGetDictionary(&stream_, reinterpret_cast<Bytef*>(point.window.data()), &length);
    point.window.resize(length);
    return point;
  }

 private:
  bool Fill() {
    const int64_t size = std::min(kInput, file_->size() - next_);
    if (size == 0) return false;
    file_->Read(next_, size, input_.data());
    next_ += size;
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(size);
    return true;
  }

  // Streams may be strung together. false: there is no other.
  bool BeginMember() {
    if (raw_) {  // the checksum, which was looked at when the file was scanned, stands before it
      next_ = std::min(file_->size(), next_ - stream_.avail_in + trailer_);
      stream_.avail_in = 0;
    }
    if (stream_.avail_in == 0 && !Fill()) return false;
    raw_ = member_over_ = false;
    begins_ = true;
    inflateReset2(&stream_, kWrapped);
    return true;
  }

  const RecordFile* file_;
  std::string input_;
  bool raw_ = false, begins_ = true, member_over_ = false, at_block_ = false;
  int64_t trailer_ = 0;  // of this stream
  int64_t next_ = 0;     // in the file, behind the input
  int64_t at_ = 0;
  z_stream stream_{};
};

PackedFile::Limits PackedFile::LimitsOf(size_t files) {
  constexpr size_t kWhole = 32;  // files of which all is kept
  constexpr Limits kMost, kLeast{.points = 8, .idle = 1};
  return {.points = std::clamp(kWhole * kMost.points / std::max<size_t>(1, files), kLeast.points, kMost.points),
          .idle = std::clamp(kWhole * kMost.idle / std::max<size_t>(1, files), kLeast.idle, kMost.idle)};
}

PackedFile::PackedFile(const RecordFile* file, const Limits& limits)
    : file_(file), limits_(limits), scan_(std::make_unique<Cursor>(file)), span_(kSpan) {}

PackedFile::~PackedFile() = default;

bool PackedFile::IsLike(std::string_view begin) {
  if (begin.starts_with(kGzipMagic)) return true;
  if (begin.size() < 2) return false;
  // RFC 1950: deflate with a window of 32 KiB, and a check of these two bytes.
  const auto first = static_cast<unsigned char>(begin[0]), second = static_cast<unsigned char>(begin[1]);
  return first == 0x78 && (first * 256 + second) % 31 == 0;
}

void PackedFile::Note() {
  if (!points_.empty() && scan_->at() - points_.back().content < span_) return;
  if (points_.size() == limits_.points) {  // half of them, twice as far apart
    for (size_t i = 1; 2 * i < points_.size(); ++i) points_[i] = std::move(points_[2 * i]);
    points_.resize(limits_.points / 2);
    span_ *= 2;
    return;
  }
  points_.push_back(scan_->Here());
}

int64_t PackedFile::Scan(void* to, int64_t size) {
  std::string skipped;
  if (to == nullptr) skipped.resize(static_cast<size_t>(std::min(size, kSkipped)));
  int64_t done = 0;
  while (done < size && scan_) {
    if (scan_->IsAtEnd()) {
      scan_.reset();
      break;
    }
    const int64_t piece = std::min(size - done, kSkipped);
    done += scan_->ReadSome(to == nullptr ? skipped.data() : static_cast<char*>(to) + done, piece);
    if (scan_->IsAtBlock()) Note();
  }
  return done;
}

void PackedFile::Read(int64_t offset, int64_t size, void* to) const {
  if (size == 0) return;
  const auto behind = std::ranges::upper_bound(points_, offset, {}, &Point::content);
  if (behind == points_.begin()) Throw<DataError>("byte {} of the content has not been scanned", offset);
  const Point& point = *std::prev(behind);
  std::unique_ptr<Cursor> cursor;
  {
    const std::lock_guard lock(mutex_);
    auto nearest = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      const int64_t at = (*it)->at();
      if (at >= point.content && at <= offset && (nearest == idle_.end() || at > (*nearest)->at())) nearest = it;
    }
    if (nearest != idle_.end()) {
      cursor = std::move(*nearest);
      idle_.erase(nearest);
    }
  }
  if (!cursor) cursor = std::make_unique<Cursor>(file_, point);
  std::string skipped(static_cast<size_t>(std::min(offset - cursor->at(), kSkipped)), '\0');
  const int64_t end = offset + size;
  while (cursor->at() < end) {
    if (cursor->IsAtEnd()) Throw<DataError>("cut off since it was opened");
    const int64_t at = cursor->at();
    if (at < offset) {
      cursor->ReadSome(skipped.data(), std::min(offset - at, kSkipped));
    } else {
      cursor->ReadSome(static_cast<char*>(to) + (at - offset), std::min(end - at, kSkipped));
    }
  }
  const std::lock_guard lock(mutex_);
  if (idle_.size() == limits_.idle) idle_.erase(idle_.begin());
  idle_.push_back(std::move(cursor));
}

}  // namespace bindery
