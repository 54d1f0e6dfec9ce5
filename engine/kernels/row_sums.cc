#include "engine/kernels/row_sums.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "engine/team.h"

namespace bindery {
namespace {

template <class V>
void GrowTo(int64_t size, V* v) {
  if (std::ssize(*v) < size) v->resize(static_cast<size_t>(size));
}

}  // namespace

bool RowSums::Entry::operator<(const Entry& other) const {
  return std::tie(row, source, position) < std::tie(other.row, other.source, other.position);
}

template <class F>
void RowSums::ForEachRow(const F& f) const {
  ParallelFor(size_, 1, kSerialElements / std::max<int64_t>(width_, 1), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) f(r);
  });
}

void RowSums::Sum(std::span<const RowsAt> sources) {
  int64_t most = 0, count = 0;
  for (const RowsAt& source : sources) most += source.count;
  GrowTo(most, &entries_);
  GrowTo(most, &numbers_);
  GrowTo(most + 1, &begins_);
  for (size_t s = 0; s < sources.size(); ++s) {
    for (int64_t i = 0; i < sources[s].count; ++i) {
      const int64_t row = sources[s].numbers[i];
      if (row >= 0) entries_[static_cast<size_t>(count++)] = {row, static_cast<int32_t>(s), i};
    }
  }
  std::sort(entries_.begin(), entries_.begin() + count);  // no two are equal: there is one order
  size_ = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = entries_[static_cast<size_t>(i)].row;
    if (size_ > 0 && numbers_[static_cast<size_t>(size_ - 1)] == row) continue;
    numbers_[static_cast<size_t>(size_)] = row;
    begins_[static_cast<size_t>(size_++)] = i;
  }
  begins_[static_cast<size_t>(size_)] = count;
  GrowTo(size_ * row_bytes(), &sums_);
  if (dtype_ == DType::kFloat32) {
    SumRows(sources, reinterpret_cast<float*>(sums_.data()));
  } else {
    SumRows(sources, reinterpret_cast<double*>(sums_.data()));
  }
}

template <class T>
void RowSums::SumRows(std::span<const RowsAt> sources, T* sums) const {
  constexpr int64_t kColumns = 256;  // two sums of so many stay in the first cache
  ForEachRow([&](int64_t r) {
    const Entry* const first = entries_.data() + begins_[static_cast<size_t>(r)];
    const Entry* const last = entries_.data() + begins_[static_cast<size_t>(r) + 1];
    for (int64_t column = 0; column < width_; column += kColumns) {
      const int64_t n = std::min(kColumns, width_ - column);
      T* const sum = sums + r * width_ + column;
      T others[kColumns];
      for (const Entry* entry = first; entry != last;) {  // source by source
        const int32_t source = entry->source;
        T* const own = entry == first ? sum : others;
        std::fill_n(own, n, T{0});
        for (; entry != last && entry->source == source; ++entry) {
          const T* const row =
              static_cast<const T*>(sources[static_cast<size_t>(source)].rows) + entry->position * width_ + column;
          for (int64_t i = 0; i < n; ++i) own[i] += row[i];
        }
        for (int64_t i = 0; own != sum && i < n; ++i) sum[i] += own[i];
      }
    }
  });
}

void RowSums::Take(const void* table, RowBytes* rows) const {
  const auto size = static_cast<size_t>(row_bytes());
  if (size == 0) return;  // there may be no memory, then
  GrowTo(size_ * row_bytes(), rows);
  ForEachRow([&](int64_t r) {
    std::memcpy(rows->data() + r * row_bytes(),
                static_cast<const std::byte*>(table) + numbers_[static_cast<size_t>(r)] * row_bytes(), size);
  });
}

void RowSums::Put(const RowBytes& rows, void* table) const {
  const auto size = static_cast<size_t>(row_bytes());
  if (size == 0) return;
  ForEachRow([&](int64_t r) {
    std::memcpy(static_cast<std::byte*>(table) + numbers_[static_cast<size_t>(r)] * row_bytes(),
                rows.data() + r * row_bytes(), size);
  });
}

}  // namespace bindery
