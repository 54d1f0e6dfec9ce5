#include "train/data/tables/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/files.h"
#include "train/data/tables/zip.h"

namespace bindery {
namespace {

struct Header {
  DType dtype = DType::kFloat32;
  bool reverse = false;  // the bytes of each element
  bool fortran = false;
  std::vector<int64_t> dims;
};

// As they are written: the order of bytes, then the type.
constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"<f4", DType::kFloat32}, {"<f8", DType::kFloat64}, {"<f2", DType::kFloat16}, {"|V2", DType::kBFloat16},
    {"|i1", DType::kInt8},    {"<i2", DType::kInt16},   {"<i4", DType::kInt32},   {"<i8", DType::kInt64},
    {"|u1", DType::kUInt8},   {"<u2", DType::kUInt16},  {"<u4", DType::kUInt32},  {"<u8", DType::kUInt64},
    {"|b1", DType::kBool}};
static_assert(std::size(kTypes) == kNumDTypes);

std::optional<DType> DTypeOf(std::string_view type) {
  for (const auto& [descr, dtype] : kTypes) {
    if (descr.substr(1) == type) return dtype;
  }
  return std::nullopt;
}

std::string_view DescrOf(DType dtype) {
  for (const auto& [descr, known] : kTypes) {
    if (known == dtype) return descr;
  }
  Throw("invalid dtype {}", static_cast<int>(dtype));
}

// The header's text is a Python literal: a dictionary of three known keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  Header Parse() {
    Header header;
    bool descr = false, order = false, shape = false;
    Expect('{');
    while (!Take('}')) {
      const std::string_view key = String();
      Expect(':');
      if (key == "descr" && !descr) {
        descr = true;
        ParseType(&header);
      } else if (key == "fortran_order" && !order) {
        order = true;
        header.fortran = ParseBool();
      } else if (key == "shape" && !shape) {
        shape = true;
        ParseShape(&header);
      } else {
        Fail();
      }
      if (!Take(',')) {
        Expect('}');
        break;
      }
    }
    SkipBlanks();
    if (!rest_.empty() || !descr || !order || !shape) Fail();
    return header;
  }

 private:
  [[noreturn]] void Fail() const {
    Throw<DataError>("\"{}\": its header is not the one of an array: descr, fortran_order and shape", name_);
  }
  void SkipBlanks() { rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(" \n\t"))); }
  bool Take(char c) {
    SkipBlanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void Expect(char c) {
    if (!Take(c)) Fail();
  }
  std::string_view String() {
    const char quote = Take('\'') ? '\'' : '"';
    if (quote == '"') Expect('"');
    const size_t end = rest_.find(quote);
    if (end == std::string_view::npos) Fail();
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool ParseBool() {
    SkipBlanks();
    const bool value = rest_.starts_with("True");
    if (!value && !rest_.starts_with("False")) Fail();
    rest_.remove_prefix(value ? 4 : 5);
    return value;
  }
  void ParseType(Header* header) {
    SkipBlanks();
    if (rest_.starts_with('[')) Throw<DataError>("\"{}\": an array of records; expected one of numbers", name_);
    const std::string_view descr = String();
    const std::optional<DType> dtype = descr.size() == 3 ? DTypeOf(descr.substr(1)) : std::nullopt;
    if (!dtype || std::string_view("<>|=").find(descr[0]) == std::string_view::npos) {
      Throw<DataError>("\"{}\": elements of type \"{}\"; expected b1, i1 to i8, u1 to u8, f2, f4, f8 or V2 (bfloat16)",
                       name_, descr);
    }
    header->dtype = *dtype;
    header->reverse = descr[0] == (std::endian::native == std::endian::little ? '>' : '<');
  }
  void ParseShape(Header* header) {
    Expect('(');
    while (!Take(')')) {
      SkipBlanks();
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (error != std::errc() || extent < 0) Fail();
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      if (header->dims.size() == static_cast<size_t>(Shape::kMaxRank)) {
        Throw<DataError>("\"{}\": it has more than {} axes", name_, Shape::kMaxRank);
      }
      header->dims.push_back(extent);
      if (!Take(',')) {
        Expect(')');
        break;
      }
    }
  }

  std::string_view rest_;
  const std::string& name_;
};

// Cuts the header off the file.
Header TakeHeader(std::string_view* bytes, const std::string& name) {
  if (!bytes->starts_with("\x93NUMPY") || bytes->size() < 8) Throw<DataError>("\"{}\": not an .npy file", name);
  const int version = (*bytes)[6];
  if (version < 1 || version > 3) Throw<DataError>("\"{}\": version {} of .npy; known are 1 to 3", name, version);
  const size_t digits = version == 1 ? 2 : 4, begin = 8 + digits;
  size_t size = 0;
  for (size_t i = 0; i < digits && 8 + i < bytes->size(); ++i) {
    size |= size_t{static_cast<unsigned char>((*bytes)[8 + i])} << (8 * i);
  }
  if (bytes->size() < begin || bytes->size() - begin < size)
    Throw<DataError>("\"{}\": cut off within its header", name);
  const Header header = HeaderParser(bytes->substr(begin, size), name).Parse();
  bytes->remove_prefix(begin + size);
  return header;
}

// Element i of `to`, in C order, from the Fortran order of `from`.
void FromFortran(const char* from, const Shape& shape, size_t size, char* to) {
  const int rank = shape.rank();
  std::array<int64_t, Shape::kMaxRank> at{}, stride{};
  int64_t next = 1;
  for (int axis = 0; axis < rank; next *= shape[axis++]) stride[static_cast<size_t>(axis)] = next;
  int64_t place = 0;
  for (int64_t i = 0; i < next; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * size, from + static_cast<size_t>(place) * size, size);
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      place += stride[a];
      if (++at[a] < shape[axis]) break;
      place -= stride[a] * shape[axis];
      at[a] = 0;
    }
  }
}

