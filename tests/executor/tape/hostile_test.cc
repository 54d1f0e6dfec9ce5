// Wrong use of the tape gives errors that name the operation, and leaves everything usable; long tapes and long runs
// leave nothing behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "engine/memory/storage.h"
#include "executor/tape/tape.h"
#include "symbol/ops.h"
#include "tests/executor/tape/helpers.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class HostileTape : public testing::Test {
 protected:
  HostileTape() { x_.AttachGradient(); }
  NDArray Square() {
    const RecordScope record;
    return x_ * x_;
  }
  void ExpectWorks() {
    Square().Backward();
    ExpectNumbers(x_.gradient(), {2}, {2, 4});
  }
  NDArray x_ = Values({2}, {1, 2});
};

TEST_F(HostileTape, NothingRecorded) {
  const std::string nothing = "Backward: nothing was recorded for head 0";
  EXPECT_TRUE(Contains(MessageOf([&] { (x_ * 2).Backward(); }), nothing));
  EXPECT_TRUE(Contains(MessageOf([&] { x_.Backward(); }), nothing));
  const RecordScope record;
  EXPECT_TRUE(Contains(MessageOf([&] { (Values({1}, {1}) * 2).Backward(); }), nothing));
  EXPECT_TRUE(Contains(MessageOf([&] { x_.ArgMax(0).Backward(); }), nothing));
  EXPECT_EQ(MessageOf([&] { Backward({}); }), "Error: Backward: no heads");
  EXPECT_EQ(MessageOf([&] { Backward({NDArray()}); }), "Error: Backward: head 0 is an empty array");
  EXPECT_TRUE(Contains(MessageOf([&] { Values({1}, {1}).gradient(); }), "gradient: none is attached"));
  ExpectWorks();
}

TEST_F(HostileTape, UsedUp) {
  NDArray y = Square(), z;
  {
    const RecordScope record;
    z = y * 3;
  }
  Backward({y}, {.retain = true});
  y.Backward();
  EXPECT_EQ(MessageOf([&] { y.Backward(); }),
            "Error: Backward: the values of Mul were given back by an earlier Backward; tell that one to retain them");
  EXPECT_TRUE(Contains(MessageOf([&] { z.Backward(); }), "values of Mul were given back"));
  ExpectNumbers(y, {2}, {1, 4});  // the array itself stays
  ExpectWorks();
}

TEST_F(HostileTape, ChangedInPlace) {
  NDArray y = Square();
  x_ += 1;
  EXPECT_EQ(MessageOf([&] { y.Backward(); }),
            "Error: Backward: input 0 of Mul was changed in place after it was recorded, and its value is needed; do "
            "that after Backward, or on a copy");
  x_ -= 1;
  ExpectWorks();
  NDArray root;
  {
    const RecordScope record;
    root = Apply(Sqrt, {x_});
    EXPECT_TRUE(Contains(MessageOf([&] { x_ += 1; }), "operator+=: changes in place are not recorded"));
    EXPECT_TRUE(Contains(MessageOf([&] { root *= 2; }), "operator*=: changes in place are not recorded"));
    EXPECT_TRUE(Contains(MessageOf([&] { Values({2}, {1, 1}) += root; }), "operator+="));
    EXPECT_TRUE(Contains(MessageOf([&] { x_.Fill(0); }), "Fill: changes in place"));
    EXPECT_TRUE(Contains(MessageOf([&] { x_.CopyFrom(Values({2}, {1, 1})); }), "CopyFrom: changes in place"));
    NDArray free = Values({2}, {1, 1});
    free += 1;  // the tape does not know it
  }
  root.tensor().Fill(1);
  EXPECT_TRUE(Contains(MessageOf([&] { root.Backward(); }), "result 0 of Sqrt was changed in place"));
  // What no gradient needs may change.
  NDArray sum;
  {
    const RecordScope record;
    sum = x_ + x_;
  }
  x_ *= 1;
  sum.Backward();
  ExpectNumbers(x_.gradient(), {2}, {2, 2});
  ExpectWorks();
}

