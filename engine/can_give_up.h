// What some streams (engine/stream.h) can besides: end work of theirs that hangs.
#pragma once

#include <cstdint>
#include <string>

namespace bindery {

// Any thread may call it. `number`: of the piece of work that the stream was seen at (Stream::Work).
class CanGiveUp {
 public:
  virtual ~CanGiveUp() = default;
  // Is it still there, and is that of a kind that can be ended?
  virtual bool MayGiveUp(uint64_t number) const = 0;
  // Does it only wait for other work of that kind?
  virtual bool IsBehind(uint64_t number) const = 0;
  // Makes it end, after which its operation fails, by `why`. False: it cannot now, or has before.
  virtual bool GiveUp(uint64_t number, const std::string& why) = 0;
};

}  // namespace bindery
