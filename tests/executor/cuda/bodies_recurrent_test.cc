// Bodies of recurrent layers (bodies_fixture.h).
#include "executor/kernels/cuda/recurrent_body.h"
#include "symbol/ops/recurrent.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

constexpr int64_t kSteps = 5, kSamples = 3, kHidden = 9;

// A layer's inputs and what the reference makes of them; places among those that are there.
struct Layer {
  Layer(const RecurrentAttrs& a, DType dtype) : attrs(a) {
    const RecurrentForm form = FormOf(attrs, Data());
    shape = {.steps = form.steps,
             .samples = form.samples,
             .hidden = form.hidden,
             .gates = form.gates,
             .saved = form.saved,
             .next_step = form.next_step,
             .next_sample = form.next_sample,
             .lstm = attrs.cell == RecurrentCell::kLstm,
             .gru = attrs.cell == RecurrentCell::kGru,
             .tanh = attrs.cell == RecurrentCell::kTanh,
             .reverse = attrs.reverse,
             .reset_after = attrs.reset_after,
             .coupled = attrs.coupled,
             .clip = attrs.clip};
    std::ranges::copy(form.place, shape.place);
    std::ranges::copy(form.peephole, shape.peephole_place);
    const HostTensor all[] = {Uniform(Data(), -2, 2),
                              Uniform({Gates() * kHidden, kHidden}),
                              Uniform({kHidden}),
                              Uniform({3 * kHidden}),
                              Uniform({kSamples, kHidden}),
                              Uniform({kSamples, kHidden}, 0, 1),
                              Values({kSamples}, {3, kSteps, 0})};
    for (int slot = 0; slot < 7; ++slot) {
      if (Place(RecurrentOp().inputs, slot) >= 0) in.push_back(all[slot].Cast(slot < 6 ? dtype : DType::kInt32));
    }
    out = Reference(RecurrentOp(), attrs, in, static_cast<size_t>(RecurrentOp().outputs.Count(attrs)));
    const HostTensor grads[] = {Uniform(out[0].shape()), Uniform({kSamples, kHidden}),
                                Uniform({kSamples, kHidden}, 0, 1)};
    for (int slot = 0; slot < 3; ++slot) {
      if (Place(RecurrentGradOp().inputs, slot) >= 0) grad_in.push_back(grads[slot].Cast(dtype));
    }
    for (const int slot : {1, 3, 6}) {
      if (slot != 1 && Place(RecurrentOp().inputs, slot) < 0) continue;
      grad_in.push_back(in[static_cast<size_t>(Place(RecurrentOp().inputs, slot))]);
    }
    for (const int slot : {3, Gates() > 1 ? 4 : 0, 5}) {
      if (slot == 5 && !shape.lstm) continue;
      grad_in.push_back(out[static_cast<size_t>(Place(RecurrentOp().outputs, slot))]);
    }
    grad_out =
        Reference(RecurrentGradOp(), attrs, grad_in, static_cast<size_t>(RecurrentGradOp().outputs.Count(attrs)));
  }
  int64_t Gates() const { return attrs.cell == RecurrentCell::kLstm ? 4 : attrs.cell == RecurrentCell::kGru ? 3 : 1; }
  Shape Data() const {
    return attrs.layout == SequenceLayout::kTnc ? Shape{kSteps, kSamples, Gates() * kHidden}
                                                : Shape{kSamples, kSteps, Gates() * kHidden};
  }
  int Place(const Slots& slots, int slot) const { return slots.Place(attrs, slot); }
  Source In(int slot) const {
    const int place = Place(RecurrentOp().inputs, slot);
    return place < 0 ? Source() : From(in[static_cast<size_t>(place)]);
  }
  Source GradIn(int slot) const {
    const int place = Place(RecurrentGradOp().inputs, slot);
    return place < 0 ? Source() : From(grad_in[static_cast<size_t>(place)]);
  }
  Target Out(const Slots& slots, const std::vector<Target>& targets, int slot) const {
    const int place = Place(slots, slot);
    return place < 0 ? Target() : targets[static_cast<size_t>(place)];
  }
  RecurrentArgs Forward(const std::vector<Target>& targets, void* scratch) const {
    const auto to = [&](int slot) { return Out(RecurrentOp().outputs, targets, slot); };
    return {.shape = shape,
            .data = In(0),
            .weight = In(1),
            .bias = In(2),
            .peephole = In(3),
            .state = In(4),
            .cell = In(5),
            .lengths = In(6),
            .y = to(0),
            .last = to(1),
            .last_cell = to(2),
            .previous = to(3),
            .saved = to(4),
            .previous_cell = to(5),
            .scratch = scratch};
  }
  RecurrentGradArgs Backward(const std::vector<Target>& targets, void* scratch) const {
    const auto to = [&](int slot) { return Out(RecurrentGradOp().outputs, targets, slot); };
    return {.shape = shape,
            .dy = GradIn(0),
            .d_last = GradIn(1),
            .d_last_cell = GradIn(2),
            .weight = GradIn(3),
            .peephole = GradIn(4),
            .lengths = GradIn(5),
            .previous = GradIn(6),
            .saved = GradIn(7),
            .previous_cell = GradIn(8),
            .dx = to(0),
            .d_state = to(1),
            .d_cell = to(2),
            .d_product = to(3),
            .scratch = scratch};
  }

