#include "executor/group/device_feed.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "engine/backend.h"

namespace bindery {
namespace {

Tensor NewTensor(const std::shared_ptr<Engine>& engine, Device device, DType dtype, int64_t elements) {
  const std::shared_ptr<Chunk> chunk = DefaultStorage()->Allocate(device, elements * SizeOf(dtype));
  return Tensor(engine, device, dtype, {elements}, chunk->data(), chunk, engine->NewVar());
}

}  // namespace

Shape WholeShape(const std::vector<Tensor>& pieces, const ValueType& type, const Engine& engine,
                 const std::string& name) {
  const int axis = type.batch_axis;
  Shape whole;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].engine().get() != &engine) {
      throw DataError(fmt::format("\"{}\": {}", name,
                                  pieces[i].defined() ? "the tensor belongs to another engine" : "an empty tensor"));
    }
    const Shape& piece = pieces[i].shape();
    if (i == 0) whole = piece;
    Shape expected = whole;
    if (axis >= 0 && axis < piece.rank() && axis < whole.rank()) {
      if (i > 0) whole.Set(axis, whole[axis] + piece[axis]);
      expected.Set(axis, piece[axis]);
      const int64_t fold = type.batch_fold.outer * type.batch_fold.inner;
      if (fold > 0 && piece[axis] % fold != 0) {
        throw DataError(
            fmt::format("\"{}\": a piece of shape {} has no whole samples along axis {}", name, piece, axis));
      }
    }
    if (piece != expected) {
      throw DataError(
          fmt::format("\"{}\": its pieces have different shapes, {} and {}", name, pieces[0].shape(), piece));
    }
  }
  return whole;
}

void CheckPieces(const std::vector<Tensor>& pieces, const ValueType& type, size_t places, const std::string& name) {
  if (type.batch_axis >= 0 || pieces.size() == 1 || pieces.size() == places) return;
  const std::string one_each = places > 1 ? fmt::format(", or {} for the devices with samples", places) : "";
  throw DataError(fmt::format("\"{}\" has no batch axis: expected one piece{}, got {}", name, one_each, pieces.size()));
}

std::vector<Tensor> OnHost(const std::shared_ptr<Engine>& engine, HostTensor value) {
  const auto kept = std::make_shared<HostTensor>(std::move(value));
  return {Tensor(engine, Cpu(), kept->dtype(), kept->shape(), kept->raw(), kept, engine->NewVar())};
}

void DeviceFeed::Add(const std::vector<Tensor>& pieces, ValueType type, SampleRange range, const Tensor& target,
                     double weight) {
  if (weight != 1) weights_.emplace_back(target, weight);
  if (weight == 0) return;
  const auto add = [&](const Tensor& piece, Copy copy) {
    copy.from.array = piece;
    copy.to.array = target;
    if (!ShareMemory(piece.device(), device_)) copy.from = Fetch(copy);
    reads_.push_back(copy.from.array.var());
    copies_.push_back(std::move(copy));
  };
  if (type.batch_axis < 0) {
    Check(pieces.size() == 1 || pieces.size() == places_, "the pieces of an array were counted");
    return add(pieces[pieces.size() == 1 ? 0 : place_], {.from = {}, .to = {}, .run = target.elements()});
  }
  int64_t begin = 0;
  for (const Tensor& piece : pieces) {
    type.shape = piece.shape();
    const Shape view = type.SampleView();  // (outer, samples, inner)
    const int64_t inner = view[2], first = std::max(begin, range.begin), last = std::min(begin + view[1], range.end);
    if (first < last) {
      add(piece, {.from = {.array = {}, .first = (first - begin) * inner, .stride = view[1] * inner},
                  .to = {.array = {}, .first = (first - range.begin) * inner, .stride = range.size() * inner},
                  .outer = view[0],
                  .run = (last - first) * inner});
    }
    begin += view[1];
  }
}

DeviceFeed::Rows DeviceFeed::Fetch(const Copy& copy) {
  Rows from = copy.from;
  const int64_t elements = copy.outer * copy.run;
  const DType dtype = from.array.dtype();
  if (copy.outer > 1 && from.stride != copy.run) {  // put together where it is
    const Tensor cut = NewTensor(engine_, from.array.device(), dtype, elements);
    engine_->Push({.name = "cut",
                   .device = cut.device(),
                   .reads = {from.array.var()},
                   .writes = {cut.var()},
                   .run = [from, cut, outer = copy.outer, bytes = copy.run * SizeOf(dtype),
                           &flat = Backend::Of(cut.device().kind).flat()](const OpContext& context) {
                     flat.CopyRows(context.stream, from.address(), from.stride_bytes(), cut.address(), bytes, outer,
                                   bytes);
                   }});
    from = {.array = cut};
  }
  const Tensor here = NewTensor(engine_, device_, dtype, elements);
  engine_->Push({.name = "fetch",
                 .device = device_,
                 .reads = {from.array.var()},
                 .writes = {here.var()},
                 .run =
                     [from, here](const OpContext& context) {
                       CopyBetween(context.stream, from.array.device(), from.address(), here.device(), here.address(),
                                   here.bytes());
                     },
                 .lane = Lane::kCopy,
                 .at = [from_device = from.array.device()] { return fmt::format("a copy from {}", from_device); }});
  return {.array = here, .first = 0, .stride = copy.run};
}

void DeviceFeed::Run(Stream& stream) const {
  const FlatKernels& flat = Backend::Of(device_.kind).flat();
  for (const auto& [from, to, outer, run] : copies_) {
    const DType in = from.array.dtype(), out = to.array.dtype();
    if (in == out) {
      flat.CopyRows(stream, from.address(), from.stride_bytes(), to.address(), to.stride_bytes(), outer,
                    run * SizeOf(in));
      continue;
    }
    for (int64_t i = 0; i < outer; ++i) {
      flat.Cast(stream, in, from.address() + i * from.stride_bytes(), out, to.address() + i * to.stride_bytes(), run);
    }
  }
  for (const auto& [target, weight] : weights_) {
    if (weight == 0) {
      flat.Zero(stream, target.address(), target.bytes());
    } else {
      flat.Scale(stream, target.dtype(), target.address(), target.elements(), weight);
    }
  }
}

void DeviceFeed::Push(const char* name, const VarPtr& var, bool all) const {
  std::vector<VarPtr> reads = reads_;
  if (!all) reads.push_back(var);  // the rest of what it stands for must be whole
  engine_->Push({.name = name,
                 .device = device_,
                 .reads = std::move(reads),
                 .writes = {var},
                 .run = [feed = *this](const OpContext& context) { feed.Run(context.stream); }});
}

}  // namespace bindery
