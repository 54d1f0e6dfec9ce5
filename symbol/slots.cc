#include "symbol/slots.h"

#include <algorithm>

#include "base/error.h"

namespace bindery {

Slot Optional(const char* name, AttrTest present) {
  Slot slot(name);
  slot.present = std::move(present);
  return slot;
}

Slot Auxiliary(const char* name) {
  Slot slot(name);
  slot.is_auxiliary = true;
  return slot;
}

Slot Variadic(const char* stem, std::function<int64_t(const AnyAttrs&)> count) {
  Slot slot(stem);
  slot.is_many = true;
  slot.count = std::move(count);
  return slot;
}

Slot Hidden(Slot output, AttrTest when) {
  output.hidden = std::move(when);
  return output;
}

Slots::Slots(std::vector<Slot> slots) : slots_(std::move(slots)) {
  for (const Slot& slot : slots_) {
    Check(!slot.is_many || slots_.size() == 1, "many inputs or outputs are the only ones");
    has_optional_ = has_optional_ || slot.present;
    has_auxiliary_ = has_auxiliary_ || slot.is_auxiliary;
    may_hide_ = may_hide_ || slot.hidden;
  }
}

std::vector<std::string> Slots::Names(const AnyAttrs& attrs, int given) const {
  std::vector<std::string> names;
  names.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    if (slot.is_many) {
      for (int i = 0; i < Count(attrs, given); ++i) names.push_back(slot.name + std::to_string(i));
    } else if (IsPresent(slot, attrs)) {
      names.push_back(slot.name);
    }
  }
  return names;
}

int Slots::Count(const AnyAttrs& attrs, int given) const {
  if (!slots_.empty() && slots_[0].is_many) {
    return slots_[0].count ? static_cast<int>(slots_[0].count(attrs)) : std::max(given, 1);
  }
  if (!has_optional_) return static_cast<int>(slots_.size());
  return static_cast<int>(std::ranges::count_if(slots_, [&](const Slot& slot) { return IsPresent(slot, attrs); }));
}

int Slots::Visible(const AnyAttrs& attrs) const {
  int visible = 0;
  if (!may_hide_) return Count(attrs);
  for (const Slot& slot : slots_) {
    if (slot.hidden && slot.hidden(attrs)) break;
    visible += IsPresent(slot, attrs);
  }
  return visible;
}

int Slots::Place(const AnyAttrs& attrs, int slot) const {
  if (!has_optional_) return slot;
  Check(slot < static_cast<int>(slots_.size()), "a rule asks for what its operator declares");
  if (!IsPresent(slots_[slot], attrs)) return -1;
  return static_cast<int>(
      std::count_if(slots_.begin(), slots_.begin() + slot, [&](const Slot& s) { return IsPresent(s, attrs); }));
}

bool Slots::IsAuxiliary(const std::string& name) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) { return slot.is_auxiliary && slot.name == name; });
}

}  // namespace bindery
