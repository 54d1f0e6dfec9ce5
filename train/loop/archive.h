// Archive: a place in a checkpoint, which the same lines write and read:
//
//   void Counter::Serialize(Archive* archive) {
//     archive->Count("count", &count_);
//     Archive place = archive->In("rule");       // names in it are "rule/..."
//     rule_.Serialize(&place);
//   }
//
// Reading takes what is there and throws CheckpointError for what is not, by its whole name. Names of places may hold
// "/" themselves: it is written "%2F", and "%" "%25".
//
// Thread safety: none; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "train/checkpoint/checkpoint.h"

namespace bindery {

class Archive {
 public:
  static Archive To(Checkpoint* checkpoint) { return Archive(checkpoint, nullptr, ""); }
  static Archive From(const Checkpoint& checkpoint) { return Archive(nullptr, &checkpoint, ""); }

  bool reading() const { return from_ != nullptr; }
  Archive In(const std::string& place) const;
  bool empty() const;                       // nothing was written here
  std::vector<std::string> Places() const;  // those that something but tensors was written in, sorted

  // Reading: throws CheckpointError for one that is not in [low, high].
  void Count(const std::string& name, int64_t* value, int64_t low = INT64_MIN, int64_t high = INT64_MAX);
  void Number(const std::string& name, double* value);
  void Text(const std::string& name, std::string* value);
  // All of this place and below; reading: in place of what is there.
  void Counts(std::map<std::string, int64_t>* values);
  void Numbers(std::map<std::string, double>* values);
  void Texts(std::map<std::string, std::string>* values);
  enum class Tensor { kParameter, kAuxiliary, kOptimizer };
  void Tensors(Tensor kind, HostTensorMap* values);

 private:
  Archive(Checkpoint* to, const Checkpoint* from, std::string prefix)
      : to_(to), from_(from), prefix_(std::move(prefix)) {}
  const Checkpoint& checkpoint() const { return from_ ? *from_ : *to_; }
  template <class T>
  void One(std::map<std::string, T> Checkpoint::*map, const std::string& name, T* value);
  template <class T>
  void All(std::map<std::string, T>* kept, const std::map<std::string, T>* given, std::map<std::string, T>* values);

  Checkpoint* to_;
  const Checkpoint* from_;
  std::string prefix_;
};

}  // namespace bindery