  RecurrentAttrs attrs;
  RecurrentShape shape;
  std::vector<HostTensor> in, out, grad_in, grad_out;
};

// Clipped in float64 alone: a rounded gate may be cut or not.
std::vector<RecurrentAttrs> Layers(DType dtype) {
  std::vector<RecurrentAttrs> layers;
  for (const RecurrentCell cell :
       {RecurrentCell::kRelu, RecurrentCell::kTanh, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    layers.push_back({.cell = cell, .hidden = kHidden});
    layers.push_back({.cell = cell,
                      .hidden = kHidden,
                      .layout = SequenceLayout::kNtc,
                      .order = GateOrder::kOnnx,
                      .reverse = true,
                      .initial = true,
                      .lengths = true});
  }
  layers.push_back({.hidden = kHidden,
                    .peepholes = true,
                    .coupled = true,
                    .clip = dtype == DType::kFloat32 ? 0 : 0.8,  // its ends may be the next number to those in double
                    .initial = true});
  layers.push_back({.cell = RecurrentCell::kGru, .hidden = kHidden, .reset_after = false, .lengths = true});
  return layers;
}

constexpr double kTerms = kSteps * kHidden;

TEST(CudaRecurrentBodiesTest, AllSteps) {
  std::vector<double> scratch(kSamples * 7 * kHidden);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    for (const RecurrentAttrs& attrs : Layers(dtype)) {
      const Layer layer(attrs, dtype);
      ExpectWrites(layer.out, kTerms, [&](const std::vector<Target>& out, int blocks, int threads) {
        RunOnCpu(layer.Forward(out, scratch.data()), blocks, threads);
      });
      ExpectWrites(layer.grad_out, kTerms, [&](const std::vector<Target>& out, int blocks, int threads) {
        RunOnCpu(layer.Backward(out, scratch.data()), blocks, threads);
      });
    }
  }
}

