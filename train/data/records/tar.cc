#include "train/data/records/tar.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "train/data/records/record_file.h"

namespace bindery {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kMostMeta = 1 << 20;  // bytes of a long name or of pax records

std::string_view Text(std::string_view header, size_t at, size_t size) {
  const std::string_view field = header.substr(at, size);
  return field.substr(0, std::min(field.size(), field.find('\0')));
}

// Octal digits with blanks around; GNU writes large ones as big-endian bytes behind a first bit that is set.
std::optional<int64_t> Number(std::string_view field) {
  int64_t value = 0;
  if (static_cast<unsigned char>(field[0]) == 0x80) {
    for (const char c : field.substr(1)) {
      if (value >> 54) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  const size_t begin = std::min(field.size(), field.find_first_not_of(' '));
  const auto [end, error] = std::from_chars(field.data() + begin, field.data() + field.size(), value, 8);
  if (error != std::errc() || value < 0) return std::nullopt;
  const bool over = end == field.data() + field.size() || *end == ' ' || *end == '\0';
  return over ? std::optional(value) : std::nullopt;
}

bool ChecksumFits(std::string_view header) {
  int64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return Number(header.substr(148, 8)) == sum;
}

class Tars : public RecordSource {
 public:
  Tars(const std::vector<std::string>& paths, const TarOptions& options) : options_(options) {
    for (const std::string& path : paths) {
      files_.push_back(std::make_unique<RecordFile>(path, open_));
      key_.clear();
      List(*files_.back());
    }
  }

  int64_t records() const override { return static_cast<int64_t>(entries_.size()); }

  Record Read(int64_t number) const override {
    const Entry& entry = entries_[static_cast<size_t>(number)];
    Record record;
    for (const Part& part : entry.parts) {
      record[part.field].bytes.push_back(entry.file->Read(part.offset, part.bytes));
    }
    return record;
  }

  std::string Name(int64_t number) const override {
    const Entry& entry = entries_[static_cast<size_t>(number)];
    return fmt::format("\"{}\", record \"{}\"", entry.file->path(), entry.key);
  }
  uint64_t Fingerprint() const override { return fingerprint_; }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  struct Part {
    std::string field;
    int64_t offset, bytes;
  };
  struct Entry {
    const RecordFile* file;
    std::string key;
    std::vector<Part> parts;
  };
  // What headers before that of a file say about it.
  struct Ahead {
    std::optional<std::string> name;
    std::optional<int64_t> size;
  };

  [[noreturn]] static void Fail(const RecordFile& file, int64_t at, const std::string& what) {
    Throw<DataError>("\"{}\", byte {}: {}", file.path(), at, what);
  }

  void List(const RecordFile& file) {
    Ahead ahead;
    for (int64_t at = 0; at < file.size();) {
      if (file.size() - at < kBlock) Fail(file, at, "cut off within a header of the archive");
      const std::string header = file.Read(at, kBlock);
      if (header.find_first_not_of('\0') == std::string::npos) return;  // its end
      if (!ChecksumFits(header)) {
        Fail(file, at, at == 0 ? "not a tar archive, or one that is packed" : "a header of the archive is damaged");
      }
      const char type = header[156];
      const bool of_file = type == '0' || type == '\0' || type == '7';
      const std::optional<int64_t> own = Number(std::string_view(header).substr(124, 12));
      const std::optional<int64_t> size = of_file && ahead.size ? ahead.size : own;
      at += kBlock;
      if (!size || *size > file.size() - at) Fail(file, at - kBlock, "cut off, or a header of the archive is damaged");
      if (of_file) {
        Add(file, ahead.name ? *ahead.name : OwnName(header), at, *size);
      } else if (type == 'L' || type == 'x') {
        if (*size > kMostMeta) Fail(file, at, "a name of the archive is too long");
        const std::string text = file.Read(at, *size);
        type == 'L' ? void(ahead.name = Text(text, 0, text.size())) : ReadPax(file, at, text, &ahead);
      }
      if (type != 'L' && type != 'x') ahead = {};
      const int64_t blocks = (*size + kBlock - 1) / kBlock * kBlock;
      if (blocks > file.size() - at) Fail(file, at + *size, "cut off within the last block of a file in it");
      at += blocks;
    }
  }

  static std::string OwnName(std::string_view header) {
    const std::string_view prefix =
        header.substr(257, 6) == std::string_view("ustar\0", 6) ? Text(header, 345, 155) : "";
    return (prefix.empty() ? "" : std::string(prefix) + "/") + std::string(Text(header, 0, 100));
  }

  // Lines "<bytes of the line> <key>=<value>\n".
  static void ReadPax(const RecordFile& file, int64_t at, std::string_view text, Ahead* ahead) {
    while (!text.empty()) {
      size_t bytes = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
      const auto digits = static_cast<size_t>(end - text.data());
      if (error != std::errc() || bytes > text.size() || bytes < digits + 2 || text[digits] != ' ') {
        Fail(file, at, "a header of the archive is damaged");
      }
      const std::string_view line = text.substr(digits + 1, bytes - digits - 2);
      text.remove_prefix(bytes);
      if (line.starts_with("path=")) ahead->name = line.substr(5);
      if (!line.starts_with("size=")) continue;
      int64_t size = -1;
      std::from_chars(line.data() + 5, line.data() + line.size(), size);
      if (size < 0) Fail(file, at, "a header of the archive is damaged");
      ahead->size = size;
    }
  }

  void Add(const RecordFile& file, const std::string& name, int64_t offset, int64_t size) {
    const size_t slash = name.rfind('/'), last = slash == std::string::npos ? 0 : slash + 1;
    const size_t dot = name.find('.', last);
    if (dot == std::string::npos || dot == last) return;  // as WebDataset: neither key nor field
    std::string field = name.substr(dot + 1);
    for (char& c : field) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (const std::string key = name.substr(0, dot); key != key_ || entries_.empty()) {
      key_ = key;
      entries_.push_back({&file, key, {}});
    }
    Entry& entry = entries_.back();
    if (std::ranges::find(entry.parts, field, &Part::field) != entry.parts.end()) {
      Fail(file, offset, fmt::format("\"{}\" is there twice", name));
    }
    entry.parts.push_back({field, offset, size});
    int64_t left = options_.record_bytes;
    for (const Part& part : entry.parts) left -= std::min(left + 1, part.bytes);
    if (left < 0) {
      Fail(file, offset, fmt::format("record \"{}\" has more than {} bytes", entry.key, options_.record_bytes));
    }
    const std::string text = fmt::format("{} {} {}", name, offset, size);
    fingerprint_ = Checksum(text.data(), static_cast<int64_t>(text.size()), fingerprint_);
  }

  const TarOptions options_;
  const std::shared_ptr<OpenFiles> open_ = std::make_shared<OpenFiles>();
  std::vector<std::unique_ptr<RecordFile>> files_;
  std::vector<Entry> entries_;
  std::string key_;
  std::vector<std::string> classes_;
  uint64_t fingerprint_ = 0;
};

}  // namespace

RecordSourcePtr OpenTars(const std::vector<std::string>& paths, const TarOptions& options) {
  return std::make_shared<Tars>(paths, options);
}

}  // namespace bindery
