#include "symbol/ops/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/compose.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

// --- Resample

void CheckResample(const AnyAttrs& any) {
  const auto& a = any.get<ResampleAttrs>();
  rule::CheckAxisAttr("axis", a.axis);
  rule::CheckAtLeast("extent", a.extent, 0);
  if (a.starts.empty() || a.starts.front() != 0 || !std::ranges::is_sorted(a.starts) ||
      a.starts.back() != std::ssize(a.indices)) {
    Throw<ModelError>("starts must rise from 0 to the number of indices, {}, got {}", a.indices.size(),
                      rule::ToString(a.starts));
  }
  if (!a.weights.empty() && a.weights.size() != a.indices.size()) {
    Throw<ModelError>("weights must be as many as indices, {}, got {}", a.indices.size(), a.weights.size());
  }
  for (const int64_t index : a.indices) {
    if (index < 0 || index >= a.extent) Throw<ModelError>("index {} is outside of the extent {}", index, a.extent);
  }
  for (const double weight : a.weights) rule::CheckFinite("weights", weight);
}

void InferResample(InferContext& c) {
  const auto& attrs = c.attrs<ResampleAttrs>();
  const rule::Value data = c.in(0), output = c.out(0);
  rule::SameDType({data, output});
  if (!rule::SameRank(data, output)) return;
  const int axis = rule::Axis(attrs.axis, *data.shape());
  output.Set(data.shape()->With(axis, std::ssize(attrs.starts) - 1));
  data.Set(output.shape()->With(axis, attrs.extent));
  data.Carry(output, [&](int own) { return own == axis ? -1 : own; });
}

// dx = dy by the transposed table: input i takes part in the outputs that have a term of it.
std::vector<Symbol> ResampleGradient(const GradientContext& g) {
  const auto& a = g.attrs<ResampleAttrs>();
  const int64_t outputs = std::ssize(a.starts) - 1;
  CheckTerms(a.extent);  // of data without samples it may be any
  ResampleAttrs back{.axis = a.axis, .extent = outputs};
  back.starts.assign(a.extent + 1, 0);
  for (const int64_t index : a.indices) ++back.starts[index + 1];
  std::partial_sum(back.starts.begin(), back.starts.end(), back.starts.begin());
  std::vector<int64_t> next = back.starts;
  back.indices.resize(a.indices.size());
  back.weights.resize(a.weights.size());
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t k = a.starts[o]; k < a.starts[o + 1]; ++k) {
      const int64_t place = next[a.indices[k]]++;
      back.indices[place] = o;
      if (!a.weights.empty()) back.weights[place] = a.weights[k];
    }
  }
  return {Resample(g.output_grad(0), back)};
}

// --- Resize

// What is known of one axis.
struct Line {
  int64_t in = 0, out = 0;
  // The scale as a quotient, which is not rounded before it is used: out / in, or what these were rounded from.
  double up = 1, down = 1;
  double begin = 0, end = 1;  // roi
  double scale() const { return up / down; }
};

// Where output i lies; NaN where `extrapolation` stands.
double Place(const ResizeAttrs& attrs, const Line& line, int64_t i) {
  const auto at = static_cast<double>(i), last_in = static_cast<double>(line.in - 1);
  const double length = static_cast<double>(line.in) * line.up / line.down;
  const auto unscaled = [&](double x) { return x * line.down / line.up; };
  const double half = unscaled(at + 0.5) - 0.5;
  switch (attrs.coordinates) {
    case Coordinates::kHalfPixel: return half;
    case Coordinates::kHalfPixelSymmetric: {
      const double center = static_cast<double>(line.in) / 2;
      return center * (1 - static_cast<double>(line.out) / length) + half;
    }
    case Coordinates::kPytorchHalfPixel: return length == 1 ? -0.5 : half;
    case Coordinates::kAlignCorners: return length == 1 ? 0 : at * last_in / (length - 1);
    case Coordinates::kAsymmetric: return unscaled(at);
    case Coordinates::kHalfPixelForNearest: return unscaled(at + 0.5);
    case Coordinates::kCropAndResize: break;
  }
  // Exact at both ends, where what is outside begins.
  const double place = length == 1 ? (line.begin + line.end) / 2 * last_in
                                   : (line.begin * (length - 1 - at) + line.end * at) * last_in / (length - 1);
  return place < 0 || place > last_in ? std::nan("") : place;
}

