#include "train/weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/files.h"
#include "base/random_file.h"

namespace bindery {
namespace {

static_assert(std::endian::native == std::endian::little, "a tensor's bytes are those of memory");

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;  // in front of the header
constexpr const char* kMetadata = "__metadata__";

constexpr std::pair<const char*, DType> kTypes[] = {
    {"BOOL", DType::kBool},  {"U8", DType::kUInt8},    {"I8", DType::kInt8},       {"U16", DType::kUInt16},
    {"I16", DType::kInt16},  {"F16", DType::kFloat16}, {"BF16", DType::kBFloat16}, {"U32", DType::kUInt32},
    {"I32", DType::kInt32},  {"F32", DType::kFloat32}, {"U64", DType::kUInt64},    {"I64", DType::kInt64},
    {"F64", DType::kFloat64}};

const char* NameOf(DType dtype) {
  for (const auto& [name, known] : kTypes) {
    if (known == dtype) return name;
  }
  Throw("invalid dtype {}", static_cast<int>(dtype));
}

DType TypeOf(const std::string& name) {
  for (const auto& [known, dtype] : kTypes) {
    if (name == known) return dtype;
  }
  Throw<DataError>("elements of type \"{}\"; known are BOOL, U8 to U64, I8 to I64, F16, BF16, F32, F64", name);
}

struct Entry {
  std::string name;
  std::optional<DType> dtype = {};
  std::vector<int64_t> dims = {}, offsets = {};
  bool has_shape = false, has_offsets = false;
};

// Takes the header's entries as the parser meets them, and nothing else: no tree of a stranger's text is made.
class Handler final : public nlohmann::json_sax<json> {
 public:
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { Unexpected("null"); }
  bool boolean(bool) override { Unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { Unexpected("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_ != In::kShape && in_ != In::kOffsets) Unexpected("a number");
    if (value > static_cast<uint64_t>(INT64_MAX)) Throw<DataError>("{}{} is too large a number", Who(), value);
    std::vector<int64_t>& numbers = in_ == In::kShape ? entries.back().dims : entries.back().offsets;
    const size_t most = in_ == In::kShape ? static_cast<size_t>(Shape::kMaxRank) : 2;
    if (numbers.size() == most) Throw<DataError>("{}more than {} numbers in \"{}\"", Who(), most, key_);
    numbers.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_float(number_float_t, const string_t&) override { Unexpected("a number that is not whole"); }
  bool string(string_t& value) override {
    if (in_ == In::kMetadata) {
      if (!metadata.emplace(key_, std::move(value)).second) Throw<DataError>("metadata \"{}\" are there twice", key_);
    } else if (in_ == In::kTensor && key_ == "dtype" && !entries.back().dtype) {
      try {
        entries.back().dtype = TypeOf(value);
      } catch (const DataError& e) {
        Throw<DataError>("{}{}", Who(), e.message());
      }
    } else {
      Unexpected("a text");
    }
    return true;
  }
  bool binary(binary_t&) override { Unexpected("bytes"); }

  bool start_object(size_t) override {
    if (in_ == In::kFile && !begun_) {
      begun_ = true;
      in_ = In::kHeader;
    } else if (in_ == In::kHeader && key_ == kMetadata) {
      if (std::exchange(has_metadata_, true)) Throw<DataError>("its metadata are there twice");
      in_ = In::kMetadata;
    } else if (in_ == In::kHeader) {
      entries.push_back({.name = key_});
      in_ = In::kTensor;
    } else {
      Unexpected("an object");
    }
    return true;
  }
  bool end_object() override {
    if (in_ == In::kTensor) {
      const Entry& entry = entries.back();
      if (!entry.dtype || !entry.has_shape || entry.offsets.size() != 2) {
        Throw<DataError>("{}it needs \"dtype\", \"shape\" and two \"data_offsets\"", Who());
      }
    }
    in_ = in_ == In::kHeader ? In::kFile : In::kHeader;
    return true;
  }
  bool start_array(size_t) override {
    if (in_ != In::kTensor) Unexpected("a list");
    if (key_ == "shape" && !entries.back().has_shape) {
      entries.back().has_shape = true;
      in_ = In::kShape;
    } else if (key_ == "data_offsets" && !entries.back().has_offsets) {
      entries.back().has_offsets = true;
      in_ = In::kOffsets;
    } else {
      Unexpected("a list");
    }
    return true;
  }
  bool end_array() override {
    in_ = In::kTensor;
    return true;
  }
  bool key(string_t& key) override {
    key_ = std::move(key);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    Throw<DataError>("its header is no JSON, damaged or cut off, at byte {}",
                     kLengthBytes + static_cast<int64_t>(position));
  }

 private:
  enum class In { kFile, kHeader, kMetadata, kTensor, kShape, kOffsets };
  std::string Who() const {
    const bool of_tensor = in_ == In::kTensor || in_ == In::kShape || in_ == In::kOffsets;
    return of_tensor ? fmt::format("tensor \"{}\": ", entries.back().name) : "";
  }
  [[noreturn]] void Unexpected(const char* what) const {
    Throw<DataError>("{}{} where its header has none{}", Who(), what,
                     key_.empty() ? "" : fmt::format(": \"{}\"", key_));
  }

  In in_ = In::kFile;
  bool begun_ = false, has_metadata_ = false;
  std::string key_;
};

// Throws unless the tensors lie one behind the other in `bytes` bytes, whatever their order in the header, and have as
// many bytes as their shapes say. Then they are in the order of their bytes.
void CheckPlaces(std::vector<Entry>* entries, int64_t bytes, int64_t limit) {
  std::ranges::sort(*entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.offsets, a.name) < std::tie(b.offsets, b.name);
  });
  int64_t end = 0;
  for (const Entry& entry : *entries) {
    const int64_t begin = entry.offsets[0], last = entry.offsets[1];
    const auto fail = [&](const std::string& why) { Throw<DataError>("tensor \"{}\": {}", entry.name, why); };
    const Shape shape{std::span<const int64_t>(entry.dims)};
    if (begin > last || last > bytes) {
      fail(fmt::format("bytes {} to {} are not within the {} of all tensors", begin, last, bytes));
    }
    if (begin != end) {
      fail(fmt::format("it begins at byte {}, {} byte {}, where the tensor before it ends", begin,
                       begin < end ? "before" : "behind", end));
    }
    int64_t wanted = 0;
    try {
      wanted = CheckedMul(shape.Elements(), SizeOf(*entry.dtype));
    } catch (const ShapeError&) {
      fail(fmt::format("impossible extents {}", shape));
    }
    if (wanted != last - begin) {
      fail(fmt::format("{} of {} take {} bytes, it has {}", shape, *entry.dtype, wanted, last - begin));
    }
    end = last;
  }
  if (end != bytes) Throw<DataError>("{} bytes follow the last tensor", bytes - end);
  if (end > limit) Throw<DataError>("its tensors have {} bytes, the limit is {}", end, limit);
}

Weights Load(const RandomFile& file, const WeightLimits& limits) {
  if (file.size() < kLengthBytes) Throw<DataError>("no .safetensors file, or cut off: it has {} bytes", file.size());
  uint64_t length = 0;
  file.Read(0, kLengthBytes, &length);
  const int64_t most = std::min(limits.header_bytes, file.size() - kLengthBytes);
  if (length > static_cast<uint64_t>(most)) {
    Throw<DataError>("no .safetensors file, or cut off: its header would have {} bytes, at most {} are possible",
                     length, most);
  }
  const auto header_bytes = static_cast<int64_t>(length);
  Handler handler;
  {
    const std::string header = file.Read(kLengthBytes, header_bytes);
    json::sax_parse(header.begin(), header.end(), &handler);
  }
  const int64_t data = kLengthBytes + header_bytes;
  CheckPlaces(&handler.entries, file.size() - data, limits.tensor_bytes);
  Weights weights{.metadata = std::move(handler.metadata)};
  for (const Entry& entry : handler.entries) {
    const auto [place, is_new] = weights.tensors.try_emplace(entry.name);
    if (!is_new) Throw<DataError>("tensor \"{}\" is there twice", entry.name);
    HostTensor& tensor = place->second = HostTensor(*entry.dtype, Shape{std::span<const int64_t>(entry.dims)});
    if (tensor.bytes() > 0) file.Read(data + entry.offsets[0], tensor.bytes(), tensor.raw());
    if (tensor.dtype() != DType::kBool) continue;
    const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
    if (std::any_of(bytes, bytes + tensor.bytes(), [](unsigned char byte) { return byte > 1; })) {
      Throw<DataError>("tensor \"{}\" has a bool that is neither 0 nor 1", entry.name);
    }
  }
  return weights;
}

}  // namespace

Weights LoadSafetensors(const std::string& path, const WeightLimits& limits) {
  const RandomFile file(path);
  try {
    return Load(file, limits);
  } catch (const DataError& e) {
    if (e.message().find(path) != std::string::npos) throw;  // of the file itself
    Throw<DataError>("\"{}\": {}", path, e.message());
  } catch (const DeviceError&) {  // memory
    Throw<DataError>("\"{}\": its tensors do not fit in memory", path);
  } catch (const std::bad_alloc&) {
    Throw<DataError>("\"{}\": its header does not fit in memory", path);
  }
}

void SaveSafetensors(const Weights& weights, const std::string& path) {
  // Larger elements first, so that all are aligned.
  std::vector<std::pair<const std::string*, const HostTensor*>> order;
  for (const auto& [name, tensor] : weights.tensors) order.emplace_back(&name, &tensor);
  std::ranges::stable_sort(order, std::ranges::greater(), [](const auto& t) { return SizeOf(t.second->dtype()); });
  json header = json::object();
  if (!weights.metadata.empty()) header[kMetadata] = weights.metadata;
  int64_t end = 0;
  for (const auto& [name, tensor] : order) {
    if (*name == kMetadata) Throw<DataError>("cannot write \"{}\": a tensor cannot be called \"{}\"", path, *name);
    const int64_t begin = std::exchange(end, CheckedAdd(end, tensor->bytes()));
    json dims = json::array();
    for (const int64_t extent : tensor->shape()) dims.push_back(extent);
    header[*name] = {{"dtype", NameOf(tensor->dtype())}, {"shape", std::move(dims)}, {"data_offsets", {begin, end}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    Throw<DataError>("cannot write \"{}\": a name or the metadata are not UTF-8", path);
  }
  text.resize(static_cast<size_t>(RoundUp(std::ssize(text), kLengthBytes)), ' ');
  if (std::ssize(text) > WeightLimits().header_bytes) {
    Throw<DataError>("cannot write \"{}\": a header of {} bytes; a .safetensors has at most {}", path, text.size(),
                     WeightLimits().header_bytes);
  }
  WriteFileAtomically(path, [&](const ByteSink& sink) {
    const auto length = static_cast<uint64_t>(text.size());
    sink(&length, kLengthBytes);
    sink(text.data(), std::ssize(text));
    for (const auto& [name, tensor] : order) sink(tensor->raw(), tensor->bytes());
  });
}

}  // namespace bindery
