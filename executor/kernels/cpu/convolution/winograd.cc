#include "executor/kernels/cpu/convolution/winograd.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/operations.h"

namespace bindery::cpu {
namespace {

constexpr int64_t kVectors = 2;  // of channels, that are made together
// Neighbouring places must not lie whole pages apart: a tile's would push each other out of the cache.
constexpr int64_t kApart = 32;

const Loops::Winograd& LoopsOf(WinogradTiles tiles) {
  return tiles == WinogradTiles::k2x2 ? BestLoops().winograd_2 : BestLoops().winograd_4;
}
const char* NameOf(WinogradTiles tiles) { return tiles == WinogradTiles::k2x2 ? "winograd 2x2" : "winograd 4x4"; }

// Weights of 3 x 3 taps, (out, in, 3, 3), and what products take of them: places x groups of kVectors vectors x
// channels that are read x what a group makes. Of the convolution, or, `turned`, of the gradient of its data.
class Weights {
 public:
  // No value in formats whose offsets do not add up.
  static std::optional<Weights> In(const Format& format, const Shape& weight, bool turned, WinogradTiles tiles) {
    if (format.kind == Format::Kind::kOpaque || IsPadded(format, weight)) return std::nullopt;
    const auto offset = [&](int64_t out, int64_t in, int64_t tap) {
      const std::array<int64_t, 4> index = {out, in, tap / 3, tap % 3};
      return ElementOffset(format, weight, index.data());
    };
    Weights weights(tiles);
    for (int64_t o = 0; o < weight[0]; ++o) (turned ? weights.from_ : weights.to_).push_back(offset(o, 0, 0));
    for (int64_t i = 0; i < weight[1]; ++i) (turned ? weights.to_ : weights.from_).push_back(offset(0, i, 0));
    for (int64_t tap = 0; tap < 9; ++tap) {
      weights.taps_[static_cast<size_t>(tap)] = offset(0, 0, turned ? 8 - tap : tap);
    }
    return weights;
  }

  int64_t from() const { return std::ssize(from_); }
  int64_t to() const { return std::ssize(to_); }
  int64_t place() const { return from() * to() + kApart; }  // elements from place to place
  int64_t elements() const { return CheckedMul(places_, place(), "elements of transformed weights"); }
  int64_t bytes() const { return CheckedMul(elements(), static_cast<int64_t>(sizeof(float)), "bytes"); }

  void Transform(const float* w, float* to, int threads) const {
    const int64_t vectors = this->to() / lanes_, items = vectors * from();
    ParallelFor(items, 1, threads == 1 || items * lanes_ * places_ < kSerialElements ? items : 0,
                [&](int64_t begin, int64_t end, int) {
                  alignas(64) std::array<float, 9 * 16> taps;
                  for (int64_t item = begin; item < end; ++item) {
                    const int64_t vector = item / from(), k = item % from();
                    const float* const of_channel = w + from_[static_cast<size_t>(k)];
                    for (int64_t lane = 0; lane < lanes_; ++lane) {
                      const float* const of = of_channel + to_[static_cast<size_t>(vector * lanes_ + lane)];
                      for (size_t tap = 0; tap < 9; ++tap) {
                        taps[tap * static_cast<size_t>(lanes_) + static_cast<size_t>(lane)] = of[taps_[tap]];
                      }
                    }
                    const int64_t first = vector / kVectors * kVectors, count = std::min(kVectors, vectors - first);
                    const int64_t at = first * from() + k * count + vector - first;
                    loops_.weights(taps.data(), to + at * lanes_, place());
                  }
                });
  }

 private:
  explicit Weights(WinogradTiles tiles)
      : loops_(LoopsOf(tiles)), places_((static_cast<int64_t>(tiles) + 2) * (static_cast<int64_t>(tiles) + 2)) {}