// A length that cannot be is reported, and all that its sample has is NaN.
TEST(CudaRecurrentBodiesTest, LengthsOutside) {
  std::vector<double> scratch(kSamples * 7 * kHidden);
  const uint64_t piece = 5;
  for (const RecurrentCell cell : {RecurrentCell::kTanh, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    Layer layer({.cell = cell, .hidden = kHidden, .reverse = true, .initial = true, .lengths = true}, DType::kFloat32);
    for (const double bad : {1.5, -1.0, 6.0, static_cast<double>(NAN)}) {
      const HostTensor lengths = Values({kSamples}, {3, bad, 0}).Cast(DType::kFloat32);
      layer.in.back() = layer.grad_in[static_cast<size_t>(layer.Place(RecurrentGradOp().inputs, 5))] = lengths;
      std::vector<Fault> faults(FaultRing::kSize);
      uint64_t heard = 0;
      const auto expect = [&](const std::vector<HostTensor>& expected, const auto& run) {
        std::vector<HostTensor> written = expected;
        std::vector<Target> targets;
        for (HostTensor& tensor : written) targets.push_back(To(&tensor));
        run(targets);
        for (size_t o = 0; o < written.size(); ++o) {
          const Shape& shape = written[o].shape();  // (steps, samples, ...), or of a last or first step
          for (int64_t i = 0; i < written[o].elements(); ++i) {
            const bool is_bad = i / shape[-1] % kSamples == 1;
            EXPECT_EQ(std::isnan(written[o].At(i)), is_bad) << "output " << o << ", element " << i;
          }
        }
      };
      expect(layer.out, [&](const std::vector<Target>& out) {
        RecurrentArgs args = layer.Forward(out, scratch.data());
        args.faults = {faults.data(), &piece, &heard};
        RunOnCpu(args, 2, 7);
      });
      EXPECT_EQ(faults[piece].piece, piece);
      EXPECT_TRUE(faults[piece].value == bad || std::isnan(bad));
      EXPECT_EQ(faults[piece].high, kSteps);
      expect(layer.grad_out,
             [&](const std::vector<Target>& out) { RunOnCpu(layer.Backward(out, scratch.data()), 2, 7); });
    }
  }
}

// What a library does between steps, by weights of gates first..last-1: their products of states; and what comes of
// gradients of such products.
void Multiply(const HostTensor& states, const HostTensor& weight, int64_t first, int64_t last, HostTensor* products) {
  const int64_t row = products->shape()[1];
  for (int64_t n = 0; n < kSamples; ++n) {
    for (int64_t j = first * kHidden; j < last * kHidden; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kHidden; ++k) sum += states.At(n * kHidden + k) * weight.At(j * kHidden + k);
      products->Set(n * row + j, sum);
    }
  }
}
void MultiplyBack(const HostTensor& d, const HostTensor& weight, int64_t first, int64_t last, HostTensor* through) {
  const int64_t row = d.shape()[1];
  for (int64_t n = 0; n < kSamples; ++n) {
    for (int64_t i = 0; i < kHidden; ++i) {
      double sum = 0;
      for (int64_t j = first * kHidden; j < last * kHidden; ++j) sum += d.At(n * row + j) * weight.At(j * kHidden + i);
      through->Set(n * kHidden + i, sum);
    }
  }
}

TEST(CudaRecurrentBodiesTest, StepByStep) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    for (const RecurrentAttrs& attrs : Layers(dtype)) {
      const Layer layer(attrs, dtype);
      const HostTensor& weight = layer.in[1];
      const int64_t gates = layer.Gates();
      const bool resets_before = layer.shape.gru && !attrs.reset_after;
      const int64_t at_once = resets_before ? 2 : gates;  // of the state before
      HostTensor h(ComputedWith(dtype), {kSamples, kHidden}), c = h, left = h;
      HostTensor products(h.dtype(), {kSamples, gates * kHidden});
      ExpectWrites(layer.out, kTerms, [&](const std::vector<Target>& out, int blocks, int threads) {
        RecurrentStepArgs step{.layer = layer.Forward(out, nullptr),
                               .h = h.raw(),
                               .c = c.raw(),
                               .left = left.raw(),
                               .products = products.raw()};
        const auto run = [&](RecurrentPhase phase) {
          step.phase = phase;
          RunOnCpu(step, blocks, threads);
        };
        run(RecurrentPhase::kBegin);
        for (; step.step < kSteps; ++step.step) {
          Multiply(h, weight, 0, at_once, &products);
          if (resets_before) {
            run(RecurrentPhase::kReset);
            Multiply(left, weight, 2, 3, &products);
          }
          run(RecurrentPhase::kStep);
        }
      });
      ExpectWrites(layer.grad_out, kTerms, [&](const std::vector<Target>& out, int blocks, int threads) {
        RecurrentStepGradArgs step{.layer = layer.Backward(out, nullptr),
                                   .dh = h.raw(),
                                   .dc = c.raw(),
                                   .through = left.raw(),
                                   .d = products.raw()};
        const auto run = [&](RecurrentPhase phase) {
          step.phase = phase;
          RunOnCpu(step, blocks, threads);
        };
        run(RecurrentPhase::kBegin);
        for (step.step = kSteps - 1; step.step >= 0; --step.step) {
          run(RecurrentPhase::kStep);
          if (resets_before) {
            MultiplyBack(products, weight, 2, 3, &left);
            run(RecurrentPhase::kReset);
          }
          MultiplyBack(products, weight, 0, at_once, &left);
        }
        run(RecurrentPhase::kEnd);
      });
    }
  }
}

}  // namespace
}  // namespace bindery::cuda
