// ExchangedValue: tensors of several devices that a store makes one of, step by step: a parameter's gradients, and what
// the store gives back for them, their sum, if it does nothing else.
#pragma once

#include <string>
#include <vector>

#include "engine/tensor.h"
#include "kvstore/kvstore.h"

namespace bindery {

class ExchangedValue {
 public:
  // Initialises `name` in the store, with zeros. `values`: one or more, flat; the sum lies on `home`. The store outlives
  // this. `priority`: of its exchanges. Throws what Init throws.
  ExchangedValue(KVStore* store, std::string name, std::vector<Tensor> values, Device home, int priority = 0);

  // PushPull, of all values, into the sum. Throws nothing: an error of the call fails the sum, as one of the operations
  // that it pushed does, so whoever reads the sum hears of either. The next Exchange makes it whole again.
  void Exchange() const;
  const std::string& name() const { return name_; }
  const Tensor& sum() const { return sum_; }

 private:
  KVStore* store_;
  std::string name_;
  std::vector<Tensor> values_;
  int priority_;
  Tensor sum_;  // has a variable of its own: another value's exchange does not take its error away
};

}  // namespace bindery
