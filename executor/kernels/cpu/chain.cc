// Chains of elementwise operators as one pass over memory: tile by tile, each link runs the loop that its operator has
// by itself (elementwise.h), and what is between the links is in the nearest cache.
#include "executor/kernels/chain.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/team.h"
#include "executor/kernels/cpu/elementwise.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/cpu/walk.h"

namespace bindery::cpu {
namespace {

static_assert(kMaxChainInputs <= kMaxOperands);

// Operators on values of fewer bytes find them in the nearest caches, without chains, too.
constexpr int64_t kLeastBytes = 32 * 1024;
// All that is between the links, of a tile: half of the nearest cache.
constexpr int64_t kRoomBytes = 16 * 1024;
// A tile has a multiple of kLeastTile elements, and at most kMostTileBytes of the widest type. Short tiles are faster:
// while the links between work on a long one, nothing is fetched from memory. By two threads of a Zen 4, 6 links of 2^22
// floats took 0.59 of the time that they take one by one, in tiles of 8 KiB 0.80; of 2^20 floats these took 1.15.
constexpr int64_t kLeastTile = 64, kMostTileBytes = 2048;
static_assert(kLeastTile * static_cast<int64_t>((kMaxChainInputs + kMaxChainLinks) * sizeof(double)) <= kRoomBytes);
static_assert(kMostTileBytes <= kSerialElements);  // loops stay in the calling thread

// Parts of the room, all of one size, for values that are needed from one link to another, both included.
class Parts {
 public:
  int64_t Take(int from, int to) {
    size_t part = 0;
    while (part < taken_until_.size() && taken_until_[part] >= from) ++part;
    if (part == taken_until_.size()) taken_until_.push_back(to);
    taken_until_[part] = to;
    return static_cast<int64_t>(part);
  }
  int64_t count() const { return static_cast<int64_t>(taken_until_.size()); }

 private:
  std::vector<int> taken_until_;
};

class Chain {
 public:
  explicit Chain(const ChainSpec& spec) {
    const Shape& shape = spec.links.back().spec.outputs[0].shape;
    n_ = shape.Elements();
    result_size_ = SizeOf(spec.links.back().spec.outputs[0].dtype);
    int64_t size = result_size_;  // of the widest type
    const int links = static_cast<int>(spec.links.size()), inputs = static_cast<int>(spec.inputs.size());
    std::vector<int> last_reader(spec.inputs.size() + spec.links.size(), -1);
    for (int i = 0; i < links; ++i) {
      for (const int operand : spec.links[i].operands) last_reader[operand] = i;
    }
    Parts parts;
    for (int k = 0; k < inputs; ++k) {
      const ValueType& type = spec.inputs[k];
      Input input{.size = SizeOf(type.dtype), .elements = type.shape.Elements()};
      if (IsStretched(input)) {
        input.walk = StretchedWalk<1>(shape, {type.shape}, {input.size});
        input.part = parts.Take(0, last_reader[k]);
        size = std::max(size, input.size);
      }
      inputs_.push_back(std::move(input));
    }
    for (int i = 0; i < links; ++i) {
      const ChainLink& link = spec.links[i];
      unsigned still = 0;
      for (size_t j = 0; j < link.operands.size(); ++j) {
        const int operand = link.operands[j];
        if (operand < inputs && inputs_[operand].elements == 1) still |= 1u << j;
      }
      links_.push_back({LoopOf(link.spec)->run_of(still), link.operands});
      if (i + 1 == links) break;
      links_.back().part = parts.Take(i, last_reader[inputs + i]);
      size = std::max(size, SizeOf(link.spec.outputs[0].dtype));
    }
    tile_ = std::min(kRoomBytes / parts.count(), kMostTileBytes) / size / kLeastTile * kLeastTile;
    part_bytes_ = tile_ * size;
  }

  void operator()(const Arguments& args) const {
    const auto links = static_cast<int64_t>(links_.size());
    ParallelFor(n_, kGrain, kSerialElements / links, [&](int64_t begin, int64_t end, int) {
      alignas(64) std::byte room[kRoomBytes];
      for (int64_t at = begin; at < end; at += tile_) RunTile(args, at, std::min(tile_, end - at), room);
    });
  }

