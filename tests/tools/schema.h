// The part of JSON Schema that the schemas in docs use.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bindery {

// What is wrong with the value, and where; "" if it is as the schema says.
inline std::string Breach(const nlohmann::json& schema, const nlohmann::json& value, const std::string& where = "") {
  const auto is = [&](const std::string& type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "boolean" ? value.is_boolean()
           : type == "integer" ? value.is_number_integer()
           : type == "number"  ? value.is_number()
           : type == "null"    ? value.is_null()
                               : throw std::runtime_error("unknown type " + type);
  };
  for (const auto& [key, rule] : schema.items()) {
    if (key == "oneOf") {
      int fitting = 0;
      std::string breaches;
      for (const nlohmann::json& one : rule) {
        const std::string breach = Breach(one, value, where);
        fitting += breach.empty();
        breaches += breach + "; ";
      }
      if (fitting != 1) return where + ": fits " + std::to_string(fitting) + " of them: " + breaches;
    } else if (key == "type") {
      bool any = false;
      for (const nlohmann::json& type : rule.is_array() ? rule : nlohmann::json::array({rule})) any |= is(type);
      if (!any) return where + ": is no " + rule.dump();
    } else if (key == "const") {
      if (value != rule) return where + ": is not " + rule.dump();
    } else if (key == "enum") {
      if (std::find(rule.begin(), rule.end(), value) == rule.end()) return where + ": is none of " + rule.dump();
    } else if (key == "minimum") {
      if (value.is_number() && value < rule) return where + ": is below " + rule.dump();
    } else if (key == "required") {
      for (const std::string name : rule) {
        if (!value.contains(name)) return where + ": lacks " + name;
      }
    } else if (key == "items") {
      for (const nlohmann::json& item : value) {
        if (const std::string breach = Breach(rule, item, where + "[]"); !breach.empty()) return breach;
      }
    } else if (key == "properties" || key == "additionalProperties") {
      if (!value.is_object()) continue;
      for (const auto& [name, member] : value.items()) {
        const bool listed = schema.contains("properties") && schema.at("properties").contains(name);
        if (listed != (key == "properties")) continue;
        const std::string breach = Breach(key == "properties" ? rule.at(name) : rule, member, where + "/" + name);
        if (!breach.empty()) return breach;
      }
    } else if (key != "$schema" && key != "title" && key != "description") {
      return where + ": a rule that this does not know: " + key;
    }
  }
  return "";
}

}  // namespace bindery
