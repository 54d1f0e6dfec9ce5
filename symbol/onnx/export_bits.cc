// Operators of bits, which came to ONNX with opset 18, by arithmetic of int64: negative numbers count from 2^bits. ONNX'
// shifts, which are older, are of unsigned numbers alone.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "symbol/onnx/exporter.h"
#include "symbol/onnx/reader.h"

namespace bindery::onnx {
namespace {

// The bits of a type, and whether the highest says that a number is negative.
struct Bits {
  int count;
  bool is_signed;
};

bool IsUnsigned(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
}

Bits BitsOf(DType dtype) {
  if (dtype == DType::kUInt64)
    Throw<ModelError>("opset 17 has no operators of bits, and int64 has not all of uint64's");
  return {.count = static_cast<int>(8 * SizeOf(dtype)), .is_signed = !IsUnsigned(dtype)};
}

std::string Int(Exporter& ex, int64_t value) {
  HostTensor tensor(DType::kInt64, {});
  tensor.Set(0, static_cast<double>(value));
  return ex.Constant(tensor, "number");
}

// Of numbers x, y of [0, 2^count), count <= 32: the bits apart along a new last axis, joined by `op`, and summed.
std::string OfBits(Exporter& ex, const char* op, const std::string& x, const std::string& y, int count) {
  HostTensor powers(DType::kInt64, {count});
  for (int i = 0; i < count; ++i) powers.Set(i, static_cast<double>(int64_t{1} << i));
  const std::string values = ex.Constant(powers, "powers"), last = ex.Ints({-1}, "axes");
  const auto apart = [&](const std::string& number) {
    const std::string shifted = ex.Add("Div", {ex.Add("Unsqueeze", {number, last}), values});
    return ex.Add("Equal", {ex.Add("Mod", {shifted, Int(ex, 2)}), Int(ex, 1)});
  };
  const std::string both = ex.Add(op, {apart(x), apart(y)});
  const std::string sum = ex.Add("ReduceSum", {ex.Add("Where", {both, values, Int(ex, 0)}), last});
  ex.Set("keepdims", int64_t{0});
  return sum;
}

// x as it is modulo 2^count, from 0 on; and back, from -2^(count - 1) on.
std::string FromZero(Exporter& ex, const std::string& x, int count) {
  return ex.Add("Mod", {x, Int(ex, int64_t{1} << count)});
}
std::string AroundZero(Exporter& ex, const std::string& x, int count) {
  const std::string is_negative = ex.Add("Less", {Int(ex, (int64_t{1} << (count - 1)) - 1), x});
  return ex.Add("Sub", {x, ex.Add("Where", {is_negative, Int(ex, int64_t{1} << count), Int(ex, 0)})});
}

template <const char* kOp>
void ExportBitwise(Exporter& ex) {
  const DType dtype = ex.DTypeOfInput(0);
  const Bits bits = BitsOf(dtype);
  const std::string x = ex.In(0, DType::kInt64), y = ex.In(1, DType::kInt64);
  const int low_bits = bits.count < 32 ? bits.count : 32;
  const std::string x_low = FromZero(ex, x, low_bits), y_low = FromZero(ex, y, low_bits);
  std::string result = OfBits(ex, kOp, x_low, y_low, low_bits);
  if (bits.count == 64) {
    const auto high = [&](const std::string& number, const std::string& low) {
      const std::string whole = ex.Add("Div", {ex.Add("Sub", {number, low}), Int(ex, int64_t{1} << 32)});
      return FromZero(ex, whole, 32);
    };
    const std::string upper = AroundZero(ex, OfBits(ex, kOp, high(x, x_low), high(y, y_low), 32), 32);
    result = ex.Add("Add", {ex.Add("Mul", {upper, Int(ex, int64_t{1} << 32)}), result});
  } else if (bits.is_signed) {
    result = AroundZero(ex, result, bits.count);
  }
  ex.Out("Cast", {result});
  ex.Set("to", int64_t{NumberOf(dtype)});
}

// -1 - x, or, from 0 on, 2^count - 1 - x
void ExportBitNot(Exporter& ex) {
  const DType dtype = ex.DTypeOfInput(0);
  const Bits bits = BitsOf(dtype);
  const std::string all = Int(ex, bits.is_signed ? -1 : (int64_t{1} << bits.count) - 1);
  ex.Out("Cast", {ex.Add("Sub", {all, ex.In(0, DType::kInt64)})});
  ex.Set("to", int64_t{NumberOf(dtype)});
}

// Times a power of two, or the floor of what is left by it; by a negative number, or by as many bits as there are, all
// bits leave. In two halves, for 2^63 is no int64.
void ExportShift(Exporter& ex) {
  const DType dtype = ex.DTypeOfInput(0);
  const bool left = ex.node().op().name == "ShiftLeft";
  if (IsUnsigned(dtype)) {
    ex.Out("BitShift", ex.AllInputs());
    return ex.Set("direction", left ? "LEFT" : "RIGHT");
  }
  const int count = BitsOf(dtype).count;
  const std::string by = ex.In(1, DType::kInt64), last = Int(ex, count - 1), zero = Int(ex, 0);
  const std::string all = ex.Add("Or", {ex.Add("Less", {by, zero}), ex.Add("Less", {last, by})});
  std::string x = ex.In(0, DType::kInt64);
  if (left) x = ex.Add("Where", {all, zero, x});
  const std::string within = ex.Add("Where", {all, last, by}), half = ex.Add("Div", {within, Int(ex, 2)});
  HostTensor powers(DType::kInt64, {33});
  for (int i = 0; i < 33; ++i) powers.Set(i, static_cast<double>(int64_t{1} << i));
  const std::string values = ex.Constant(powers, "powers");
  for (const std::string& part : {half, ex.Add("Sub", {within, half})}) {
    const std::string power = ex.Add("Gather", {values, part});
    x = left ? ex.Add("Mul", {x, power}) : ex.Add("Div", {ex.Add("Sub", {x, ex.Add("Mod", {x, power})}), power});
  }
  if (left && count < 64) x = AroundZero(ex, FromZero(ex, x, count), count);
  ex.Out("Cast", {x});
  ex.Set("to", int64_t{NumberOf(dtype)});
}

constexpr char kAnd[] = "And", kOr[] = "Or", kXor[] = "Xor";

}  // namespace

std::span<const ExportRow> BitExports() {
  static constexpr ExportRow kRows[] = {{"BitAnd", ExportBitwise<kAnd>}, {"BitNot", ExportBitNot},
                                        {"BitOr", ExportBitwise<kOr>},   {"BitXor", ExportBitwise<kXor>},
                                        {"ShiftLeft", ExportShift},      {"ShiftRight", ExportShift}};
  return kRows;
}

}  // namespace bindery::onnx
