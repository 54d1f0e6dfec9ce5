// Operators that something cannot be done with, all in one message: `Foo ("a", "b", "c" and 1 more); Bar ("d")`.
#pragma once

#include <map>
#include <string>

#include "base/error.h"
#include "symbol/model/source.h"

namespace bindery::onnx {

class OperatorList {
 public:
  void Add(const std::string& op, const std::string& node) {
    auto& [nodes, count] = uses_[op];
    if (++count <= kMaxListed) nodes += (nodes.empty() ? "" : ", ") + QuotedName(node);
  }
  bool empty() const { return uses_.empty(); }
  std::string ToString() const {
    std::string list;
    for (const auto& [op, use] : uses_) {
      const std::string more = use.count > kMaxListed ? fmt::format(" and {} more", use.count - kMaxListed) : "";
      list += fmt::format("{}{} ({}{})", list.empty() ? "" : "; ", op, use.nodes, more);
    }
    return list;
  }

 private:
  static constexpr size_t kMaxListed = 3;  // nodes per operator
  struct Use {
    std::string nodes;
    size_t count = 0;
  };
  std::map<std::string, Use> uses_;
};

}  // namespace bindery::onnx