  std::vector<int64_t> from_, to_;  // offsets of channels that are read and made
  std::array<int64_t, 9> taps_{};   // and of taps, which add up
  Loops::Winograd loops_;
  int64_t places_, lanes_ = BestLoops().lanes;
};

// (N, from, X) -> (N, to, Y), two spatial axes each.
struct Planes {
  int64_t batch, from, to;
  Channels x, y;
  std::array<int64_t, 2> in = {}, out = {}, pad = {};
};

class Winograd {
 public:
  // `is_transformed`: the weights are, when it runs.
  Winograd(const Planes& planes, Weights weights, bool is_transformed, WinogradTiles tiles, int threads)
      : p_(planes), weights_(std::move(weights)), is_transformed_(is_transformed), side_(static_cast<int64_t>(tiles)),
        loops_(LoopsOf(tiles)), places_((side_ + 2) * (side_ + 2)), lanes_(BestLoops().lanes), threads_(threads) {
    for (size_t i = 0; i < 2; ++i) tiles_[i] = CeilDiv(p_.out[i], side_);
    // At each place, the data of the tiles that are computed at once stay in the nearest caches beside the weights of a
    // group; these are read once for all of them.
    constexpr int64_t kCached = 8 * 1024, kFewest = 24, kMost = 96;  // elements, tiles
    at_once_ = std::min(std::clamp(kCached / p_.from / 12 * 12, kFewest, kMost), all_tiles());
  }

  int64_t scratch_bytes() const {
    return CheckedMul(scratch_weights() + threads_ * part_elements(), static_cast<int64_t>(sizeof(float)),
                      "scratch bytes");
  }

  // `bias` and `addend` may be null.
  void Run(const float* x, const float* w, const float* bias, const float* addend, float* y, float* scratch,
           const ActivationPass<float>& activation) const {
    if (!is_transformed_) weights_.Transform(w, scratch, threads_);
    const float* const weights = is_transformed_ ? w : scratch;
    float* const parts = scratch + scratch_weights();
    const int64_t blocks = CeilDiv(all_tiles(), at_once_);
    ParallelFor(blocks, 1, threads_ == 1 ? blocks : 0, [&](int64_t begin, int64_t end, int thread) {
      float* const data = parts + thread * part_elements();
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * at_once_, count = std::min(at_once_, all_tiles() - first);
        for (int64_t t = 0; t < count; ++t) TransformData(x, first + t, data + t * p_.from);
        Multiply(weights, data, count);
        for (int64_t t = 0; t < count; ++t) TransformResults(first + t, data, t, bias, addend, y, activation);
      }
    });
  }

 private:
  int64_t all_tiles() const { return p_.batch * tiles_[0] * tiles_[1]; }
  int64_t scratch_weights() const { return is_transformed_ ? 0 : weights_.elements(); }
  int64_t data_place() const { return at_once_ * p_.from + kApart; }
  int64_t result_place() const { return at_once_ * p_.to + kApart; }
  int64_t part_elements() const { return places_ * (data_place() + result_place()); }

  struct Place {
    int64_t sample, row, column;  // of a tile's first result
  };
  Place PlaceOf(int64_t tile) const {
    const int64_t row = tile / tiles_[1];
    return {row / tiles_[0], row % tiles_[0] * side_, tile % tiles_[1] * side_};
  }

  void TransformData(const float* x, int64_t tile, float* to) const {
    const Place at = PlaceOf(tile);
    const int64_t row = at.row - p_.pad[0], column = at.column - p_.pad[1], side = side_ + 2;
    const int64_t step = p_.in[1] * p_.x.position;
    const Loops::WinogradTile part{.first_row = std::clamp<int64_t>(-row, 0, side),
                                   .last_row = std::clamp<int64_t>(p_.in[0] - row, 0, side),
                                   .first_column = std::clamp<int64_t>(-column, 0, side),
                                   .last_column = std::clamp<int64_t>(p_.in[1] - column, 0, side),
                                   .row = step,
                                   .column = p_.x.position,
                                   .channels = p_.from,
                                   .block = p_.x.block,
                                   .block_step = p_.x.block_step,
                                   .place = data_place()};
    const int64_t sample = at.sample * p_.from * p_.in[0] * p_.in[1];
    loops_.data(part, x + (sample + row * step + column * p_.x.position), to);
  }