// Keys' kernel: 1 at 0, 0 from 2 on.
double Cubic(double x, double a) {
  x = std::abs(x);
  if (x >= 2) return 0;
  return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

// Of the two neighbours, at 0 and 1, the weights: 0 < ratio <= 1 is where the place is.
double NearestWeight(NearestMode mode, double ratio, bool right) {
  bool takes_right = ratio == 1;
  switch (mode) {
    case NearestMode::kRoundPreferFloor: takes_right = takes_right || ratio > 0.5; break;
    case NearestMode::kRoundPreferCeil: takes_right = takes_right || ratio >= 0.5; break;
    case NearestMode::kFloor: break;
    case NearestMode::kCeil: takes_right = true; break;
  }
  return takes_right == right ? 1 : 0;
}

// The table of an axis. Between `left` and the element after it lies the place, `ratio` right of `left`; it has terms on
// both sides, and one outside of the input is the nearest inside.
ResampleAttrs TableOf(const ResizeAttrs& attrs, int axis, const Line& line) {
  ResampleAttrs table{.axis = axis, .extent = line.in, .starts = {0}, .outside = attrs.extrapolation};
  const bool nearest = attrs.mode == ResizeMode::kNearest;
  const double shrink = attrs.antialias && !nearest ? std::min(line.scale(), 1.0) : 1;
  const double reach = attrs.mode == ResizeMode::kCubic ? 2 : 1;
  const double farthest = std::min(std::ceil(reach / shrink), 0x1p31);  // `shrink` may be 0 where there is no output
  const auto before = static_cast<int64_t>(farthest) - 1;               // terms left of `left`
  CheckTerms(CheckedMul(line.out, 2 * before + 2, "the terms"));
  constexpr int64_t kFarthestPlace = int64_t{1} << 53;  // whole numbers of a double
  if (line.in > kFarthestPlace) Throw<ShapeError>("an axis of {} elements is too long to be resized", line.in);
  for (int64_t i = 0; i < line.out; ++i) {
    const double place = Place(attrs, line, i);
    std::vector<double> weights;
    std::vector<int64_t> indices;
    // Far outside everything is the first or the last element.
    const double bound = static_cast<double>(line.in) + static_cast<double>(before) + 2;
    const double inside = std::isnan(place) ? 0 : std::clamp(place, -bound, bound);
    const auto left = static_cast<int64_t>(std::ceil(inside)) - 1;
    const double ratio = inside - static_cast<double>(left);
    for (int64_t k = -before; k <= before + 1 && !std::isnan(place); ++k) {
      const double distance = (static_cast<double>(k) - ratio) * shrink;
      const int64_t index = left + k;
      const bool outside = index < 0 || index >= line.in;
      double weight = nearest                            ? NearestWeight(attrs.nearest, ratio, k == 1)
                      : attrs.mode == ResizeMode::kCubic ? Cubic(distance, attrs.cubic_coefficient)
                                                         : std::max(0.0, 1 - std::abs(distance));
      if (outside && attrs.exclude_outside && !nearest) weight = 0;
      if (weight == 0) continue;
      const int64_t taken = std::clamp<int64_t>(index, 0, line.in - 1);
      if (!indices.empty() && indices.back() == taken) {
        weights.back() += weight;
      } else {
        indices.push_back(taken);
        weights.push_back(weight);
      }
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if ((shrink < 1 || attrs.exclude_outside) && !nearest && sum != 0) {
      for (double& weight : weights) weight /= sum;
    }
    table.indices.insert(table.indices.end(), indices.begin(), indices.end());
    table.weights.insert(table.weights.end(), weights.begin(), weights.end());
    table.starts.push_back(std::ssize(table.indices));
  }
  const auto is_one = [](double weight) { return weight == 1; };
  if (std::ranges::all_of(table.weights, is_one)) table.weights.clear();
  return table;
}

bool IsIdentity(const ResampleAttrs& table) {
  if (!table.weights.empty() || std::ssize(table.indices) != table.extent) return false;
  for (int64_t i = 0; i < table.extent; ++i) {
    if (table.indices[i] != i || table.starts[i + 1] != i + 1) return false;
  }
  return std::ssize(table.starts) == table.extent + 1;
}

void CheckResize(const AnyAttrs& any) {
  const auto& attrs = any.get<ResizeAttrs>();
  rule::CheckAxesAttr("axes", attrs.axes);
  rule::CheckFinite("cubic_coefficient", attrs.cubic_coefficient);
  rule::CheckFinite("extrapolation", attrs.extrapolation);
  for (const double number : attrs.roi) rule::CheckFinite("roi", number);
  for (const double scale : attrs.scales) {
    if (!(scale > 0) || !std::isfinite(scale)) Throw<ModelError>("scales must be above 0, got {}", scale);
  }
  const rule::ExtentList sizes{attrs.sizes, attrs.sizes_batches};
  sizes.CheckLength("sizes_batches");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes.Follows(i)) rule::CheckAtLeast("sizes", sizes.fixed[i], 0);
  }
}

int64_t SizeFor(double size) {
  if (size > 0x1p31) Throw<ShapeError>("an extent of {} is too large", size);
  return static_cast<int64_t>(size);
}

