#include "kvstore/kvstore.h"

#include <fmt/core.h>

#include "base/error.h"

namespace bindery {

const char* ToString(KVStoreType type) { return type == KVStoreType::kLocal ? "local" : "device"; }

KVStoreType ParseKVStoreType(std::string_view text) {
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    if (text == ToString(type)) return type;
  }
  Throw("unknown type of store \"{}\"; choices: local, device", text);
}

std::string ToString(const Key& key) {
  const int64_t* number = std::get_if<int64_t>(&key);
  return number ? fmt::format("{}", *number) : fmt::format("\"{}\"", std::get<std::string>(key));
}

void KVStore::Push(std::span<const Key> keys, std::span<const std::vector<Tensor>> values, int priority) {
  if (keys.size() != values.size()) Throw("{} keys were pushed with {} lists of values", keys.size(), values.size());
  for (size_t i = 0; i < keys.size(); ++i) Push(keys[i], values[i], priority);
}

void KVStore::Pull(std::span<const Key> keys, std::span<const std::vector<Tensor>> out, int priority) {
  if (keys.size() != out.size()) Throw("{} keys were pulled into {} lists of outputs", keys.size(), out.size());
  for (size_t i = 0; i < keys.size(); ++i) Pull(keys[i], out[i], priority);
}

}  // namespace bindery
