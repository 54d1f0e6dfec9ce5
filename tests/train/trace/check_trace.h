// Traces as the Trace Event Format wants them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace bindery {

// The slices of a trace, checked: each event has what its kind needs, every process and thread a name, and slices of one
// thread lie one within the other or do not meet.
inline std::vector<nlohmann::json> CheckTrace(const std::string& text) {
  using Thread = std::pair<int, int>;
  const nlohmann::json trace = nlohmann::json::parse(text);
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  std::vector<nlohmann::json> slices;
  std::set<int> named;
  std::set<Thread> named_threads;
  std::map<Thread, std::vector<std::pair<double, double>>> open;  // by thread, outer ones first
  double before = 0;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::string kind = event.at("ph");
    const Thread thread(event.at("pid"), event.at("tid"));
    const double begin = event.at("ts");
    EXPECT_TRUE(event.at("args").is_object());
    EXPECT_TRUE(event.at("name").is_string());
    if (kind == "M") {
      if (event.at("name") == "process_name") named.insert(thread.first);
      if (event.at("name") == "thread_name") named_threads.insert(thread);
      continue;
    }
    EXPECT_EQ(kind, "X") << event;
    EXPECT_TRUE(event.at("cat").is_string());
    const double duration = event.at("dur"), end = begin + duration;
    EXPECT_GE(duration, 0) << event;
    EXPECT_GE(begin, before) << "in the order of their beginnings";
    before = begin;
    EXPECT_TRUE(named.contains(thread.first)) << event;
    EXPECT_TRUE(named_threads.contains(thread)) << event;
    constexpr double kRounding = 1e-6;
    auto& around = open[thread];
    while (!around.empty() && around.back().second <= begin + kRounding) around.pop_back();
    if (!around.empty()) {
      EXPECT_LE(end, around.back().second + kRounding) << event << " is cut by the end of what it lies in";
    }
    around.emplace_back(begin, end);
    slices.push_back(event);
  }
  return slices;
}

}  // namespace bindery
