// Processes: sums, and values of which each process has ranges of its own.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/files.h"
#include "engine/kernels/flat.h"
#include "kvstore/processes.h"

namespace bindery {
namespace {

struct Sizes {
  int64_t bytes = 0;
  uint64_t things = 0;
  bool operator==(const Sizes&) const = default;
};
template <class Value>
Sizes SizesOf(std::span<const Value> values) {
  Sizes sizes;
  std::vector<int64_t> things;
  for (const Value& value : values) {
    things.insert(things.end(), {static_cast<int64_t>(value.dtype), value.elements});
    sizes.bytes = CheckedAdd(sizes.bytes, CheckedMul(value.elements, SizeOf(value.dtype)));
  }
  sizes.things = Checksum(things.data(), std::ssize(things) * static_cast<int64_t>(sizeof(int64_t)));
  return sizes;
}

template <class Value>
void CheckSummed(const char* call, std::span<const Value> values, std::span<const double> weights, int size) {
  for (const Value& value : values) {
    if (value.dtype == DType::kFloat32 || value.dtype == DType::kFloat64) continue;
    Throw("{}: float32 and float64 are summed over processes, not {}", call, value.dtype);
  }
  Check(weights.empty() || std::ssize(weights) == size, "a weight for each process");
}

template <class T>
void SumWeighed(std::span<const void* const> parts, T* sum, int64_t elements, std::span<const double> weights) {
  for (size_t process = 0; process < parts.size(); ++process) {
    const T* const part = static_cast<const T*>(parts[process]);
    const T weight = static_cast<T>(weights[process]);
    if (process == 0) {
      for (int64_t i = 0; i < elements; ++i) sum[i] = weight * part[i];
    } else {
      for (int64_t i = 0; i < elements; ++i) sum[i] += weight * part[i];
    }
  }
}

char* Room(std::vector<char>* buffer, int64_t bytes) {
  if (std::ssize(*buffer) < bytes) buffer->resize(static_cast<size_t>(bytes));
  return buffer->data();
}

}  // namespace

template <class Visit>
void Processes::ForEachPiece(DType dtype, int64_t elements, const Visit& visit) const {
  constexpr int64_t kBorder = 16;  // elements, so that no two processes' kernels work on one cache line
  const int64_t most = std::max(kMostBytes / SizeOf(dtype) / size_ / kBorder * kBorder, int64_t{1});
  for (int64_t begin = 0; begin < elements; begin += most * size_) {
    Piece piece{.begin = begin, .elements = std::min(most * size_, elements - begin)};
    piece.part = std::min(most, RoundUp(CeilDiv(piece.elements, int64_t{size_}), kBorder));
    piece.own_begin = std::min(piece.part * rank_, piece.elements);
    piece.own_end = std::min(piece.own_begin + piece.part, piece.elements);
    visit(piece);
  }
}

// Where the parts are equal, they go from where they are to where they belong.
void Processes::SumPiece(DType dtype, const Piece& piece, const char* from, char* sum,
                         std::span<const double> weights) {
  const int64_t part = piece.part * SizeOf(dtype), bytes = piece.elements * SizeOf(dtype);
  if (bytes < part * size_) {
    char* const padded = Room(&sums_, part * size_);
    std::memcpy(padded, from, static_cast<size_t>(bytes));
    std::memset(padded + bytes, 0, static_cast<size_t>(part * size_ - bytes));
    from = padded;
  }
  char* const parts = Room(&buffer_, part * size_);
  DoAllToAll(from, parts, part);
  std::vector<const void*> of_processes;
  for (int64_t process = 0; process < size_; ++process) of_processes.push_back(parts + process * part);
  const int64_t elements = piece.own_end - piece.own_begin;
  if (weights.empty()) {
    flat::Sum(dtype, of_processes, sum, elements);
  } else if (dtype == DType::kFloat32) {
    SumWeighed(of_processes, reinterpret_cast<float*>(sum), elements, weights);
  } else {
    SumWeighed(of_processes, reinterpret_cast<double*>(sum), elements, weights);
  }
}

void Processes::GatherPiece(DType dtype, const Piece& piece, const char* own, char* to) {
  const int64_t part = piece.part * SizeOf(dtype), bytes = piece.elements * SizeOf(dtype);
  const int64_t mine = (piece.own_end - piece.own_begin) * SizeOf(dtype);
  if (mine < part && own != sums_.data()) {
    char* const padded = Room(&sums_, part);
    if (mine > 0) std::memcpy(padded, own, static_cast<size_t>(mine));
    own = padded;
  }
  if (to && bytes == part * size_) return DoAllGather(own, to, part);
  char* const all = Room(&buffer_, part * size_);
  DoAllGather(own, all, part);
  if (to) std::memcpy(to, all, static_cast<size_t>(bytes));
}

void Processes::GatherRanges(const Shared& value) {
  const int64_t width = SizeOf(value.dtype);
  const auto* own = static_cast<const char*>(value.own);
  ForEachPiece(value.dtype, value.elements, [&](const Piece& piece) {
    GatherPiece(value.dtype, piece, own, value.whole ? static_cast<char*>(value.whole) + piece.begin * width : nullptr);
    own += (piece.own_end - piece.own_begin) * width;
  });
}

void Processes::AllReduceSum(std::span<const Values> values, std::span<const double> weights) {
  CheckSummed(NameOf(Call::kSum), values, weights, size_);
  const std::lock_guard lock(mutex_);
  Guarded([&] {
    const auto [bytes, things] = SizesOf(values);
    Meet(Call::kSum, bytes, things);
    for (const Values& value : values) {
      ForEachPiece(value.dtype, value.elements, [&](const Piece& piece) {
        char* const at = static_cast<char*>(value.data) + piece.begin * SizeOf(value.dtype);
        char* const sum = Room(&sums_, piece.part * size_ * SizeOf(value.dtype));
        SumPiece(value.dtype, piece, at, sum, weights);
        GatherPiece(value.dtype, piece, sum, at);
      });
    }
  });
}

std::vector<Processes::Range> Processes::OwnRanges(DType dtype, int64_t elements) const {
  std::vector<Range> ranges;
  ForEachPiece(dtype, elements, [&](const Piece& piece) {
    if (piece.own_begin < piece.own_end) {
      ranges.push_back({piece.begin + piece.own_begin, piece.begin + piece.own_end});
    }
  });
  return ranges;
}

void Processes::ReduceScatterSum(std::span<const Shared> values, std::span<const double> weights) {
  CheckSummed(NameOf(Call::kScatter), values, weights, size_);
  const std::lock_guard lock(mutex_);
  if (size_ == 1) {
    for (const Shared& value : values) flat::Copy(value.whole, value.own, value.elements * SizeOf(value.dtype));
  }
  Guarded([&] {
    const auto [bytes, things] = SizesOf(values);
    Meet(Call::kScatter, bytes, things);
    for (const Shared& value : values) {
      auto* own = static_cast<char*>(value.own);
      ForEachPiece(value.dtype, value.elements, [&](const Piece& piece) {
        const auto* from = static_cast<const char*>(value.whole) + piece.begin * SizeOf(value.dtype);
        SumPiece(value.dtype, piece, from, own, weights);
        own += (piece.own_end - piece.own_begin) * SizeOf(value.dtype);
      });
    }
  });
}

void Processes::AllGatherRanges(std::span<const Shared> values) {
  const std::lock_guard lock(mutex_);
  if (size_ == 1) {
    for (const Shared& value : values) flat::Copy(value.own, value.whole, value.elements * SizeOf(value.dtype));
  }
  Guarded([&] {
    const auto [bytes, things] = SizesOf(values);
    Meet(Call::kRanges, bytes, things);
    for (const Shared& value : values) GatherRanges(value);
  });
}

int64_t Processes::Offer(Offered offered) {
  const std::lock_guard lock(offers_mutex_);
  offers_[++last_offer_] = std::move(offered);
  return last_offer_;
}

void Processes::Withdraw(int64_t offer) {
  const std::lock_guard lock(offers_mutex_);
  offers_.erase(offer);
}

std::optional<Processes::Given> Processes::Offering(int64_t offer) {
  const std::lock_guard lock(offers_mutex_);
  const auto found = offers_.find(offer);
  return found == offers_.end() ? std::nullopt : std::optional(found->second());
}

void Processes::Ask(int64_t offer, std::span<void* const> wholes) {
  const std::lock_guard lock(mutex_);
  if (size_ == 1) {
    const std::optional<Given> given = Offering(offer);
    Check(given.has_value(), "what is asked for has been offered");
    for (size_t i = 0; i < given->values.size(); ++i) {
      const Shared& value = given->values[i];
      flat::Copy(value.own, wholes[i], value.elements * SizeOf(value.dtype));
    }
  }
  asked_ = wholes;
  Guarded([&] { Meet(Call::kAsk, 0, static_cast<uint64_t>(offer)); });
}

// All give their ranges; `wholes`: none for those who have not asked.
void Processes::Give(int64_t offer, std::span<void* const> wholes) {
  std::optional<Given> own = Offering(offer);
  std::vector<Shared> values = own ? std::move(own->values) : std::vector<Shared>();
  const auto [bytes, things] = SizesOf(std::span<const Shared>(values));
  const Sizes mine{own ? bytes : -1, things};
  std::vector<Sizes> all(static_cast<size_t>(size_));
  DoAllGather(&mine, all.data(), sizeof(Sizes));
  for (const Sizes& other : all) {
    if (other == all[0]) continue;
    parted_ = true;  // all of them see it
    Throw("one asks for values of all processes, but processes 0 and {} do not have the same", &other - all.data());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].whole = wholes.empty() ? nullptr : wholes[i];
    GatherRanges(values[i]);
  }
}

}  // namespace bindery