// Whichever call Backward comes to first. What is read of either value counts, and no other.
TEST_F(HostileTape, ChangedBetweenTwoCalls) {
  NDArray w = Values({2}, {3, 3});
  w.AttachGradient();
  for (const bool old_is_first : {false, true}) {
    NDArray before, after, y;
    const auto record = [&](bool needs_old) {
      const RecordScope scope;
      before = needs_old ? x_ * w : x_ + w;
    };
    for (const bool needs_old : {true, false}) {
      record(needs_old);
      w.Fill(5);
      const RecordScope scope;
      after = x_ * w;
      y = old_is_first ? before + after : after + before;
      if (needs_old) {
        EXPECT_EQ(MessageOf([&] { y.Backward(); }),
                  "Error: Backward: input 1 of Mul was changed in place after it was recorded, and its value is "
                  "needed; do that after Backward, or on a copy");
      } else {
        y.Backward();
        ExpectNumbers(x_.gradient(), {2}, {6, 6});
        ExpectNumbers(w.gradient(), {2}, {2, 3});
      }
    }
  }
  ExpectWorks();
}

TEST_F(HostileTape, HeadGradientsThatDoNotFit) {
  const NDArray y = Square();
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              y.Backward(Values({3}, {1, 1, 1}));
            }),
            "ShapeError: Backward: gradient of Mul, head 0: expected float32 (2), got float32 (3)");
  EXPECT_THROW(y.Backward(Values({2}, {1, 1}).As(DType::kFloat64)), ShapeError);
  EXPECT_TRUE(Contains(MessageOf([&] { y.Backward(Values({2}, {1, 1}, 1)); }), "the gradient of Mul, head 0, lies on"));
  EXPECT_TRUE(Contains(MessageOf([&] { Backward({y}, {.head_gradients = {y, y}}); }), "expected 1 head gradients"));
  EXPECT_THROW(Backward({y}, {.batch_size = -1}), Error);
  y.Backward();
  ExpectNumbers(x_.gradient(), {2}, {2, 4});
}

TEST_F(HostileTape, OperatorsWithoutGradients) {
  NDArray y;
  {
    const RecordScope record;
    y = Apply(Floor, {x_}) * x_ + ApplyAll(TopK, {x_}, {.k = 2, .axis = 0})[0];
  }
  EXPECT_NO_THROW(y.ToHost());
  NDArray scan;
  {
    const RecordScope record;
    scan = Apply([](const Symbol& s) { return Cast(ArgMax(s, {.axis = 0}), {.dtype = DType::kFloat32}); }, {x_});
  }
  EXPECT_TRUE(Contains(MessageOf([&] { scan.Backward(); }), "ArgMax"));
  ExpectWorks();
}

TEST_F(HostileTape, ModesThatDiffer) {
  NDArray y;
  {
    const RecordScope record;
    y = x_ * x_;
    const ModeScope mode(Mode::kPredict);
    y = y * 2;
  }
  EXPECT_TRUE(Contains(MessageOf([&] { y.Backward(); }), "Mul was recorded in"));
  ExpectWorks();
}

TEST_F(HostileTape, AttachingWhereItCannotBe) {
  NDArray y = Square(), whole = x_.As(DType::kInt32);
  EXPECT_TRUE(Contains(MessageOf([&] { y.AttachGradient(); }), "AttachGradient: the array is a recorded result"));
  EXPECT_TRUE(Contains(MessageOf([&] { whole.AttachGradient(); }), "arrays of int32 have no gradient"));
  EXPECT_THROW(NDArray().AttachGradient(), Error);
}

// An error when a call runs reaches the gradient, too, and goes with the next good round.
TEST_F(HostileTape, ErrorsReachGradients) {
  NDArray w = Values({2, 1}, {1, 2});
  w.AttachGradient();
  for (const float row : {7.0f, 1.0f}) {
    NDArray y;
    {
      const RecordScope record;
      y = Apply(Take, {w, Values({1}, {row})}, {.mode = IndexMode::kRaise}) * 3;
    }
    y.Backward();
    if (row > 1) {
      EXPECT_THROW(w.gradient().ToHost(), Error);
      EXPECT_THROW(WaitAll(), Error);
    } else {
      ExpectNumbers(w.gradient(), {2, 1}, {0, 3});
    }
  }
  ExpectWorks();
}

