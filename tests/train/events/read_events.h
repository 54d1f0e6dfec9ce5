// The events of a file, with every checksum checked.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "train/events/event_reader.h"
#include "train/events/events.pb.h"

namespace bindery {

inline std::vector<events::Event> ReadEvents(const std::string& path) {
  std::vector<events::Event> all;
  try {
    ReadEventFile(path, [&](const events::Event& event) { all.push_back(event); });
  } catch (const DataError& e) {
    ADD_FAILURE() << e.what();
  }
  return all;
}

// Of the only event file in a folder.
inline std::vector<events::Event> ReadEventsIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().string().find("tfevents") != std::string::npos) files.push_back(entry.path());
  }
  EXPECT_EQ(files.size(), 1u) << folder;
  return files.empty() ? std::vector<events::Event>() : ReadEvents(files[0]);
}

}  // namespace bindery
