#include "executor/compile/memory_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/checked.h"

namespace bindery {
namespace {

// Up to so many storages, orders are tried that compare each with all others.
constexpr size_t kMaxCompared = 4096;

struct Item {
  int index;
  int64_t bytes;  // rounded up
  int first, last;
};

bool Overlap(const Item& a, const Item& b) { return a.first <= b.last && b.first <= a.last; }

// Places items in the given order; `offsets` by storage index.
int64_t PlaceInOrder(const std::vector<Item>& order, std::vector<int64_t>* offsets) {
  // Placed items sorted by offset, so that gaps are found in one sweep.
  std::vector<Item> placed;
  placed.reserve(order.size());
  int64_t arena = 0;
  for (const Item& item : order) {
    int64_t best = -1, best_gap = INT64_MAX, cursor = 0;
    for (const Item& other : placed) {
      if (!Overlap(item, other)) continue;
      const int64_t begin = (*offsets)[other.index];
      const int64_t gap = begin - cursor;
      if (gap >= item.bytes && gap < best_gap) {  // the tightest gap keeps large ones whole
        best = cursor;
        best_gap = gap;
      }
      cursor = std::max(cursor, begin + other.bytes);
    }
    if (best < 0) best = cursor;
    (*offsets)[item.index] = best;
    arena = std::max(arena, best + item.bytes);
    const auto position = std::upper_bound(placed.begin(), placed.end(), best,
                                           [&](int64_t offset, const Item& p) { return offset < (*offsets)[p.index]; });
    placed.insert(position, item);
  }
  return arena;
}

// What is free below `top` while storages come and go in time.
class Gaps {
 public:
  // The tightest gap, the lowest of equals; without one, above all.
  int64_t Take(int64_t bytes) {
    const auto found = by_size_.lower_bound({bytes, -1});
    if (found == by_size_.end()) {
      top_ += bytes;
      return top_ - bytes;
    }
    const auto [size, offset] = *found;
    Remove(offset, size);
    if (size > bytes) Insert(offset + bytes, size - bytes);
    return offset;
  }
  void Give(int64_t offset, int64_t bytes) {
    const auto next = by_offset_.find(offset + bytes);
    if (next != by_offset_.end()) {
      const int64_t size = next->second;
      Remove(offset + bytes, size);
      bytes += size;
    }
    if (const auto after = by_offset_.lower_bound(offset); after != by_offset_.begin()) {
      const auto [begin, size] = *std::prev(after);
      if (begin + size == offset) {
        Remove(begin, size);
        offset = begin;
        bytes += size;
      }
    }
    if (offset + bytes == top_) {
      top_ = offset;
    } else {
      Insert(offset, bytes);
    }
  }
  int64_t top() const { return top_; }

 private:
  void Insert(int64_t offset, int64_t size) {
    by_offset_[offset] = size;
    by_size_.emplace(size, offset);
  }
  void Remove(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }
  std::map<int64_t, int64_t> by_offset_;           // size
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (size, offset)
  int64_t top_ = 0;
};

// Places items by first use, or by last use going back in time: where PlaceInOrder would, in n log n.
int64_t PlaceInTime(std::vector<Item> order, bool backwards, std::vector<int64_t>* offsets) {
  if (backwards) {
    for (Item& item : order) item = {item.index, item.bytes, -item.last, -item.first};
  }
  std::ranges::stable_sort(order, {}, &Item::first);
  std::vector<Item> by_end = order;
  std::ranges::stable_sort(by_end, {}, &Item::last);
  Gaps gaps;
  int64_t arena = 0;
  auto ended = by_end.begin();
  for (const Item& item : order) {
    for (; ended->last < item.first; ++ended) gaps.Give((*offsets)[ended->index], ended->bytes);
    (*offsets)[item.index] = gaps.Take(item.bytes);
    arena = std::max(arena, gaps.top());
  }
  return arena;
}

}  // namespace

std::vector<int64_t> LiveBytes(const std::vector<PlanStorage>& storages) {
  int end = 0;
  for (const PlanStorage& s : storages) end = std::max(end, s.last + 1);
  std::vector<int64_t> live(static_cast<size_t>(end) + 1, 0);  // changes at first
  for (const PlanStorage& s : storages) {
    const int64_t bytes = RoundUp(s.bytes, kArenaAlignment);
    live[s.first] += bytes;
    live[s.last + 1] -= bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

int64_t PeakLiveBytes(const std::vector<PlanStorage>& storages) {
  const std::vector<int64_t> live = LiveBytes(storages);
  return live.empty() ? 0 : std::ranges::max(live);
}

int64_t AssignOffsets(std::vector<PlanStorage>* storages, bool reuse) {
  std::vector<Item> items;
  int64_t total = 0;
  for (size_t i = 0; i < storages->size(); ++i) {
    PlanStorage& s = (*storages)[i];
    const int64_t bytes = RoundUp(s.bytes, kArenaAlignment);
    s.offset = bytes > 0 ? total : 0;
    total = CheckedAdd(total, bytes, "arena bytes");
    if (bytes > 0) items.push_back({static_cast<int>(i), bytes, s.first, s.last});
  }
  if (!reuse || items.empty()) return total;

  using Less = bool (*)(const Item&, const Item&);
  static constexpr Less kOrders[] = {
      [](const Item& a, const Item& b) { return a.bytes > b.bytes; },
      [](const Item& a, const Item& b) {
        return static_cast<double>(a.bytes) * (a.last - a.first + 1) >
               static_cast<double>(b.bytes) * (b.last - b.first + 1);
      },
      [](const Item& a, const Item& b) { return a.last - a.first > b.last - b.first; },
  };
  const int64_t bound = PeakLiveBytes(*storages);
  std::vector<int64_t> offsets(storages->size()), best(storages->size());
  int64_t smallest = INT64_MAX;
  const auto keep_best = [&](int64_t arena) {
    if (arena >= smallest) return;
    smallest = arena;
    best = offsets;
  };
  for (const Less less : kOrders) {
    if (smallest == bound || items.size() > kMaxCompared) break;
    std::vector<Item> order = items;
    std::stable_sort(order.begin(), order.end(), less);
    keep_best(PlaceInOrder(order, &offsets));
  }
  for (const bool backwards : {false, true}) {
    if (smallest != bound) keep_best(PlaceInTime(items, backwards, &offsets));
  }
  for (const Item& item : items) (*storages)[item.index].offset = best[item.index];
  return smallest;
}

}  // namespace bindery
