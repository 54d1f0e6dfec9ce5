// The graph of a symbol.json that nobody has checked, as it is written: nothing is known of operators here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbol/model.h"

namespace bindery::mxnet {

struct JsonEntry {
  int64_t node = 0, output = 0;
};
struct JsonNode {
  std::string op, name;                                         // op "null": a variable
  std::vector<std::pair<std::string, std::string>> attrs = {};  // of "param", "attr" and "attrs"
  std::vector<JsonEntry> inputs = {};
};
struct JsonGraph {
  std::vector<JsonNode> nodes = {};
  std::vector<JsonEntry> heads = {};
  int64_t version = 800;  // of MXNet, 10901 for 1.9.1; files before 0.9 do not say it
};

// Inputs come before the node that reads them, or ModelError. Takes memory of some times the text's size.
JsonGraph ReadJsonGraph(std::string_view text, const std::string& source_name, const ModelLimits& limits);

}  // namespace bindery::mxnet
