#include "train/events/event_reader.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/random_file.h"
#include "train/data/records/tf_record.h"
#include "train/events/events.pb.h"

namespace bindery {

void ReadEventFile(const std::string& path, const std::function<void(const events::Event&)>& take) {
  const RandomFile file(path);
  int64_t number = 0;
  const auto fail = [&](const std::string& what) { Throw<DataError>("\"{}\", record {}: {}", path, number, what); };
  if (file.size() == 0) fail("the file is empty");
  for (int64_t at = 0; at < file.size(); ++number) {
    if (file.size() - at < kRecordHeaderBytes) fail("cut off within its header");
    const std::string header = file.Read(at, kRecordHeaderBytes);
    const std::optional<uint64_t> length = LengthIn(header);
    if (!length) {
      fail(number == 0 ? "the checksum of its length is another: not an event file"
                       : "damaged: the checksum of its length is another");
    }
    at += kRecordHeaderBytes;
    if (*length > std::numeric_limits<int32_t>::max()) {
      fail(fmt::format("it has {} bytes, which no event has", *length));
    }
    const auto bytes = static_cast<int64_t>(*length);
    if (file.size() - at < bytes + kRecordFooterBytes) fail(fmt::format("cut off: it has {} bytes", bytes));
    const std::string record = file.Read(at, bytes + kRecordFooterBytes);
    const std::optional<std::string_view> message = MessageIn(record);
    if (!message) fail("damaged: its checksum is another");
    events::Event event;
    if (!event.ParseFromArray(message->data(), static_cast<int>(message->size()))) fail("not an event");
    if (number == 0 && event.file_version().empty()) fail("not the version that an event file begins with");
    take(event);
    at += bytes + kRecordFooterBytes;
  }
}

EventCounts CountEvents(const std::string& path) {
  EventCounts counts;
  ReadEventFile(path, [&](const events::Event& event) {
    ++counts.events;
    counts.values += event.summary().value_size();
    counts.step = std::max<int64_t>(counts.step, event.step());
  });
  return counts;
}

}  // namespace bindery