HostTensor Parse(std::string_view bytes, const std::string& name, const NpyLimits& limits) {
  const Header header = TakeHeader(&bytes, name);
  const Shape shape{std::span<const int64_t>(header.dims)};
  const int64_t size = SizeOf(header.dtype);
  int64_t wanted = 0;
  try {
    wanted = CheckedMul(shape.Elements(), size);
  } catch (const ShapeError&) {
    Throw<DataError>("\"{}\": impossible extents {}", name, shape);
  }
  const auto given = static_cast<int64_t>(bytes.size());
  if (wanted != given) {
    Throw<DataError>("\"{}\": {}: {} of {} take {} bytes, but {} follow its header", name,
                     given < wanted ? "cut off" : "too long", shape, header.dtype, wanted, given);
  }
  if (wanted > limits.tensor_bytes) {
    Throw<DataError>("\"{}\": {} of {} take {} bytes, the limit is {}", name, shape, header.dtype, wanted,
                     limits.tensor_bytes);
  }
  HostTensor tensor(header.dtype, shape);
  if (wanted == 0) return tensor;
  char* to = static_cast<char*>(tensor.raw());
  if (header.fortran && shape.rank() > 1) {
    FromFortran(bytes.data(), shape, static_cast<size_t>(size), to);
  } else {
    std::memcpy(to, bytes.data(), static_cast<size_t>(wanted));
  }
  if (header.reverse && size > 1) {
    for (int64_t i = 0; i < wanted; i += size) std::reverse(to + i, to + i + size);
  }
  if (header.dtype == DType::kBool) {
    for (int64_t i = 0; i < wanted; ++i) to[i] = to[i] != 0;
  }
  return tensor;
}

}  // namespace

HostTensor ParseNpy(std::string_view bytes, const std::string& name, const NpyLimits& limits) {
  try {
    return Parse(bytes, name, limits);
  } catch (const DeviceError&) {
    Throw<DataError>("\"{}\": its elements do not fit in memory", name);
  }
}

HostTensor ReadNpy(const std::string& path, const NpyLimits& limits) {
  return ParseNpy(ReadFile(path, limits.file_bytes), path, limits);
}

std::string NpyHeader(const HostTensor& array) {
  static_assert(std::endian::native == std::endian::little, "an array's bytes are those of memory");
  std::string shape;
  for (const int64_t extent : array.shape()) shape += fmt::format("{}, ", extent);
  if (array.shape().rank() > 1) shape.resize(shape.size() - 2);  // but (3,) keeps its comma
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", DescrOf(array.dtype()), shape);
  constexpr size_t kAlignment = 64, kBefore = 10;
  text.append(kAlignment - (kBefore + text.size() + 1) % kAlignment, ' ');
  text += '\n';
  const std::string version{'\1', '\0'}, size{static_cast<char>(text.size()), static_cast<char>(text.size() >> 8)};
  return "\x93NUMPY" + version + size + text;
}

void SaveNpy(const HostTensor& array, const std::string& path) {
  WriteFileAtomically(path, [&](const ByteSink& sink) {
    const std::string header = NpyHeader(array);
    sink(header.data(), std::ssize(header));
    sink(array.raw(), array.bytes());
  });
}

HostTensorMap ParseNpz(std::string_view bytes, const std::string& name, const NpyLimits& limits) {
  HostTensorMap arrays;
  NpyLimits left = limits;
  for (const ZipEntry& entry : ListZip(bytes, name)) {
    const std::string inside = name + ":" + entry.name;
    if (entry.name.ends_with('/')) continue;
    if (!entry.name.ends_with(".npy")) Throw<DataError>("\"{}\": not an .npy file", inside);
    const std::string content = Unzip(bytes, entry, name, left.tensor_bytes + 65536);
    HostTensor array = ParseNpy(content, inside, left);
    left.tensor_bytes -= array.bytes();
    arrays.emplace(entry.name.substr(0, entry.name.size() - 4), std::move(array));
  }
  return arrays;
}

HostTensorMap ReadNpz(const std::string& path, const NpyLimits& limits) {
  return ParseNpz(ReadFile(path, limits.file_bytes), path, limits);
}

}  // namespace bindery
