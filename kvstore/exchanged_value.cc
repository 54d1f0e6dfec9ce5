#include "kvstore/exchanged_value.h"

#include <exception>
#include <span>
#include <utility>

namespace bindery {

ExchangedValue::ExchangedValue(KVStore* store, std::string name, std::vector<Tensor> values, Device home, int priority)
    : store_(store), name_(std::move(name)), values_(std::move(values)), priority_(priority),
      sum_(values_.at(0).engine(), home, values_[0].dtype(), values_[0].shape()) {
  store_->Init(name_, HostTensor(sum_.dtype(), sum_.shape()));
}

void ExchangedValue::Exchange() const {
  try {
    store_->PushPull(name_, values_, std::span(&sum_, 1), priority_);
  } catch (...) {
    sum_.engine()->Push(
        {.name = "exchange of \"" + name_ + "\"",
         .device = sum_.device(),
         .writes = {sum_.var()},
         .run = [error = std::current_exception()](const OpContext&) { std::rethrow_exception(error); }});
  }
}

}  // namespace bindery
