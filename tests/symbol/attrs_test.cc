#include "symbol/attrs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace bindery {
namespace {

enum class Colour { kRed, kGreen = 7 };
std::span<const EnumName> EnumNames(Colour*) {
  static constexpr std::array<EnumName, 2> names{{{0, "red"}, {7, "green"}}};
  return names;
}
enum class Narrow : unsigned char { kOne = 1, kTwo = 200 };
std::span<const EnumName> EnumNames(Narrow*) {
  static constexpr std::array<EnumName, 2> names{{{1, "one"}, {200, "two"}}};
  return names;
}

struct AllKinds {
  bool flag = false;
  int64_t count = 3;
  double factor = 0;
  std::string text = "abc";
  std::vector<int64_t> kernel;
  DType dtype = DType::kFloat32;
  std::shared_ptr<const HostTensor> value;
  Colour colour = Colour::kRed;
  Narrow narrow = Narrow::kOne;
  std::vector<double> scales;
  std::vector<std::string> names;
  static FieldList Fields() {
    using A = AllKinds;
    return {{"flag", &A::flag, "a flag"}, {"count", &A::count},   {"factor", &A::factor}, {"text", &A::text},
            {"kernel", &A::kernel},       {"dtype", &A::dtype},   {"value", &A::value},   {"colour", &A::colour},
            {"narrow", &A::narrow},       {"scales", &A::scales}, {"names", &A::names}};
  }
  bool operator==(const AllKinds&) const = default;
};

AllKinds NoneDefault() {
  return {true,
          -5,
          0.25,
          "",
          {1, -2, std::numeric_limits<int64_t>::max()},
          DType::kBFloat16,
          std::make_shared<const HostTensor>(HostTensor::From({2}, {1, 2})),
          Colour::kGreen,
          Narrow::kTwo,
          {-0.0, 0.1, std::numeric_limits<double>::infinity()},
          {"", "a \"b\"", std::string("\0\xff", 2)}};
}

std::string ErrorOf(const AttrMap& map) {
  try {
    AttrsOf<AllKinds>().FromMap(map);
  } catch (const ModelError& error) {
    return error.message();
  }
  return "nothing was thrown";
}

TEST(Attrs, MapHasWhatDiffersFromTheDefault) {
  EXPECT_TRUE(AnyAttrs(AllKinds{}).ToMap().empty());
  EXPECT_EQ(AnyAttrs(AllKinds{}).ToFullMap().size(), 11u);
  AllKinds some;
  some.count = 4;
  some.colour = Colour::kGreen;
  EXPECT_EQ(AnyAttrs(some).ToMap(), (AttrMap{{"count", int64_t{4}}, {"colour", std::string("green")}}));
}

TEST(Attrs, RoundTripsEveryKind) {
  const AllKinds original = NoneDefault();
  const AnyAttrs attrs = original;
  EXPECT_EQ(attrs.ToMap().size(), 11u);
  const AnyAttrs again = AttrsOf<AllKinds>().FromMap(attrs.ToMap());
  EXPECT_EQ(again, attrs);
  EXPECT_EQ(again.get<AllKinds>(), original);
  EXPECT_EQ(AttrsOf<AllKinds>().FromMap(attrs.ToFullMap()), attrs);
}

// As a file has them: nothing is said of an empty list.
TEST(Attrs, AnEmptyListIsOneOfAnyKind) {
  const std::vector<int64_t> nothing;
  const AnyAttrs attrs = AttrsOf<AllKinds>().FromMap({{"kernel", nothing}, {"scales", nothing}, {"names", nothing}});
  EXPECT_EQ(attrs, AnyAttrs(AllKinds{}));
}

TEST(Attrs, KeepsTheBitsOfNumbers) {
  AllKinds attrs;
  for (double value : {-0.0, std::numeric_limits<double>::infinity(), 5e-324, 0.1}) {
    attrs.factor = value;
    const double again = AttrsOf<AllKinds>().FromMap(AnyAttrs(attrs).ToMap()).get<AllKinds>().factor;
    EXPECT_EQ(std::bit_cast<uint64_t>(again), std::bit_cast<uint64_t>(value));
  }
  attrs.scales = {std::nan(""), -0.0};
  const AnyAttrs lists = attrs;
  attrs.scales[1] = 0.0;
  EXPECT_EQ(AnyAttrs(attrs).ToMap().count("scales"), 1u);
  const std::vector<double> scales = AttrsOf<AllKinds>().FromMap(lists.ToMap()).get<AllKinds>().scales;
  EXPECT_TRUE(scales.size() == 2 && std::isnan(scales[0]) && std::signbit(scales[1]));
  attrs.factor = std::nan("");
  EXPECT_TRUE(std::isnan(AttrsOf<AllKinds>().FromMap(AnyAttrs(attrs).ToMap()).get<AllKinds>().factor));
}

TEST(Attrs, ExactIntegersAreNumbersAndZeroAndOneAreFlags) {
  const AnyAttrs attrs = AttrsOf<AllKinds>().FromMap({{"factor", int64_t{2}}, {"flag", int64_t{1}}});
  EXPECT_EQ(attrs.get<AllKinds>().factor, 2);
  EXPECT_TRUE(attrs.get<AllKinds>().flag);
  EXPECT_EQ(AttrsOf<AllKinds>().FromMap({{"scales", std::vector<int64_t>{1, -2}}}).get<AllKinds>().scales,
            (std::vector<double>{1, -2}));
  EXPECT_EQ(ErrorOf({{"scales", std::vector<int64_t>{(int64_t{1} << 53) + 1}}}),
            "attribute \"scales\": 9007199254740993 is too large to be an exact number");
  EXPECT_EQ(ErrorOf({{"factor", (int64_t{1} << 53) + 1}}),
            "attribute \"factor\": 9007199254740993 is too large to be an exact number");
  EXPECT_EQ(ErrorOf({{"flag", int64_t{2}}}), "attribute \"flag\": expected true or false, got the integer 2");
}

TEST(Attrs, ErrorsSayFieldExpectationAndValue) {
  EXPECT_EQ(ErrorOf({{"kernal", int64_t{1}}}), "unknown attribute \"kernal\"; did you mean \"kernel\"?");
  EXPECT_EQ(ErrorOf({{"kernel", int64_t{1}}}), "attribute \"kernel\": expected a list of integers, got the integer 1");
  EXPECT_EQ(ErrorOf({{"count", 1.5}}), "attribute \"count\": expected an integer, got the number 1.5");
  EXPECT_EQ(ErrorOf({{"count", std::string("x")}}), "attribute \"count\": expected an integer, got the string \"x\"");
  EXPECT_EQ(ErrorOf({{"text", std::vector<int64_t>{1, 2}}}),
            "attribute \"text\": expected a string, got the list (1, 2)");
  EXPECT_EQ(ErrorOf({{"kernel", std::vector<double>{1, 0.5}}}),
            "attribute \"kernel\": expected a list of integers, got the list (1, 0.5)");
  EXPECT_EQ(ErrorOf({{"scales", std::vector<std::string>{"x"}}}),
            "attribute \"scales\": expected a list of numbers, got the list (x)");
  EXPECT_EQ(ErrorOf({{"names", std::vector<int64_t>{1}}}),
            "attribute \"names\": expected a list of strings, got the list (1)");
  EXPECT_EQ(ErrorOf({{"value", true}}), "attribute \"value\": expected a tensor, got true");
  EXPECT_EQ(ErrorOf({{"colour", std::string("blue")}}),
            "attribute \"colour\": expected one of red, green, got the string \"blue\"");
  EXPECT_EQ(ErrorOf({{"colour", int64_t{0}}}), "attribute \"colour\": expected one of red, green, got the integer 0");
  EXPECT_NE(ErrorOf({{"dtype", std::string("float31")}}).find("attribute \"dtype\": "), std::string::npos);
  EXPECT_NE(ErrorOf({{"dtype", std::string("float31")}}).find("float31"), std::string::npos);
}

TEST(Attrs, ALongValueIsCutInMessages) {
  EXPECT_LT(ErrorOf({{"count", std::string(1 << 20, 'x')}}).size(), 200u);
  EXPECT_LT(ErrorOf({{"count", std::vector<int64_t>(1 << 20, 7)}}).size(), 200u);
  EXPECT_LT(ErrorOf({{"count", std::vector<std::string>(1 << 10, std::string(1 << 10, 'x'))}}).size(), 200u);
}

TEST(Attrs, OtherTypeIsAnError) {
  EXPECT_THROW(AnyAttrs(AllKinds{}).get<NoAttrs>(), Error);
  EXPECT_THROW(AnyAttrs().get<AllKinds>(), Error);
  EXPECT_FALSE(AnyAttrs() == AnyAttrs(AllKinds{}));
  EXPECT_EQ(AnyAttrs(), AnyAttrs(NoAttrs{}));
}

TEST(Attrs, ValuesAsText) {
  EXPECT_EQ(ToString(AttrValue(true)), "true");
  EXPECT_EQ(ToString(AttrValue(int64_t{5})), "5");
  EXPECT_EQ(ToString(AttrValue(0.5)), "0.5");
  EXPECT_EQ(ToString(AttrValue(std::string("max"))), "max");
  EXPECT_EQ(ToString(AttrValue(std::vector<int64_t>{5, 5})), "(5, 5)");
  EXPECT_EQ(ToString(AttrValue(std::vector<double>{0.5, 2})), "(0.5, 2)");
  EXPECT_EQ(ToString(AttrValue(std::vector<std::string>{"a", "b"})), "(a, b)");
  EXPECT_EQ(ToString(AttrValue(std::make_shared<const HostTensor>(DType::kInt32, Shape{2, 3}))), "int32 (2, 3)");
}

TEST(Attrs, DescribesFields) {
  const std::vector<FieldInfo> fields = AttrsOf<AllKinds>().Fields();
  ASSERT_EQ(fields.size(), 11u);
  EXPECT_EQ(fields[0].name, "flag");
  EXPECT_EQ(fields[0].type, "bool");
  EXPECT_EQ(fields[0].default_value, "false");
  EXPECT_EQ(fields[0].doc, "a flag");
  EXPECT_EQ(fields[7].type, "red | green");
  EXPECT_EQ(fields[8].default_value, "one");
  EXPECT_EQ(fields[9].type, "floats");
  EXPECT_EQ(fields[10].type, "strings");
  EXPECT_TRUE(AttrsOf<NoAttrs>().Fields().empty());
}

}  // namespace
}  // namespace bindery