  void Multiply(const float* weights, float* data, int64_t tiles) const {
    const int64_t vectors = p_.to / lanes_;
    float* const results = data + places_ * data_place();
    for (int64_t place = 0; place < places_; ++place) {
      for (int64_t first = 0; first < vectors; first += kVectors) {
        const int64_t count = std::min(kVectors, vectors - first);
        BestLoops().multiply_strip({.a = data + place * data_place(),
                                    .a_row = p_.from,
                                    .b = weights + place * weights_.place() + first * lanes_ * p_.from,
                                    .y = results + place * result_place() + first * lanes_,
                                    .y_row = p_.to,
                                    .rows = tiles,
                                    .depth = p_.from,
                                    .vectors = count});
      }
    }
  }

  void TransformResults(int64_t tile, const float* data, int64_t number, const float* bias, const float* addend,
                        float* y, const ActivationPass<float>& activation) const {
    const Place at = PlaceOf(tile);
    const int64_t step = p_.out[1] * p_.y.position;
    const Loops::WinogradTile part{.first_row = 0,
                                   .last_row = std::min(side_, p_.out[0] - at.row),
                                   .first_column = 0,
                                   .last_column = std::min(side_, p_.out[1] - at.column),
                                   .row = step,
                                   .column = p_.y.position,
                                   .channels = p_.to,
                                   .block = p_.y.block,
                                   .block_step = p_.y.block_step,
                                   .place = result_place()};
    const int64_t offset = at.sample * p_.to * p_.out[0] * p_.out[1] + at.row * step + at.column * p_.y.position;
    loops_.results(part, data + places_ * data_place() + number * p_.to, bias, addend ? addend + offset : nullptr,
                   y + offset);
    if (!activation.loop) return;
    for (int64_t c = 0; c < p_.to; c += p_.y.block) {
      for (int64_t row = 0; row < part.last_row; ++row) {
        float* const first = y + offset + p_.y.OffsetOf(c) + row * step;
        activation.Serial(first, part.last_column * p_.y.position);
      }
    }
  }

  Planes p_;
  Weights weights_;
  bool is_transformed_;
  int64_t side_;  // of a tile of results
  Loops::Winograd loops_;
  int64_t places_, lanes_;
  int threads_;
  std::array<int64_t, 2> tiles_;
  int64_t at_once_;
};

bool IsOfThreeByThree(const ConvolutionAttrs& attrs, const std::vector<Window>& windows) {
  return attrs.groups == 1 && windows.size() == 2 &&
         std::ranges::all_of(windows, [](const Window& w) { return w.kernel == 3 && w.stride == 1 && w.dilate == 1; });
}

// As it lies, if channels lie side by side, else as `preferred`; nothing where neither has vectors of channels.
std::optional<Format> WithVectors(const Format& given, const Format& preferred, const Shape& shape) {
  for (const Format& format : {given, preferred}) {
    const auto channels = ChannelsOf(format, shape);
    if (channels && channels->block % BestLoops().lanes == 0) return format;
  }
  return std::nullopt;
}

// Weights that nobody has laid out yet lie as oneDNN's direct kernels have them.
Format BlockedWeight(int64_t block) {
  Format format = ChannelBlocked(4, static_cast<int>(block));
  format.num_blocks = 2;
  format.block_axis[1] = 0;
  format.block_size[1] = static_cast<int16_t>(block);
  return format;
}

struct Made {
  Kernel kernel;
  Winograd winograd;
};
std::optional<Made> Make(const KernelSpec& spec, const ConvolutionAttrs& attrs, const Shape& data, const Shape& output,
                         bool turned, WinogradTiles tiles) {
  const Shape& weight = spec.inputs[1].shape;
  if (!AllFloat(spec) || data.rank() != 4) return std::nullopt;
  const std::vector<Window> windows = ConvolutionWindows(attrs, data);
  const int64_t lanes = BestLoops().lanes;
  if (!IsOfThreeByThree(attrs, windows) || weight[0] % lanes != 0 || weight[1] % lanes != 0) return std::nullopt;
  const ActivationFormats preferred = PreferredActivationFormats(DType::kFloat32, data, output, 1);
  const Shape &in = turned ? output : data, &out = turned ? data : output;
  const auto from = WithVectors(spec.input_formats[0], turned ? preferred.output : preferred.input, in);
  const auto to = WithVectors(Format::Plain(), turned ? preferred.input : preferred.output, out);
  if (!from || !to) return std::nullopt;
  const bool in_blocks = weight[0] % SimdBlock() == 0 && weight[1] % SimdBlock() == 0;
  const bool is_kept = !turned && spec.IsKept(1), lays_out = spec.input_is_open[1] && in_blocks && !is_kept;
  const Format wanted = Canonical(lays_out ? BlockedWeight(SimdBlock()) : spec.input_formats[1], weight);
  Format format = wanted;
  std::optional<Weights> weights = Weights::In(format, weight, turned, tiles);
  if (!weights) weights = Weights::In(format = Format::Plain(), weight, turned, tiles);
  const bool is_transformed = is_kept && format == wanted;
  if (is_transformed) format = Format::Opaque(weights->bytes(), NameOf(tiles));
  Planes planes{.batch = in[0], .from = in[1], .to = out[1], .x = *ChannelsOf(*from, in), .y = *ChannelsOf(*to, out)};
  for (size_t i = 0; i < 2; ++i) {
    planes.in[i] = in[2 + static_cast<int>(i)];
    planes.out[i] = out[2 + static_cast<int>(i)];
    planes.pad[i] = turned ? 2 - windows[i].pad_begin : windows[i].pad_begin;
  }
  Kernel kernel = PlainKernel(spec, NameOf(tiles));
  kernel.threads = ThreadsForWork(spec, OperationsOfSums(output, weight));
  kernel.input_formats[0] = Canonical(*from, in);
  kernel.input_formats[1] = format;
  kernel.output_formats[0] = Canonical(*to, out);
  Winograd winograd(planes, *std::move(weights), is_transformed, tiles, kernel.threads);
  kernel.scratch_bytes = winograd.scratch_bytes();
  return Made{std::move(kernel), std::move(winograd)};
}

}  // namespace

