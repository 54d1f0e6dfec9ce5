// Event files (event_writer.h) read whole, to tell whether they are as they were written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace bindery {

namespace events {
class Event;
}

// Hands on the events of a file, in order. Throws DataError, with the file and the record, counted from 0: a checksum
// that is another, a file that is cut off, a message that is no event, a file that does not begin with its version.
void ReadEventFile(const std::string& path, const std::function<void(const events::Event&)>& take);

struct EventCounts {
  int64_t events = 0, values = 0;  // values: of summaries
  int64_t step = 0;                // the latest
};
EventCounts CountEvents(const std::string& path);  // throws what ReadEventFile does

}  // namespace bindery
