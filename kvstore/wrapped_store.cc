#include "kvstore/wrapped_store.h"

#include "base/error.h"

namespace bindery {

WrappedStore::WrappedStore(std::unique_ptr<KVStore> store) : store_(std::move(store)) {
  if (!store_) Throw("a wrapped store needs one that it wraps");
}

}  // namespace bindery
