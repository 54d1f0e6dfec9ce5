#include "kvstore/processes.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <sstream>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace bindery {
namespace {

constexpr int kReasonBytes = 1024;

// What each tells the others before a call.
struct Meeting {
  int32_t call = 0;
  int32_t rank = 0;
  int64_t bytes = 0;
  uint64_t things = 0;
};

}  // namespace

const char* Processes::NameOf(Call call) {
  switch (call) {
    case Call::kBarrier: return "Barrier";
    case Call::kAllGather: return "AllGather of bytes";
    case Call::kTexts: return "AllGather of texts";
    case Call::kBroadcast: return "Broadcast of bytes";
    case Call::kText: return "Broadcast of a text";
    case Call::kSum: return "AllReduceSum";
    case Call::kScatter: return "ReduceScatterSum";
    case Call::kRanges: return "AllGatherRanges";
    case Call::kAsk: return "Ask";
    case Call::kLeave: return "Leave";
  }
  return "";
}

void Processes::Break(const std::string& why) {
  if (broken_.empty()) broken_ = why;
  throw Error(broken_);
}

void Processes::Guarded(const std::function<void()>& run) {
  if (!broken_.empty()) throw Error(broken_);
  if (size_ == 1) return;
  try {
    run();
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const Error*>(&error);
    Break(own ? own->message() : error.what());
  }
}

void Processes::Meet(Call call, int64_t bytes, uint64_t things) {
  const Meeting mine{static_cast<int32_t>(call), rank_, bytes, things};
  std::vector<Meeting> all(static_cast<size_t>(size_));
  const auto first_of = [&](Call what) { return std::ranges::find(all, static_cast<int32_t>(what), &Meeting::call); };
  DoAllGather(&mine, all.data(), sizeof(Meeting));
  for (auto asks = first_of(Call::kAsk); asks != all.end() && first_of(Call::kLeave) == all.end();
       asks = first_of(Call::kAsk)) {
    const bool asked = call == Call::kAsk && things == asks->things;
    Give(static_cast<int64_t>(asks->things), asked ? asked_ : std::span<void* const>());
    if (asked) return;
    DoAllGather(&mine, all.data(), sizeof(Meeting));
  }
  const auto leaver = first_of(Call::kLeave);
  if (leaver != all.end()) {
    std::string reasons(static_cast<size_t>(size_) * kReasonBytes, '\0');
    const std::string none(kReasonBytes, '\0');
    if (call != Call::kLeave) DoAllGather(none.data(), reasons.data(), kReasonBytes);
    if (call == Call::kLeave) return;
    parted_ = true;
    const auto process = leaver - all.begin();
    Throw("process {} of {} has stopped: {}", process, size_, std::string(reasons.c_str() + process * kReasonBytes));
  }
  for (const Meeting& other : all) {
    if (other.call == mine.call && other.bytes == bytes && other.things == things) continue;
    parted_ = true;  // all of them see it
    if (other.call != mine.call) {
      Throw("the processes are not at the same place: process {} calls {}, process {} calls {}", rank_, NameOf(call),
            other.rank, NameOf(static_cast<Call>(other.call)));
    }
    if (other.bytes != bytes) {
      Throw("{}: process {} has {} bytes, process {} has {}", NameOf(call), rank_, bytes, other.rank, other.bytes);
    }
    Throw("{}: processes {} and {} have as many bytes of other values", NameOf(call), rank_, other.rank);
  }
}

void Processes::Leave(const std::string& why) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return;
    broken_ = "this process has left the others: " + why;
    parted_ = size_ == 1;
    if (parted_) return;
    Meet(Call::kLeave, 0);
    std::string reason = why.substr(0, kReasonBytes - 1);
    reason.resize(kReasonBytes, '\0');
    std::string reasons(static_cast<size_t>(size_) * kReasonBytes, '\0');
    DoAllGather(reason.data(), reasons.data(), kReasonBytes);
    parted_ = true;
  } catch (...) {  // the others cannot be told
  }
}

// In pieces, each of which is of all processes.
void Processes::Gather(const void* mine, void* all, int64_t bytes) {
  const int64_t most = std::max<int64_t>(1, kMostBytes / size_);
  if (bytes <= most) {
    if (bytes > 0) DoAllGather(mine, all, bytes);
    return;
  }
  buffer_.resize(static_cast<size_t>(most * size_));
  for (int64_t begin = 0; begin < bytes; begin += most) {
    const int64_t piece = std::min(most, bytes - begin);
    DoAllGather(static_cast<const char*>(mine) + begin, buffer_.data(), piece);
    for (int64_t i = 0; i < size_; ++i) {
      std::memcpy(static_cast<char*>(all) + i * bytes + begin, buffer_.data() + i * piece, static_cast<size_t>(piece));
    }
  }
}

void Processes::Spread(void* data, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kMostBytes) {
    DoBroadcast(static_cast<char*>(data) + begin, std::min(kMostBytes, bytes - begin));
  }
}

void Processes::Barrier() {
  const std::lock_guard lock(mutex_);
  Guarded([&] { Meet(Call::kBarrier, 0); });
}

void Processes::AllGather(const void* mine, void* all, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (size_ == 1 && bytes > 0) std::memcpy(all, mine, static_cast<size_t>(bytes));
  Guarded([&] {
    Meet(Call::kAllGather, bytes);
    Gather(mine, all, bytes);
  });
}

std::vector<std::string> Processes::AllGather(const std::string& mine) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts = {mine};
  Guarded([&] {
    Meet(Call::kTexts, 0);
    const auto length = static_cast<int64_t>(mine.size());
    std::vector<int64_t> lengths(static_cast<size_t>(size_));
    DoAllGather(&length, lengths.data(), sizeof(length));
    const auto longest = static_cast<size_t>(std::ranges::max(lengths));
    std::string padded = mine;
    padded.resize(longest);
    std::string all(CheckedMul(static_cast<int64_t>(longest), size_), '\0');
    Gather(padded.data(), all.data(), static_cast<int64_t>(longest));
    texts.clear();
    for (size_t i = 0; i < lengths.size(); ++i) {
      texts.push_back(all.substr(i * longest, static_cast<size_t>(lengths[i])));
    }
  });
  return texts;
}

void Processes::CheckSame(const std::string& lines, const char* complaint) {
  const std::vector<std::string> all = AllGather(lines);
  for (size_t process = 1; process < all.size(); ++process) {
    if (all[process] == all[0]) continue;
    std::istringstream first(all[0]), other(all[process]);
    std::string a, b;
    while (a == b) {
      if (!std::getline(first, a)) a = "nothing more";
      if (!std::getline(other, b)) b = "nothing more";
    }
    Throw("{}: process 0 has {}, process {} has {}", complaint, a, process, b);
  }
}

void Processes::Broadcast(void* data, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Guarded([&] {
    Meet(Call::kBroadcast, bytes);
    Spread(data, bytes);
  });
}

void Processes::Broadcast(std::string* text) {
  const std::lock_guard lock(mutex_);
  Guarded([&] {
    Meet(Call::kText, 0);
    auto length = static_cast<int64_t>(text->size());
    DoBroadcast(&length, sizeof(length));
    if (rank_ != 0) text->assign(static_cast<size_t>(length), '\0');
    Spread(text->data(), length);
  });
}

}  // namespace bindery
