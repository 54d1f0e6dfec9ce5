// The events of a file, with every checksum checked.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "train/data/records/crc32c.h"
#include "train/events/events.pb.h"

namespace bindery {

inline std::vector<events::Event> ReadEvents(const std::string& path) {
  const std::string bytes = ReadFile(path);
  std::vector<events::Event> all;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t of_length = 0, of_message = 0;
    EXPECT_LE(at + 12, bytes.size());
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&of_length, bytes.data() + at + 8, 4);
    EXPECT_EQ(of_length, MaskedCrc32c(std::string_view(bytes).substr(at, 8)));
    if (at + 16 + length > bytes.size()) {
      ADD_FAILURE() << path << " is cut off";
      break;
    }
    const std::string_view message = std::string_view(bytes).substr(at + 12, length);
    std::memcpy(&of_message, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(of_message, MaskedCrc32c(message));
    EXPECT_TRUE(all.emplace_back().ParseFromArray(message.data(), static_cast<int>(message.size())));
    at += 16 + length;
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
