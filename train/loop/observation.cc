#include "train/loop/observation.h"

#include <utility>

namespace bindery {

void Observation::Report(const std::string& place, const NamedValues& values, double weight) {
  for (const auto& [name, value] : values) Report(place + "/" + name, value, weight);
}

const std::map<std::string, Observation::Value>& Observation::values() const {
  if (maker_) {
    auto& self = const_cast<Observation&>(*this);  // what it holds is the same before and after
    std::exchange(self.maker_, {})(&self);
  }
  return values_;
}

const Observation::Value* Observation::Find(const std::string& name) const {
  const auto found = values().find(name);
  return found == values_.end() ? nullptr : &found->second;
}

void RunningMean::Add(const Observation::Value& value) {
  any_ = true;
  if (value.weight > 0) {
    if (weight_ == 0) sum_ = 0;
    sum_ += value.value * value.weight;
    weight_ += value.weight;
  } else {
    sum_ = value.value;
    weight_ = 0;
  }
}

void RunningMean::Serialize(Archive* archive) {
  archive->Number("sum", &sum_);
  archive->Number("weight", &weight_);
  any_ = true;  // only those with a value are kept
}

void RunningMeans::Add(const Observation& observation) {
  for (const auto& [name, value] : observation.values()) means_[name].Add(value);
}

std::map<std::string, double> RunningMeans::Take() {
  std::map<std::string, double> taken;
  for (const auto& [name, mean] : std::exchange(means_, {})) taken[name] = mean.value();
  return taken;
}

void RunningMeans::Serialize(Archive* archive) {
  if (archive->reading()) {
    means_.clear();
    for (const std::string& name : archive->Places()) means_[name];
  }
  for (auto& [name, mean] : means_) {
    Archive place = archive->In(name);
    mean.Serialize(&place);
  }
}

}  // namespace bindery
