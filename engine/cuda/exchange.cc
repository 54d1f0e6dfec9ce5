#include "engine/cuda/exchange.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/cuda/clique.h"
#include "engine/cuda/stream.h"
#include "engine/memory/storage.h"

namespace bindery {
namespace {

bool IsBrought(const Tensor& source, Device reader) {
  return reader.kind == DeviceKind::kCuda && source.device().kind == DeviceKind::kCuda && source.device() != reader &&
         source.bytes() > 0;
}

// The GPUs among which something is brought, in the order of their numbers: each once, however often it is in a group.
std::vector<Device> GpusAmong(const std::map<Device, std::vector<Tensor>>& read) {
  std::set<Device> gpus;
  for (const auto& [reader, wanted] : read) {
    for (const Tensor& source : wanted) {
      if (IsBrought(source, reader)) gpus.insert({reader, source.device()});
    }
  }
  return {gpus.begin(), gpus.end()};
}

}  // namespace

void AppendExchange(const std::shared_ptr<Engine>& engine, const std::string& name,
                    std::map<Device, std::vector<Tensor>>* read, StepParts* parts) {
  const std::vector<Device> devices = GpusAmong(*read);
  if (devices.empty()) return;
  std::vector<cuda::Gpu*> gpus;
  for (const Device device : devices) {
    gpus.push_back(&cuda::CudaStreamOf(engine->StreamOf(device, Lane::kCollective)).gpu());
  }
  cuda::Clique* const clique = cuda::CliqueOf(gpus);
  if (!clique) return;
  const auto rank = [&](Device device) {
    return static_cast<size_t>(std::ranges::find(devices, device) - devices.begin());
  };
  const VarPtr made = engine->NewVar();
  // Sums of what earlier ones brought go first: behind the last exchange they would wait for all of backward.
  Operation exchange{
      .name = name + " by NCCL", .device = devices[0], .writes = {made}, .lane = Lane::kCollective, .priority = -1};
  std::map<std::pair<const void*, int64_t>, size_t> numbers;  // of pieces, by the source's address and bytes
  auto pieces = std::make_shared<std::vector<cuda::Clique::Piece>>();
  std::vector<Tensor> kept;
  for (auto& [reader, wanted] : *read) {
    for (Tensor& source : wanted) {
      if (!IsBrought(source, reader)) continue;
      exchange.reads.push_back(source.var());
      kept.push_back(source);
      const auto [number, is_new] = numbers.try_emplace({source.address(), source.bytes()}, pieces->size());
      if (is_new) {
        pieces->push_back({.from = rank(source.device()),
                           .source = source.address(),
                           .bytes = static_cast<size_t>(source.bytes()),
                           .memory = std::make_shared<const Tensor>(source),
                           .targets = std::vector<std::shared_ptr<Chunk>>(devices.size())});
      }
      std::shared_ptr<Chunk>& memory = (*pieces)[number->second].targets[rank(reader)];
      if (!memory) memory = DefaultStorage()->Allocate(reader, source.bytes());
      source = kept.emplace_back(engine, reader, source.dtype(), source.shape(), memory->data(), memory, made);
    }
  }
  exchange.run = [clique, pieces = std::shared_ptr<const std::vector<cuda::Clique::Piece>>(std::move(pieces)),
                  kept = std::move(kept)](const OpContext& context) {
    cuda::CudaStreamOf(context.stream).CallAcross(clique->Call(pieces));
  };
  parts->push_back(std::move(exchange));
}

}  // namespace bindery