// What becomes of each axis that is named, or of all.
std::vector<Line> LinesOf(const ResizeAttrs& attrs, const std::vector<int64_t>& extents, std::optional<int64_t> batch) {
  const size_t count = extents.size();
  const bool scaled = !attrs.scales.empty();
  if (scaled == !attrs.sizes.empty())
    Throw<ShapeError>("expected scales or sizes, not both, got {} and {}", attrs.scales.size(), attrs.sizes.size());
  if ((scaled ? attrs.scales.size() : attrs.sizes.size()) != count) {
    Throw<ShapeError>("expected {} {}, one for each axis", count, scaled ? "scales" : "sizes");
  }
  const bool cropped = attrs.coordinates == Coordinates::kCropAndResize;
  if (cropped && attrs.roi.size() != 2 * count) {
    Throw<ShapeError>("roi must have {} entries, a begin and an end for each axis, got {}", 2 * count,
                      attrs.roi.size());
  }
  std::vector<Line> lines(count);
  for (size_t i = 0; i < count; ++i) {
    Line& line = lines[i];
    line.in = extents[i];
    if (line.in == 0) Throw<ShapeError>("an extent of 0 cannot be resized");
    if (scaled) {
      line.up = attrs.scales[i];
      // ONNX' scales are of float32, where 0.7 times 10 is 7.
      line.out = SizeFor(std::floor(static_cast<float>(line.up) * static_cast<float>(line.in)));
    } else {
      line.out = rule::ExtentAt({attrs.sizes, attrs.sizes_batches}, i, batch.value_or(0));
      line.up = static_cast<double>(line.out);
      line.down = static_cast<double>(line.in);
    }
    if (cropped) {
      line.begin = attrs.roi[i];
      line.end = attrs.roi[count + i];
    }
  }
  if (attrs.aspect == AspectPolicy::kStretch || scaled || lines.empty()) return lines;
  const auto less = [](const Line& a, const Line& b) { return a.scale() < b.scale(); };
  const Line decides =
      attrs.aspect == AspectPolicy::kNotLarger ? std::ranges::min(lines, less) : std::ranges::max(lines, less);
  for (Line& line : lines) {
    line.up = decides.up;
    line.down = decides.down;
    line.out = SizeFor(std::floor(static_cast<double>(line.in) * line.up / line.down + 0.5));
  }
  return lines;
}

// Axis by axis, those first that leave the least. One that keeps its extent is left alone, whatever the batch is.
std::vector<Symbol> ComposeResize(const ComposeContext& c) {
  const auto& attrs = c.attrs<ResizeAttrs>();
  const Extents& shape = c.shapes[0];
  const int rank = static_cast<int>(shape.size());
  std::vector<int64_t> axes = attrs.axes, extents;
  for (int axis = 0; axis < rank && attrs.axes.empty(); ++axis) axes.push_back(axis);
  for (int64_t& axis : axes) {
    axis = rule::Axis(axis, rule::Unknown(rank));
    extents.push_back(At(shape[axis], c.batch));
  }
  const std::vector<Line> lines = LinesOf(attrs, extents, c.batch);
  std::vector<size_t> order(axes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const double of_a = lines[a].scale(), of_b = lines[b].scale();
    return of_a != of_b ? of_a < of_b : axes[a] > axes[b];
  });
  Symbol resized = c.inputs[0];
  for (const size_t i : order) {
    const Extent& extent = shape[axes[i]];
    const rule::ExtentList sizes{attrs.sizes, attrs.sizes_batches};
    const bool whole = attrs.coordinates != Coordinates::kCropAndResize || (lines[i].begin == 0 && lines[i].end == 1);
    const bool same =
        attrs.scales.empty() ? attrs.aspect == AspectPolicy::kStretch && sizes[i] == extent : attrs.scales[i] == 1;
    if (extent.batches != 0 && whole && same) continue;
    if (extent.batches != 0 && c.of_every_batch) return {};
    const ResampleAttrs table = TableOf(attrs, static_cast<int>(axes[i]), lines[i]);
    if (!IsIdentity(table)) resized = Resample(resized, table);
  }
  return {Identity(resized, c.name)};
}

}  // namespace

void CheckTerms(int64_t count) {
  constexpr int64_t kMost = 1 << 24;
  if (count > kMost) Throw<ShapeError>("a table of {} terms along an axis is too long", count);
}

const OpDef& ResampleOp() {
  static const OpDef op = {
      .name = "Resample",
      .doc = "Along an axis, weighted sums of elements.",
      .attrs_type = &AttrsOf<ResampleAttrs>(),
      .infer = InferResample,
      .check = CheckResample,
      .gradient = ResampleGradient,
  };
  return op;
}

const OpDef& ResizeOp() {
  static const OpDef op = Composed("Resize", "data sampled at other places: nearest, linear or cubic.",
                                   &AttrsOf<ResizeAttrs>(), ComposeResize, CheckResize);
  return op;
}

}  // namespace bindery