 private:
  struct Input {
    int64_t size, elements;
    Walk<1> walk = {};  // of one that is stretched
    int64_t part = 0;
  };
  struct Link {
    Run run;
    std::vector<int> operands;
    int64_t part = 0;  // the last one has none: it writes to memory
  };

  bool IsStretched(const Input& input) const { return input.elements != 1 && input.elements != n_; }

  void RunTile(const Arguments& args, int64_t at, int64_t n, std::byte* room) const {
    std::array<const void*, kMaxChainInputs + kMaxChainLinks> values{};
    size_t next = 0;
    for (const Input& input : inputs_) {
      const auto* const x = args.in<std::byte>(static_cast<int>(next));
      values[next++] = IsStretched(input)    ? Stretch(input, x, at, n, room + input.part * part_bytes_)
                       : input.elements == 1 ? x
                                             : x + at * input.size;
    }
    for (const Link& link : links_) {
      Operands x{};
      for (size_t j = 0; j < link.operands.size(); ++j) x[j] = values[link.operands[j]];
      void* const y =
          &link == &links_.back() ? args.out<std::byte>(0) + at * result_size_ : room + link.part * part_bytes_;
      link.run(x, y, n);
      values[next++] = y;
    }
  }

  // n of a stretched input's elements one after another: where they are, if they are so, or copied to the room.
  static const void* Stretch(const Input& input, const std::byte* x, int64_t at, int64_t n, std::byte* to) {
    const void* whole = nullptr;
    input.walk.ForRunsOf(at, at + n, [&](const auto& offset, const auto& step, int64_t count) {
      const std::byte* const from = x + offset[0];
      if (step[0] != 0 && count == n) {
        whole = from;
      } else if (step[0] != 0) {
        std::memcpy(to, from, static_cast<size_t>(count * input.size));
      } else {
        OfSize(input.size,
               [&]<class T>() { std::fill_n(reinterpret_cast<T*>(to), count, *reinterpret_cast<const T*>(from)); });
      }
      to += count * input.size;
    });
    return whole ? whole : to - n * input.size;
  }

  int64_t n_ = 0, result_size_ = 0, tile_ = 0, part_bytes_ = 0;
  std::vector<Input> inputs_;
  std::vector<Link> links_;
};

bool AreThere() { return true; }

bool IsLink(const KernelSpec& spec) {
  if (spec.outputs.size() != 1 || spec.inputs.size() > kMaxChainInputs) return false;
  const Shape& shape = spec.outputs[0].shape;
  int64_t size = SizeOf(spec.outputs[0].dtype);  // of the widest that is not stretched
  for (const ValueType& input : spec.inputs) {
    if (input.shape == shape) size = std::max(size, SizeOf(input.dtype));
  }
  return shape.Elements() * size >= kLeastBytes && LoopOf(spec).has_value();
}

// The result may take the place of an input of its shape, which is not stretched: a link that is not the last one has
// read what a tile needs of it, and of the last one's operands those will do that its operator allows.
MaybeKernel MakeChain(const ChainSpec& chain) {
  const ChainLink& last = chain.links.back();
  KernelSpec spec = last.spec;
  spec.inputs = chain.inputs;
  Kernel kernel = PlainKernel(spec, "fused loops");
  for (int k = 0; k < static_cast<int>(chain.inputs.size()); ++k) {
    bool may_share = chain.inputs[k].shape == spec.outputs[0].shape;
    for (int j = 0; j < static_cast<int>(last.operands.size()); ++j) {
      const auto is_this = [j](const InplacePair& pair) { return pair.input == j && pair.output == 0; };
      if (last.operands[j] == k) may_share = may_share && std::ranges::any_of(spec.op->inplace, is_this);
    }
    if (may_share) kernel.inplace.push_back({k, 0});
  }
  return WithLoop(std::move(kernel), Chain(chain));
}

}  // namespace

extern const ChainKernels kTiledChains;
const ChainKernels kTiledChains = {AreThere, IsLink, MakeChain};

}  // namespace bindery::cpu
