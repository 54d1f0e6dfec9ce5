#include "tests/symbol/hostile_values.h"

#include <cmath>
#include <limits>

#include "tests/symbol/op_rules.h"

namespace bindery {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();

}  // namespace

std::vector<AttrValue> HostileValues(const AttrValue& usual) {
  using List = std::vector<int64_t>;
  if (std::holds_alternative<bool>(usual)) return {true, false, int64_t{1}};
  if (std::holds_alternative<int64_t>(usual)) {
    return {int64_t{0},
            int64_t{1},
            int64_t{-1},
            int64_t{3},
            int64_t{8},
            int64_t{-9},
            int64_t{1} << 32,
            (int64_t{1} << 32) + 1,
            kMax,
            kMin,
            2.5,
            std::string("many")};
  }
  if (std::holds_alternative<double>(usual)) {
    return {0.0,
            -1.0,
            1.0,
            1e308,
            5e-324,
            std::nan(""),
            std::numeric_limits<double>::infinity(),
            -std::numeric_limits<double>::infinity(),
            int64_t{kMax},
            std::string("nan")};
  }
  if (std::holds_alternative<List>(usual)) {
    return {List{},           List{0},       List{1},        List{-1},      List{kMax},
            List{kMin},       List{1, 1},    List{0, 0},     List{-1, -1},  List{kMax, kMax},
            List{kMin, 1},    List{1, kMin}, List{1, 2, 3},  List{2, 1, 0}, List{kMax, kMax, kMax},
            List{1, 1, 1, 1}, List(9, 1),    List(100000, 1)};
  }
  if (std::holds_alternative<std::vector<double>>(usual)) {
    using Numbers = std::vector<double>;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {Numbers{},
            Numbers{0},
            Numbers{1, 1},
            Numbers{1, 1, 1},
            Numbers{-1, 1, 1},
            Numbers{1e-300, 1},
            Numbers{1e-300, 1, 1},
            Numbers{5e-324, 5e-324, 5e-324},
            Numbers{1e308, 1},
            Numbers{1e308, 1, 1},
            Numbers{1e-9, 1e9, 1},
            Numbers{1, 1, 1, 1, 1, 1},
            Numbers(6, 1e308),
            Numbers(3, std::nan("")),
            Numbers(3, kInfinity),
            Numbers(100000, 1)};
  }
  if (std::holds_alternative<std::string>(usual)) {
    return {std::string(),       std::string("no such"), std::string(1000, 'x'),   int64_t{-1},
            std::string("none"), std::string("null"),    std::string("valid"),     std::string("full"),
            std::string("avg"),  std::string("int8"),    std::string("same_lower")};
  }
  return {std::shared_ptr<const HostTensor>(), int64_t{0}};
}

const std::vector<Shape>& HostileShapes() {
  static const std::vector<Shape> shapes = {{},
                                            {0},
                                            {1},
                                            {kMax},
                                            {0, 0},
                                            {1, 0},
                                            {0, kMax},
                                            {kMax, 2},
                                            {kMax, kMax},
                                            {2, 3},
                                            {3, 4, 0},
                                            {2, kMax, kMax},
                                            {0, kMax, kMax},
                                            {5, 3, 2},
                                            {5, 4, 0, 8},
                                            {0, 4, 9, 8},
                                            {5, 4, 9, kMax},
                                            {5, 1, 1, 1},
                                            {1, 2, 3, 4, 5},
                                            {1, 1, 1, 1, 1, 1, 1, 1},
                                            {kMax, kMax, kMax, kMax, kMax, kMax, kMax, kMax},
                                            {kAny},
                                            {kAny, kAny},
                                            {5, kAny},
                                            {kAny, 4, kAny, kMax}};
  return shapes;
}

}  // namespace bindery
