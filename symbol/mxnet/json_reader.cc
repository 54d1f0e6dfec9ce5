#include "symbol/mxnet/json_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "symbol/model/source.h"

namespace bindery::mxnet {
namespace {

using nlohmann::json;

// Which list or object of the file the parser is in.
enum class In { kFile, kGraph, kNodes, kNode, kAttrs, kInputs, kEntry, kHeads, kHead, kGraphAttrs, kVersion, kOther };

// Takes what the parser meets, so that no tree of the whole file is made. What it does not know is passed over.
class Handler final : public nlohmann::json_sax<json> {
 public:
  Handler(const ModelLimits& limits, JsonGraph* graph) : limits_(limits), graph_(graph) {}
  bool has_nodes() const { return has_nodes_; }
  bool has_heads() const { return has_heads_; }

  bool null() override { return Skip(); }
  bool boolean(bool value) override { return Text(value ? "True" : "False"); }
  bool number_integer(number_integer_t value) override { return Number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) Throw<ModelError>("{} is too large a number", value);
    return Number(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t& text) override { return Text(text); }
  bool string(string_t& value) override { return Text(value); }
  bool binary(binary_t&) override { return Skip(); }

  bool start_object(size_t) override {
    switch (Where()) {
      case In::kFile: return Enter(In::kGraph);
      case In::kGraph: return Enter(key_ == "attrs" ? In::kGraphAttrs : In::kOther);
      case In::kNodes:
        if (std::ssize(graph_->nodes) >= limits_.nodes) Throw<ModelError>("more than {} nodes", limits_.nodes);
        graph_->nodes.emplace_back();
        has_op_ = has_name_ = false;
        return Enter(In::kNode);
      case In::kNode: return Enter(key_ == "attrs" || key_ == "attr" || key_ == "param" ? In::kAttrs : In::kOther);
      default: return Enter(In::kOther);
    }
  }
  bool start_array(size_t) override {
    switch (Where()) {
      case In::kGraph:
        has_nodes_ |= key_ == "nodes";
        has_heads_ |= key_ == "heads";
        return Enter(key_ == "nodes" ? In::kNodes : key_ == "heads" ? In::kHeads : In::kOther);
      case In::kNode: return Enter(key_ == "inputs" ? In::kInputs : In::kOther);
      case In::kInputs: Node().inputs.emplace_back(); return EnterEntry(In::kEntry);
      case In::kHeads: graph_->heads.emplace_back(); return EnterEntry(In::kHead);
      case In::kGraphAttrs: return Enter(key_ == "mxnet_version" ? In::kVersion : In::kOther);
      default: return Enter(In::kOther);
    }
  }
  bool end_object() override {
    if (Where() == In::kNode && (!has_op_ || !has_name_)) {
      Throw<ModelError>("node {} has no \"{}\"", graph_->nodes.size() - 1, has_op_ ? "name" : "op");
    }
    return Leave();
  }
  bool end_array() override {
    if ((Where() == In::kEntry || Where() == In::kHead) && place_ < 2) {
      Throw<ModelError>("node {}: an entry needs the numbers of a node and of an output", graph_->nodes.size());
    }
    return Leave();
  }
  bool key(string_t& key) override {
    key_ = std::move(key);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    Throw<ModelError>("no JSON, damaged or cut off, at byte {}", position);
  }

 private:
  In Where() const { return path_.empty() ? In::kFile : path_.back(); }
  JsonNode& Node() { return graph_->nodes.back(); }
  bool Enter(In where) {
    if (std::ssize(path_) >= limits_.recursion) Throw<ModelError>("more than {} levels", limits_.recursion);
    path_.push_back(where);
    return true;
  }
  bool EnterEntry(In where) {
    place_ = 0;
    return Enter(where);
  }
  bool Leave() {
    path_.pop_back();
    return true;
  }
  bool Skip() {
    if (path_.empty() || Where() == In::kNodes) Throw<ModelError>("not a graph of MXNet");
    return true;
  }

  bool Number(int64_t value) {
    JsonEntry* entry = Where() == In::kEntry  ? &Node().inputs.back()
                       : Where() == In::kHead ? &graph_->heads.back()
                                              : nullptr;
    if (entry != nullptr) {  // the node, its output, and a version that nothing depends on
      if (place_ < 2) (place_ == 0 ? entry->node : entry->output) = value;
      ++place_;
      return true;
    }
    if (Where() == In::kVersion) graph_->version = value;
    return Where() == In::kAttrs ? Text(std::to_string(value)) : Skip();
  }
  bool Text(const std::string& value) {
    if (Where() == In::kAttrs) {
      Node().attrs.emplace_back(key_, value);
    } else if (Where() == In::kNode && key_ == "op") {
      Node().op = value;
      has_op_ = true;
    } else if (Where() == In::kNode && key_ == "name") {
      CheckName(value);
      Node().name = value;
      has_name_ = true;
    } else if (Where() == In::kEntry || Where() == In::kHead) {
      Throw<ModelError>("node {}: an entry is of whole numbers, got {}", graph_->nodes.size(), QuotedName(value));
    }
    return Skip();
  }

  const ModelLimits& limits_;
  JsonGraph* const graph_;
  std::vector<In> path_;
  std::string key_;
  int place_ = 0;
  bool has_op_ = false, has_name_ = false, has_nodes_ = false, has_heads_ = false;
};

void CheckEntry(const JsonEntry& entry, int64_t before, const std::string& who) {
  if (entry.node < 0 || entry.node >= before || entry.output < 0) {
    Throw<ModelError>("{}: output {} of node {} is not before it", who, entry.output, entry.node);
  }
}

}  // namespace

JsonGraph ReadJsonGraph(std::string_view text, const std::string& source_name, const ModelLimits& limits) {
  JsonGraph graph;
  try {
    Handler handler(limits, &graph);
    json::sax_parse(text.begin(), text.end(), &handler);
    if (!handler.has_nodes() || !handler.has_heads()) Throw<ModelError>("not a graph of MXNet: no nodes or no heads");
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const JsonEntry& input : graph.nodes[i].inputs) {
        CheckEntry(input, static_cast<int64_t>(i), fmt::format("node {}, {}", i, QuotedName(graph.nodes[i].name)));
      }
    }
    for (const JsonEntry& head : graph.heads) CheckEntry(head, std::ssize(graph.nodes), "a head");
  } catch (const Error& error) {
    Throw<ModelError>("{}: {}", source_name, error.message());
  }
  return graph;
}

}  // namespace bindery::mxnet
