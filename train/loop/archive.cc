#include "train/loop/archive.h"

#include <set>
#include <string_view>

#include "base/error.h"

namespace bindery {
namespace {

std::string Escaped(std::string_view name) {
  std::string escaped;
  for (const char c : name) escaped += c == '/' ? "%2F" : c == '%' ? "%25" : std::string(1, c);
  return escaped;
}

std::string Unescaped(std::string_view name) {
  std::string plain;
  for (size_t i = 0; i < name.size(); ++i) {
    const std::string_view code = name.substr(i, 3);
    const bool escaped = code == "%2F" || code == "%25";
    plain += code == "%2F" ? '/' : name[i];
    if (escaped) i += 2;
  }
  return plain;
}

// visit(name, value) for what begins with the prefix.
template <class T, class Visit>
void ForEachBelow(const std::map<std::string, T>& map, const std::string& prefix, const Visit& visit) {
  for (auto at = map.lower_bound(prefix); at != map.end() && at->first.starts_with(prefix); ++at) {
    visit(at->first.substr(prefix.size()), at->second);
  }
}

}  // namespace

Archive Archive::In(const std::string& place) const { return Archive(to_, from_, prefix_ + Escaped(place) + "/"); }

bool Archive::empty() const {
  bool any = false;
  const auto visit = [&](const std::string&, const auto&) { any = true; };
  const Checkpoint& all = checkpoint();
  for (const HostTensorMap* tensors : {&all.model.params, &all.model.aux, &all.optimizer_state}) {
    ForEachBelow(*tensors, prefix_, visit);
  }
  ForEachBelow(all.iterator, prefix_, visit);
  ForEachBelow(all.numbers, prefix_, visit);
  ForEachBelow(all.info, prefix_, visit);
  return !any;
}

std::vector<std::string> Archive::Places() const {
  std::set<std::string> places;
  const auto visit = [&](const std::string& name, const auto&) {
    const size_t end = name.find('/');
    if (end != std::string::npos) places.insert(Unescaped(name.substr(0, end)));
  };
  const Checkpoint& all = checkpoint();
  ForEachBelow(all.iterator, prefix_, visit);
  ForEachBelow(all.numbers, prefix_, visit);
  ForEachBelow(all.info, prefix_, visit);
  return {places.begin(), places.end()};
}

template <class T>
void Archive::One(std::map<std::string, T> Checkpoint::*map, const std::string& name, T* value) {
  const std::string whole = prefix_ + name;
  if (to_) {
    (to_->*map)[whole] = *value;
    return;
  }
  const auto found = (from_->*map).find(whole);
  if (found == (from_->*map).end()) Throw<CheckpointError>("the checkpoint has no \"{}\"", whole);
  *value = found->second;
}

void Archive::Count(const std::string& name, int64_t* value, int64_t low, int64_t high) {
  int64_t kept = *value;
  One(&Checkpoint::iterator, name, &kept);
  if (reading() && (kept < low || kept > high)) {
    Throw<CheckpointError>("the checkpoint's \"{}\": expected {} to {}, got {}", prefix_ + name, low, high, kept);
  }
  *value = kept;
}

void Archive::Number(const std::string& name, double* value) { One(&Checkpoint::numbers, name, value); }
void Archive::Text(const std::string& name, std::string* value) { One(&Checkpoint::info, name, value); }

template <class T>
void Archive::All(std::map<std::string, T>* kept, const std::map<std::string, T>* given,
                  std::map<std::string, T>* values) {
  if (kept) {
    for (const auto& [name, value] : *values) (*kept)[prefix_ + name] = value;
    return;
  }
  values->clear();
  ForEachBelow(*given, prefix_, [&](const std::string& name, const T& value) { values->emplace(name, value); });
}

void Archive::Counts(std::map<std::string, int64_t>* values) {
  All(to_ ? &to_->iterator : nullptr, from_ ? &from_->iterator : nullptr, values);
}

void Archive::Numbers(std::map<std::string, double>* values) {
  All(to_ ? &to_->numbers : nullptr, from_ ? &from_->numbers : nullptr, values);
}

void Archive::Texts(std::map<std::string, std::string>* values) {
  All(to_ ? &to_->info : nullptr, from_ ? &from_->info : nullptr, values);
}

void Archive::Tensors(Tensor kind, HostTensorMap* values) {
  const auto part = [kind](auto* checkpoint) {
    return kind == Tensor::kParameter   ? &checkpoint->model.params
           : kind == Tensor::kAuxiliary ? &checkpoint->model.aux
                                        : &checkpoint->optimizer_state;
  };
  All(to_ ? part(to_) : nullptr, from_ ? part(from_) : nullptr, values);
}

}  // namespace bindery