MaybeKernel WinogradConvolution(const KernelSpec& spec, int addend, WinogradTiles tiles) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  auto made = Make(spec, attrs, spec.inputs[0].shape, spec.outputs[0].shape, false, tiles);
  if (!made) return std::nullopt;
  if (addend >= 0) {
    made->kernel.input_formats[static_cast<size_t>(addend)] = made->kernel.output_formats[0];
    made->kernel.inplace = {{addend, 0}};
  }
  return WithLoop(std::move(made->kernel), [winograd = std::move(made->winograd), has_bias = !attrs.no_bias, addend,
                                            activation = ActivationPass(attrs.activation)](const Arguments& args) {
    winograd.Run(args.in(0), args.in(1), has_bias ? args.in(2) : nullptr, addend >= 0 ? args.in(addend) : nullptr,
                 args.out(0), static_cast<float*>(args.scratch), activation);
  });
}

MaybeKernel WinogradWeights(DType dtype, const Shape& weight, const Format& from, const Format& to, int threads) {
  if (dtype != DType::kFloat32 || weight.rank() != 4) return std::nullopt;
  for (const WinogradTiles tiles : {WinogradTiles::k2x2, WinogradTiles::k4x4}) {
    std::optional<Weights> weights = Weights::In(from, weight, false, tiles);
    if (!weights || to != Format::Opaque(weights->bytes(), NameOf(tiles))) continue;
    Kernel kernel{.implementation = NameOf(tiles), .input_formats = {from}, .output_formats = {to}, .threads = threads};
    return WithLoop(std::move(kernel), [weights = *std::move(weights), threads](const Arguments& args) {
      weights.Transform(args.in(0), args.out(0), threads);
    });
  }
  return std::nullopt;
}

MaybeKernel WinogradConvolutionGradData(const KernelSpec& spec, WinogradTiles tiles) {
  const auto& attrs = spec.attributes<ConvolutionGradDataAttrs>();
  auto made = Make(spec, attrs, spec.outputs[0].shape, spec.inputs[0].shape, true, tiles);
  if (!made) return std::nullopt;
  return WithLoop(std::move(made->kernel), [winograd = std::move(made->winograd)](const Arguments& args) {
    winograd.Run(args.in(0), args.in(1), nullptr, nullptr, args.out(0), static_cast<float*>(args.scratch),
                 ActivationPass(ActivationType::kNone));
  });
}

}  // namespace bindery::cpu
