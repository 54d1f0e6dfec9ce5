// PayloadPool: payloads of a prepared operation (Engine::Push), used again when the engine has let go of them, so that
// pushing allocates only while more runs are in flight than ever before.
//
// Not thread safe itself; its payloads go to the engine's threads and come back.
#pragma once

#include <memory>
#include <vector>

namespace bindery {

template <class T>
class PayloadPool {
 public:
  // One that nobody else holds. What its last holder did to it has happened before.
  std::shared_ptr<T> Take() {
    for (const std::shared_ptr<T>& payload : payloads_) {
      // use_count() is a relaxed load and orders nothing. The copy's increment does (it is acquire-release in
      // libstdc++): it follows the decrement, a release, by which the last holder let go.
      if (payload.use_count() == 1) return payload;
    }
    return payloads_.emplace_back(std::make_shared<T>());
  }

 private:
  std::vector<std::shared_ptr<T>> payloads_;
};

}  // namespace bindery
