#include "engine/host_call.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/memory/storage.h"

namespace bindery {
namespace {

struct Piece {
  HostCallRange range;
  std::shared_ptr<Chunk> staging;
};

}  // namespace

// Per device one operation that fetches and one that stores, and between them the function, on the host. A device's
// staging memory has a variable, which is created anew by whoever fills it.
VarPtr AppendHostCall(Engine* engine, const std::string& name, const std::vector<HostCallRange>& ranges,
                      HostFunction function, const std::vector<VarPtr>& gates, std::shared_ptr<const void> kept,
                      StepParts* parts) {
  std::map<Device, std::vector<Piece>> pieces;
  std::vector<void*> addresses;
  for (const HostCallRange& range : ranges) {
    std::vector<Piece>& mine = pieces[range.device];
    auto piece = std::ranges::find_if(mine, [&](const Piece& p) {
      return p.range.address == range.address && (p.range.bytes > 0) == (range.bytes > 0);
    });
    if (piece != mine.end() && piece->range.bytes != range.bytes) {
      Throw("{}: two ranges begin at one place of {}, one of {} bytes, the other of {}", name, range.device,
            piece->range.bytes, range.bytes);
    }
    if (piece == mine.end()) {
      mine.push_back({range, DefaultStorage()->AllocateStaging(range.device, range.bytes)});
      piece = std::prev(mine.end());
    } else {
      piece->range.read |= range.read;
      piece->range.after = std::max(piece->range.after, range.after);
    }
    addresses.push_back(piece->staging->data());
  }
  const VarPtr outcome = engine->NewVar();
  Operation call{.name = name, .device = Cpu(), .reads = gates, .writes = {outcome}};
  std::vector<Operation> fetches, stores;
  std::vector<std::shared_ptr<Chunk>> staging;
  for (const auto& [device, mine] : pieces) {
    const VarPtr staged = engine->NewVar();
    Operation fetch{.name = name + ", to the host", .device = device, .writes = {staged}, .lane = Lane::kCollective};
    Operation store{.name = name + ", from the host", .device = device, .reads = {staged}, .lane = Lane::kCollective};
    std::vector<Piece> read, written;
    for (const Piece& piece : mine) {
      staging.push_back(piece.staging);
      if (piece.range.read) {
        fetch.reads.push_back(piece.range.var);
        read.push_back(piece);
      }
      if (piece.range.after == HostCallRange::After::kNothing) continue;
      written.push_back(piece);
      (piece.range.after == HostCallRange::After::kWrite ? store.writes : store.updates).push_back(piece.range.var);
    }
    const auto copy = [device = device](const OpContext& context, const std::vector<Piece>& list, bool to_host) {
      for (const Piece& piece : list) {
        void* const host = piece.staging->data();
        void* const there = piece.range.address;
        if (to_host) {
          CopyBetween(context.stream, device, there, Cpu(), host, piece.range.bytes);
        } else {
          CopyBetween(context.stream, Cpu(), host, device, there, piece.range.bytes);
        }
      }
    };
    fetch.run = [kept, copy, read = std::move(read)](const OpContext& context) { copy(context, read, true); };
    fetches.push_back(std::move(fetch));
    call.reads.push_back(staged);
    call.writes.push_back(staged);
    if (written.empty()) continue;
    store.run = [kept, copy, written = std::move(written)](const OpContext& context) { copy(context, written, false); };
    stores.push_back(std::move(store));
  }
  call.run = [function = std::move(function), addresses = std::move(addresses), staging = std::move(staging),
              kept](const OpContext&) { function(addresses); };
  std::ranges::move(fetches, std::back_inserter(*parts));
  parts->push_back(std::move(call));
  std::ranges::move(stores, std::back_inserter(*parts));
  return outcome;
}

}  // namespace bindery
