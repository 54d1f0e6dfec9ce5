// RowSums: some rows of a table, given by several sources, each with its number, summed by number. What a gradient that
// is kept by rows (docs/sparse.md) is made of, in memory that the host addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace bindery {

// rows[i] belongs to row numbers[i] of a table; to none if that is negative. Numbers may repeat, in any order.
struct RowsAt {
  const int64_t* numbers = nullptr;
  const void* rows = nullptr;
  int64_t count = 0;
};

// Rows side by side, of either type.
using RowBytes = std::vector<std::byte>;

// Arrays grow to the most rows there were; then nothing is allocated.
class RowSums {
 public:
  RowSums(DType dtype, int64_t width) : dtype_(dtype), width_(width) {}  // float32 or float64, elements of a row

  // In every source what has one number is added up in its order, and these sums in the order of the sources: the bits
  // of a sum of whole tables. By the calling thread's team.
  void Sum(std::span<const RowsAt> sources);

  DType dtype() const { return dtype_; }
  int64_t width() const { return width_; }
  int64_t row_bytes() const { return width_ * SizeOf(dtype_); }
  std::span<const int64_t> numbers() const { return {numbers_.data(), static_cast<size_t>(size_)}; }  // ascending
  int64_t elements() const { return size_ * width_; }
  const void* sums() const { return sums_.data(); }  // a row for each number

  // The rows of these numbers, from a whole table or to it.
  void Take(const void* table, RowBytes* rows) const;
  void Put(const RowBytes& rows, void* table) const;
  void PutSums(void* table) const { Put(sums_, table); }

 private:
  struct Entry {
    int64_t row;
    int32_t source;
    int64_t position;  // in the source
    bool operator<(const Entry& other) const;
  };
  template <class T>
  void SumRows(std::span<const RowsAt> sources, T* sums) const;
  template <class F>
  void ForEachRow(const F& f) const;

  DType dtype_;
  int64_t width_, size_ = 0;
  std::vector<Entry> entries_;
  std::vector<int64_t> begins_;  // of each number, among the entries; then the end
  std::vector<int64_t> numbers_;
  RowBytes sums_;
};

}  // namespace bindery
