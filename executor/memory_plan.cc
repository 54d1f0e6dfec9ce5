#include "executor/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace bindery {
namespace {

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

}  // namespace

int64_t PeakLiveBytes(const std::vector<PlanStorage>& storages) {
  int end = 0;
  for (const PlanStorage& s : storages) end = std::max(end, s.last + 1);
  std::vector<int64_t> change(static_cast<size_t>(end) + 1, 0);
  for (const PlanStorage& s : storages) {
    const int64_t bytes = RoundUp(s.bytes, kArenaAlignment);
    change[s.first] += bytes;
    change[s.last + 1] -= bytes;
  }
  int64_t live = 0, peak = 0;
  for (const int64_t delta : change) peak = std::max(peak, live += delta);
  return peak;
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
      [](const Item& a, const Item& b) { return a.first < b.first; },
      [](const Item& a, const Item& b) { return a.last > b.last; },
  };
  const int64_t bound = PeakLiveBytes(*storages);
  std::vector<int64_t> offsets(storages->size()), best(storages->size());
  int64_t smallest = INT64_MAX;
  for (const Less less : kOrders) {
    std::vector<Item> order = items;
    std::stable_sort(order.begin(), order.end(), less);
    const int64_t arena = PlaceInOrder(order, &offsets);
    if (arena < smallest) {
      smallest = arena;
      best = offsets;
    }
    if (smallest == bound) break;
  }
  for (const Item& item : items) (*storages)[item.index].offset = best[item.index];
  return smallest;
}

}  // namespace bindery
