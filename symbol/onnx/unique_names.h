// Names of which each is given once: "x", then "x_2", "x_3".
#pragma once

#include <fmt/format.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

namespace bindery::onnx {

class UniqueNames {
 public:
  std::string Next(const std::string& name) {
    std::string unique = name;
    for (int& last = last_[name]; !used_.insert(unique).second;) {
      last = last == 0 ? 2 : last + 1;
      unique = fmt::format("{}_{}", name, last);
    }
    return unique;
  }

 private:
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, int> last_;  // numbers, of names that were asked for again
};

}  // namespace bindery::onnx
