// PayloadPool: payloads of a prepared operation (Engine::Push), used again when the engine has let go of them, so that
// pushing allocates only while more runs are in flight than ever before. They take turns, and begin as copies of a
// first one: what that has room for need not be made in the first use of each. At most `most` are kept: who holds so many
// at a time gets others.
//
// Not thread safe itself; its payloads go to the engine's threads and come back.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace bindery {

template <class T>
class PayloadPool {
 public:
  explicit PayloadPool(T first = {}, size_t most = std::numeric_limits<size_t>::max())
      : first_(std::move(first)), most_(most) {}

  // One that nobody else holds. What its last holder did to it has happened before.
  std::shared_ptr<T> Take() {
    while (payloads_.size() < kAtFirst) payloads_.push_back(std::make_shared<T>(first_));
    for (size_t i = 0; i < payloads_.size(); ++i) {
      const std::shared_ptr<T>& payload = payloads_[next_];
      next_ = (next_ + 1) % payloads_.size();
      // use_count() is a relaxed load and orders nothing. The copy's increment does (it is acquire-release in
      // libstdc++): it follows the decrement, a release, by which the last holder let go.
      if (payload.use_count() == 1) return payload;
    }
    const auto payload = std::make_shared<T>(first_);
    if (payloads_.size() < most_) payloads_.push_back(payload);
    return payload;
  }

 private:
  static constexpr size_t kAtFirst = 3;  // as many steps as are in flight, and the end of one more
  const T first_;
  const size_t most_;
  std::vector<std::shared_ptr<T>> payloads_;
  size_t next_ = 0;
};

}  // namespace bindery
