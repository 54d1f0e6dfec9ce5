#include "engine/fetch.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "engine/backend.h"

namespace bindery {

std::vector<Tensor> AppendFetch(const std::shared_ptr<Engine>& engine, const std::string& name,
                                const std::vector<Tensor>& sources, Device to, StepParts* parts) {
  const auto other_kind = [to](const Tensor& source) {
    return !HostAddressable(to) && !HostAddressable(source.device()) && source.device().kind != to.kind;
  };
  if (std::ranges::any_of(sources, other_kind)) {
    std::vector<Tensor> far;
    std::ranges::copy_if(sources, std::back_inserter(far), other_kind);
    const std::vector<Tensor> staged = AppendFetch(engine, name, far, Cpu(), parts);
    std::vector<Tensor> near = sources;
    auto next = staged.begin();
    for (Tensor& source : near) source = other_kind(source) ? *next++ : source;
    return AppendFetch(engine, name, near, to, parts);
  }
  struct Copies {
    VarPtr made;
    std::vector<std::pair<Tensor, Tensor>> list = {};  // source, copy
  };
  std::map<Device, Copies> copies;  // by who makes them
  std::vector<Tensor> result;
  for (const Tensor& source : sources) {
    if (ShareMemory(source.device(), to)) {
      result.push_back(source);
      continue;
    }
    const bool to_host = HostAddressable(to);
    Copies& mine = copies[to_host ? source.device() : to];
    const auto same = std::ranges::find_if(mine.list, [&](const auto& copied) {
      return copied.first.address() == source.address() && copied.first.dtype() == source.dtype() &&
             copied.first.shape() == source.shape();
    });
    if (same != mine.list.end()) {
      result.push_back(same->second);
      continue;
    }
    if (!mine.made) mine.made = engine->NewVar();
    const std::shared_ptr<Chunk> memory = to_host ? DefaultStorage()->AllocateStaging(source.device(), source.bytes())
                                                  : DefaultStorage()->Allocate(to, source.bytes());
    result.emplace_back(engine, to, source.dtype(), source.shape(), memory->data(), memory, mine.made);
    mine.list.emplace_back(source, result.back());
  }
  for (auto& [device, mine] : copies) {
    Operation fetch{.name = name, .device = device, .writes = {mine.made}, .lane = Lane::kCollective};
    for (const auto& [source, copy] : mine.list) fetch.reads.push_back(source.var());
    fetch.run = [list = std::move(mine.list)](const OpContext& context) {
      for (const auto& [source, copy] : list) {
        CopyBetween(context.stream, source.device(), source.address(), copy.device(), copy.address(), source.bytes());
      }
    };
    parts->push_back(std::move(fetch));
  }
  return result;
}

}  // namespace bindery
