// NDArray lists, little-endian: 0x112, 0, how many arrays, the arrays, how many names, the names.
#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <vector>

#include "base/checked.h"
#include "symbol/model/source.h"
#include "symbol/mxnet/mxnet.h"

namespace bindery {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kListMagic = 0x112;
// What an array begins with: since 0.12, with the shapes of NumPy since 1.6, and since 0.8; before, its number of axes.
constexpr uint32_t kV2 = 0xF993FAC9, kV3 = 0xF993FACA, kV1 = 0xF993FAC8;

DType DTypeOf(int32_t flag) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kUInt8, DType::kInt32,
                              DType::kInt8,    DType::kInt64,   DType::kBool,    DType::kInt16, DType::kUInt16,
                              DType::kUInt32,  DType::kUInt64,  DType::kBFloat16};
  if (flag < 0 || flag >= std::ssize(kTypes)) Throw<ModelError>("element type {} of MXNet has no counterpart", flag);
  return kTypes[flag];
}

class Reader {
 public:
  Reader(std::string_view bytes, int64_t limit) : bytes_(bytes), tensor_bytes_left_(limit) {}

  template <class T>
  T Number() {
    T value;
    std::memcpy(&value, Take(sizeof value).data(), sizeof value);
    return value;
  }
  // A count of things that take at least so many bytes each.
  int64_t Count(int64_t least, const char* what) {
    const auto count = Number<uint64_t>();
    if (count > bytes_.size() / static_cast<size_t>(least)) {
      Throw<ModelError>("it says {} {}, but has {} bytes more", count, what, bytes_.size());
    }
    return static_cast<int64_t>(count);
  }
  std::string Name() { return std::string(Take(static_cast<size_t>(Count(1, "bytes of a name")))); }
  bool AtEnd() const { return bytes_.empty(); }
  HostTensor Array();

 private:
  std::string_view Take(size_t size) {
    if (size > bytes_.size()) Throw<ModelError>("damaged or cut off: {} bytes more expected", size - bytes_.size());
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  template <class T>
  std::vector<int64_t> Extents(int64_t axes) {
    if (axes < 0 || axes > Shape::kMaxRank) {
      Throw<ModelError>("{} axes, at most {} are possible: no file of arrays, or damaged", axes, Shape::kMaxRank);
    }
    std::vector<int64_t> extents;
    for (int64_t i = 0; i < axes; ++i) {
      extents.push_back(static_cast<int64_t>(Number<T>()));
      if (extents.back() < 0) Throw<ModelError>("an array cannot have an extent of {}", extents.back());
    }
    return extents;
  }

  std::string_view bytes_;
  int64_t tensor_bytes_left_;
};

HostTensor Reader::Array() {
  const auto magic = Number<uint32_t>();
  constexpr char kNothing[] = "it has no shape: it was saved before it had a value";
  std::vector<int64_t> extents;
  if (magic == kV2 || magic == kV3) {
    const auto storage = Number<int32_t>();
    if (storage != 0) {
      Throw<ModelError>("it is sparse ({}), and only dense arrays can be read: tostype('default') before saving",
                        storage == 1   ? "row_sparse"
                        : storage == 2 ? "csr"
                                       : "of an unknown kind");
    }
    const auto axes = Number<int32_t>();
    if (magic == kV2 ? axes == 0 : axes == -1) Throw<ModelError>("{}", kNothing);
    extents = Extents<int64_t>(axes);
  } else if (magic == kV1) {
    extents = Extents<int64_t>(Number<int32_t>());
    if (extents.empty()) Throw<ModelError>("{}", kNothing);
  } else {
    extents = Extents<uint32_t>(magic);
    if (extents.empty()) Throw<ModelError>("{}", kNothing);
  }
  Number<int32_t>();  // the device that it was on
  Number<int32_t>();
  const DType dtype = DTypeOf(Number<int32_t>());
  const Shape shape(extents);
  const int64_t size = CheckedMul(shape.Elements(), SizeOf(dtype), "bytes of an array");
  if (size > std::ssize(bytes_)) {
    Throw<ModelError>("damaged or cut off: {} {} takes {} bytes, got {}", dtype, shape, size, bytes_.size());
  }
  if (size > tensor_bytes_left_) Throw<ModelError>("all arrays together take more bytes than the limit");
  tensor_bytes_left_ -= size;
  const std::string_view data = Take(static_cast<size_t>(size));
  HostTensor tensor(dtype, shape);
  if (size > 0) std::memcpy(tensor.raw(), data.data(), data.size());
  if (dtype == DType::kBool) {  // a byte that is neither 0 nor 1 is no bool
    auto* bytes = static_cast<uint8_t*>(tensor.raw());
    std::transform(bytes, bytes + size, bytes, [](uint8_t byte) { return byte != 0; });
  }
  return tensor;
}

MxnetParams Parse(std::string_view bytes, const ModelLimits& limits) {
  Reader reader(bytes, limits.tensor_bytes);
  if (bytes.size() < 16 || reader.Number<uint64_t>() != kListMagic) {
    Throw<ModelError>("not a file of MXNet's arrays");
  }
  reader.Number<uint64_t>();  // reserved
  std::vector<HostTensor> arrays;
  for (int64_t i = 0, count = reader.Count(4, "arrays"); i < count; ++i) {
    try {
      arrays.push_back(reader.Array());
    } catch (const Error& error) {
      Throw<ModelError>("array {}: {}", i, error.message());
    }
  }
  const int64_t names = reader.Count(8, "names");
  if (names != std::ssize(arrays)) {
    Throw<ModelError>("{} names for {} arrays: parameters have names", names, arrays.size());
  }
  MxnetParams params;
  std::set<std::string> seen;
  for (HostTensor& array : arrays) {
    std::string name = reader.Name();
    const bool is_arg = name.starts_with("arg:"), is_aux = name.starts_with("aux:");
    if (is_arg || is_aux) name.erase(0, 4);
    if (name.empty()) Throw<ModelError>("an array's name is empty");
    if (!seen.insert(name).second) Throw<ModelError>("two arrays are called {}", QuotedName(name));
    (is_arg ? params.args : is_aux ? params.aux : params.others).emplace(std::move(name), std::move(array));
  }
  if (!reader.AtEnd()) Throw<ModelError>("bytes follow after the last name");
  return params;
}

}  // namespace

MxnetParams ParseMxnetParams(std::string_view bytes, const std::string& source_name, const ModelLimits& limits) {
  try {
    return Parse(bytes, limits);
  } catch (const std::bad_alloc&) {
    Throw<ModelError>("{}: the arrays do not fit in memory", source_name);
  } catch (const Error& error) {
    Throw<ModelError>("{}: {}", source_name, error.message());
  }
}

}  // namespace bindery