// Those that add up are errors until they are filled anew: what is in them would be less than was asked for.
TEST_F(HostileTape, ErrorsReachGradientsThatAddUp) {
  NDArray w = Values({2, 1}, {1, 2});
  w.AttachGradient(GradReq::kAdd);
  const auto add = [&w](float row) {
    NDArray y;
    {
      const RecordScope record;
      y = Apply(Take, {w, Values({1}, {row})}, {.mode = IndexMode::kRaise}) * 3;
    }
    y.Backward();
  };
  add(1);
  ExpectNumbers(w.gradient(), {2, 1}, {0, 3});
  for (const float row : {7.0f, 1.0f}) {
    add(row);
    EXPECT_THROW(w.gradient().ToHost(), Error);
  }
  EXPECT_THROW(WaitAll(), Error);
  w.gradient().Fill(0);
  for (const float row : {1.0f, 0.0f, 1.0f}) add(row);
  ExpectNumbers(w.gradient(), {2, 1}, {3, 6});
  ExpectWorks();
}

// Whatever fails of what a device's first call makes for all: later calls make it again.
TEST(HostileDevice, MayFailAtFirst) {
  const Device device = Sim(0);
  for (int64_t n = 1; n <= 8; ++n) {
    const auto engine = MakeThreadedEngine();
    const NDArray x(Tensor(engine, device, DType::kFloat32, {2}));
    x.Wait();
    sim::FailKernel(device, n);
    try {
      (x + 1).ToHost();
    } catch (const DeviceError&) {
    }
    sim::FailKernel(device, 0);
    EXPECT_EQ((x + 1).ToHost(), HostTensor::From({2}, {1, 1})) << n;
  }
}

TEST_F(HostileTape, LongTapes) {
  const int kCalls = 20000;
  NDArray y = x_;
  {
    const RecordScope record;
    for (int i = 0; i < kCalls; ++i) y = y + 1;
  }
  ExpectNumbers(y, {2}, {kCalls + 1.0, kCalls + 2.0});
  y = NDArray();  // one after the other, on no deep stack
  {
    const RecordScope record;
    y = x_;
    for (int i = 0; i < 300; ++i) y = y + x_;
  }
  y.Backward();
  ExpectNumbers(x_.gradient(), {2}, {301, 301});
}

// A thousand recorded steps: one set of programs, no more memory.
TEST_F(HostileTape, AThousandStepsLeaveNothing) {
  NDArray w = NDArray::Normal({16, 8}, 0.1, TestDevice()), running = NDArray::Zeros({8}, TestDevice()),
          var = NDArray::Full({8}, 1, TestDevice());
  const NDArray data = NDArray::Normal({4, 8}, 1, TestDevice()), one = NDArray::Full({8}, 1, TestDevice());
  w.AttachGradient();
  TapeStatistics first;
  // The least of many steps: a worker lets go of what it has used a moment after the last wait is over.
  int64_t early = std::numeric_limits<int64_t>::max(), late = early;
  for (int step = 0; step < 1000; ++step) {
    NDArray loss;
    {
      const RecordScope record;
      NDArray h = Apply(BatchNorm, {data, one, one, running, var});
      h = Apply(Dropout, {Apply(Tanh, {Apply(FullyConnected, {h, w}, {.num_hidden = 16, .no_bias = true})})},
                {.p = 0.2});
      loss = (h * h).Mean();
    }
    loss.Backward();
    w -= 0.1 / (step + 1) * w.gradient();
    ASSERT_GE(loss.Scalar(), 0);
    WaitAll();
    const int64_t in_use = DefaultStorage()->Stats(TestDevice()).in_use;
    if (step == 300) first = ArrayStatistics();  // the numbers that are kept have come and gone
    if (step >= 300 && step < 400) early = std::min(early, in_use);
    if (step >= 900) late = std::min(late, in_use);
  }
  EXPECT_LE(late, early);
  const TapeStatistics last = ArrayStatistics();
  EXPECT_EQ(last.compiled, first.compiled);
  EXPECT_EQ(last.calls, first.calls);
  EXPECT_EQ(last.backwards, first.backwards);
}

}  // namespace
}  // namespace bindery
