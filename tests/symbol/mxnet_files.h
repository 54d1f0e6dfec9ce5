// Files as MXNet writes them, for tests.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/host_tensor.h"

namespace bindery {

template <class T>
std::string Bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// An array: 2, 3 and 1 are the versions since 0.12, since 1.6 and since 0.8; 0 is older. `flag`: its element type.
inline std::string MxnetArray(const HostTensor& value, int version = 2, int32_t flag = 0) {
  std::string bytes;
  const auto extents = [&]<class Axis, class E>(Axis axes, E) {
    bytes += Bytes(axes);
    for (const int64_t extent : value.shape()) bytes += Bytes(static_cast<E>(extent));
  };
  if (version == 2 || version == 3) bytes += Bytes(version == 2 ? 0xF993FAC9u : 0xF993FACAu) + Bytes(int32_t{0});
  if (version == 1) bytes += Bytes(0xF993FAC8u);
  if (version == 0) {
    extents(static_cast<uint32_t>(value.shape().rank()), uint32_t{});
  } else {
    extents(int32_t{value.shape().rank()}, int64_t{});
  }
  bytes += Bytes(int32_t{1}) + Bytes(int32_t{0}) + Bytes(flag);
  return bytes + std::string(static_cast<const char*>(value.raw()), static_cast<size_t>(value.bytes()));
}

// A file of arrays that are written already.
inline std::string MxnetFile(const std::vector<std::pair<std::string, std::string>>& arrays) {
  std::string bytes = Bytes(uint64_t{0x112}) + Bytes(uint64_t{0}) + Bytes(uint64_t{arrays.size()}), names;
  for (const auto& [name, array] : arrays) {
    bytes += array;
    names += Bytes(uint64_t{name.size()}) + name;
  }
  return bytes + Bytes(uint64_t{arrays.size()}) + names;
}

// A node, e.g. MxnetNode("Activation", "act", "[0, 0, 0]", "'act_type': 'relu'").
inline std::string MxnetNode(const std::string& op, const std::string& name, const std::string& inputs = "",
                             const std::string& attrs = "", const std::string& key = "attrs") {
  std::string text =
      fmt::format(R"({{"op": "{}", "name": "{}", "{}": {{{}}}, "inputs": [{}]}})", op, name, key, attrs, inputs);
  std::ranges::replace(text, '\'', '"');
  return text;
}
inline std::string MxnetGraph(const std::string& nodes, const std::string& heads, int version = 10901) {
  return fmt::format(
      R"({{"nodes": [{}], "arg_nodes": [0], "node_row_ptr": [0, 1], "heads": [{}],
          "attrs": {{"mxnet_version": ["int", {}]}}}})",
      nodes, heads, version);
}

}  // namespace bindery
