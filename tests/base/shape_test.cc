#include "base/shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace bindery {
namespace {

TEST(ShapeTest, DefaultIsAScalar) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.Elements(), 1);
  EXPECT_EQ(scalar.CountFrom(0), 1);
  EXPECT_EQ(scalar.CountTo(0), 1);
  EXPECT_TRUE(scalar.IsKnown());
  EXPECT_EQ(ToString(scalar), "()");
  EXPECT_EQ(scalar, Shape(std::vector<int64_t>{}));
  EXPECT_THROW(scalar[0], ShapeError);
  EXPECT_THROW(scalar[-1], ShapeError);
}

TEST(ShapeTest, IndexesFromBothEnds) {
  const Shape shape{64, 1, 28, 30};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape[0], 64);
  EXPECT_EQ(shape[3], 30);
  EXPECT_EQ(shape[-1], 30);
  EXPECT_EQ(shape[-4], 64);
  EXPECT_EQ(shape.Axis(-2), 2);
  EXPECT_THROW(shape[4], ShapeError);
  EXPECT_THROW(shape[-5], ShapeError);
  EXPECT_EQ(std::vector<int64_t>(shape.begin(), shape.end()), (std::vector<int64_t>{64, 1, 28, 30}));
}

TEST(ShapeTest, CountsElements) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.Elements(), 24);
  EXPECT_EQ(shape.CountFrom(0), 24);
  EXPECT_EQ(shape.CountFrom(1), 12);
  EXPECT_EQ(shape.CountFrom(3), 1);
  EXPECT_EQ(shape.CountTo(0), 1);
  EXPECT_EQ(shape.CountTo(2), 6);
  EXPECT_EQ(shape.CountTo(3), 24);
  EXPECT_THROW(shape.CountFrom(4), ShapeError);
  EXPECT_THROW(shape.CountTo(-4), ShapeError);
}

TEST(ShapeTest, ZeroExtentsAreEmptyWhereverTheyStand) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ((Shape{0}).Elements(), 0);
  EXPECT_EQ((Shape{0, huge, huge}).Elements(), 0);
  EXPECT_EQ((Shape{huge, huge, 0}).Elements(), 0);
}

TEST(ShapeTest, RefusesCountsThatOverflow) {
  const int64_t huge = int64_t{1} << 32;
  EXPECT_EQ((Shape{huge, huge / 4}).Elements(), int64_t{1} << 62);
  EXPECT_THROW((Shape{huge, huge / 2}).Elements(), ShapeError);
  EXPECT_THROW((Shape{huge, huge, 2}).Elements(), ShapeError);
  EXPECT_THROW((Shape{2, huge, huge}).CountFrom(1), ShapeError);
  EXPECT_EQ((Shape{2, huge, huge}).CountTo(2), huge * 2);
}

TEST(ShapeTest, UnknownExtents) {
  const Shape shape{kUnknownDim, 3};
  EXPECT_FALSE(shape.IsKnown());
  EXPECT_THROW(shape.Elements(), ShapeError);
  EXPECT_EQ(shape.CountFrom(1), 3);
  EXPECT_THROW(shape.CountTo(1), ShapeError);
  EXPECT_EQ(ToString(shape), "(?, 3)");
  EXPECT_TRUE(shape.With(0, 5).IsKnown());
  // An unknown extent beside a zero stays unknown: nothing may be decided from it.
  EXPECT_THROW((Shape{0, kUnknownDim}).Elements(), ShapeError);
}

TEST(ShapeTest, RefusesBadExtentsAndRanks) {
  EXPECT_THROW(Shape({2, -2}), ShapeError);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_NO_THROW(Shape({1, 1, 1, 1, 1, 1, 1, 1}));
  Shape shape{2, 3};
  EXPECT_THROW(shape.Set(0, -2), ShapeError);
  EXPECT_THROW(shape.Set(2, 1), ShapeError);
  EXPECT_EQ(shape, (Shape{2, 3}));
  // The count must not come from a cast that wraps.
  std::vector<int64_t> many(1 << 16, 1);
  EXPECT_THROW(Shape{std::span<const int64_t>(many)}, ShapeError);
}

TEST(ShapeTest, SetAndWith) {
  Shape shape{2, 3, 4};
  shape.Set(-1, 7);
  EXPECT_EQ(shape, (Shape{2, 3, 7}));
  EXPECT_EQ(shape.With(0, 0), (Shape{0, 3, 7}));
  EXPECT_EQ(shape, (Shape{2, 3, 7}));
}

TEST(ShapeTest, InsertsAndErasesAxes) {
  const Shape shape{2, 3};
  EXPECT_EQ(shape.Insert(0, 9), (Shape{9, 2, 3}));
  EXPECT_EQ(shape.Insert(1, 9), (Shape{2, 9, 3}));
  EXPECT_EQ(shape.Insert(2, 9), (Shape{2, 3, 9}));
  EXPECT_THROW(shape.Insert(3, 9), ShapeError);
  EXPECT_THROW(shape.Insert(0, -2), ShapeError);
  EXPECT_EQ(shape.Erase(0), (Shape{3}));
  EXPECT_EQ(shape.Erase(-1), (Shape{2}));
  EXPECT_EQ(shape.Erase(0).Erase(0), Shape());
  EXPECT_THROW(shape.Erase(2), ShapeError);
  EXPECT_THROW(Shape().Erase(0), ShapeError);
  const Shape full{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THROW(full.Insert(0, 1), ShapeError);
  EXPECT_EQ(full.Erase(3).Insert(3, 4), full);
}

TEST(ShapeTest, EqualityLooksAtTheExtentsOnly) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3, 4}).Erase(2));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE(Shape(), (Shape{1}));
  EXPECT_EQ((Shape{2, kUnknownDim}), (Shape{2, kUnknownDim}));
}

TEST(ShapeTest, ErrorsSayWhatWasExpected) {
  try {
    (Shape{2, 3}).Axis(5);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "ShapeError: axis 5 is out of range for shape (2, 3): expected -2 to 1");
  }
}

}  // namespace
}  // namespace bindery
