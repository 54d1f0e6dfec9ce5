// What modules take and give: nests of arrays.
#include <gtest/gtest.h>

#include "tests/train/module/module_helpers.h"

namespace bindery {
namespace {

TEST(Nest, HoldsItsForm) {
  const Nest<std::string> nest = ListOf("a", ListOf("b", ListOf("c")), Nest<std::string>());
  EXPECT_EQ(nest.Form(), "(_, (_, (_)), _)");
  EXPECT_EQ(nest[1][1][0].leaf(), "c");
  EXPECT_EQ(nest.Leaves(), (std::vector<std::string>{"a", "b", "c", ""}));
  EXPECT_TRUE(nest.IsLike(nest.Map([](const std::string& leaf) { return static_cast<int>(leaf.size()); })));
  EXPECT_FALSE(nest.IsLike(nest[1]));
  EXPECT_EQ(MessageOf([&] { nest.leaf(); }), "Error: a list of 3 is no single value: (_, (_, (_)), _)");
  EXPECT_EQ(MessageOf([&] { nest[3]; }), "Error: item 3 of a list of 3: (_, (_, (_)), _)");
  EXPECT_EQ(MessageOf([&] { nest[0].items(); }), "Error: a single value is no list");
}

TEST(Array, PiecesAndWholes) {
  const HostTensor x = RandomTensor({5, 3}, 1);
  const Tensor first = On(DefaultEngine(), TestDevice(0), x.Slice(0, 0, 2));
  const Tensor last = On(DefaultEngine(), TestDevice(1), x.Slice(0, 2, 5));
  const Array array({first, last}, 0);
  EXPECT_EQ(array.shape(), (Shape{5, 3}));
  EXPECT_EQ(array.ToHost(), x);
  EXPECT_EQ(array.Whole().ToHost(), x);
  EXPECT_EQ(array.Whole().device(), TestDevice(0));
  EXPECT_EQ(array.Whole(TestDevice(1)).device(), TestDevice(1));
  EXPECT_EQ(array.Whole(TestDevice(1)).ToHost(), x);
  EXPECT_EQ(Array(first).Whole().address(), first.address());  // itself
  EXPECT_EQ(Array(x).Whole(TestDevice(1)).ToHost(), x);
  EXPECT_TRUE(Array().empty());
  EXPECT_TRUE(Array(Tensor()).empty());
  EXPECT_EQ(MessageOf([] { Array().Whole(); }), "Error: an empty array is no tensor");
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              Array({first, last}, 2);
            }),
            "ShapeError: pieces of shape (2, 3) cannot follow each other along axis 2");
  EXPECT_NE(MessageOf<ShapeError>([&] {
              Array({first, last}, 1);
            }).find("do not fit together along axis 1"),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
