// What is wrong with an event file: each byte of it counts, and the error names the record.
#include "train/events/event_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "tests/message_of.h"
#include "train/events/event_writer.h"
#include "train/events/events.pb.h"

namespace bindery {
namespace {

TEST(EventReader, FindsEveryDamage) {
  const std::string folder = testing::TempDir() + "/event_reader", path = folder + "/damaged";
  std::filesystem::remove_all(folder);
  std::string whole;
  {
    EventWriter writer(folder);
    writer.Scalar("loss", 3, 0.5);
    writer.Scalar("loss", 7, 0.25);
    writer.Flush();
    const EventCounts counts = CountEvents(writer.path());
    EXPECT_EQ(counts.events, 3);
    EXPECT_EQ(counts.values, 2);
    EXPECT_EQ(counts.step, 7);
    whole = ReadFile(writer.path());
  }
  const auto message = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return MessageOf<DataError>([&] { CountEvents(path); });
  };
  std::vector<size_t> ends;  // of records
  for (size_t at = 0; at < whole.size();) ends.push_back(at += 16 + static_cast<unsigned char>(whole[at]));
  ASSERT_EQ(ends.size(), 3u);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    const size_t record = i < ends[0] ? 0 : i < ends[1] ? 1 : 2;
    EXPECT_TRUE(message(bytes).starts_with("DataError: \"" + path + "\", record " + std::to_string(record) + ": "))
        << i << ": " << message(bytes);
    const bool at_end = i == ends[0] || i == ends[1];
    if (i > 0) {
      EXPECT_EQ(message(whole.substr(0, i)).find("cut off") == std::string::npos, at_end) << i;
    }
  }
  EXPECT_EQ(message(""), "DataError: \"" + path + "\", record 0: the file is empty");
  EXPECT_EQ(message(whole.substr(ends[0])),
            "DataError: \"" + path + "\", record 0: not the version that an event file begins with");
}

}  // namespace
}  // namespace bindery
