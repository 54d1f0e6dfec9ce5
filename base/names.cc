#include "base/names.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace bindery {
namespace {

constexpr size_t kMaxLength = 256;  // a file's names may be of any length; the comparison is quadratic
constexpr size_t kMaxListed = 20;
constexpr size_t kLeastBeginning = 4;  // of a name that may stand for a longer one

// Levenshtein's distance, one row of its table at a time: row[j] = distance of the first i characters of `a` to the
// first j of `b`. One of `enough` or more may be given as `enough`: most pairs of names show that in a few rows.
size_t EditDistance(std::string_view a, std::string_view b, size_t enough) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0], least = i;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substitution, row[j] + 1, row[j - 1] + 1});
      least = std::min(least, row[j]);
    }
    if (least >= enough) return enough;
  }
  return row.back();
}

}  // namespace

std::string NearestName(std::string_view name, std::span<const std::string> candidates) {
  if (name.size() > kMaxLength) return "";
  const size_t limit = std::max<size_t>(2, name.size() / 3);
  const std::string* nearest = nullptr;
  size_t nearest_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size());
    if (longer - std::min(name.size(), candidate.size()) > limit) continue;
    const size_t distance = EditDistance(name, candidate, nearest_distance);
    if (distance < nearest_distance && distance < longer) {
      nearest = &candidate;
      nearest_distance = distance;
    }
  }
  return nearest == nullptr ? "" : *nearest;
}

std::string NameHint(std::string_view name, std::span<const std::string> candidates) {
  std::string nearest = NearestName(name, candidates);
  // What begins with the name is nearer than what has two mistakes: "resnet" is more like "resnet20" than "lenet".
  const auto begins = [&](const std::string& candidate) { return candidate.starts_with(name); };
  const auto longer = std::ranges::find_if(candidates, begins);
  const bool is_near = !nearest.empty() && EditDistance(name, nearest, 2) < 2;
  if (!is_near && name.size() >= kLeastBeginning && longer != candidates.end()) nearest = *longer;
  if (!nearest.empty()) return fmt::format("; did you mean \"{}\"?", nearest);
  if (candidates.empty()) return "; there are none";
  std::string list;
  for (const std::string& candidate : candidates.first(std::min(candidates.size(), kMaxListed))) {
    if (!list.empty()) list += ", ";
    list += candidate;
  }
  if (candidates.size() > kMaxListed) list += fmt::format(" and {} more", candidates.size() - kMaxListed);
  return "; known: " + list;
}

std::string NamesInShort(std::span<const std::string> names) {
  return names.size() == 1 ? names[0] : fmt::format("{} and {} more", names[0], names.size() - 1);
}

}  // namespace bindery
