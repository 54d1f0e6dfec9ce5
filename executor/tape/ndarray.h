// NDArray: numbers on a device, with arithmetic: what programs are written with that compute step by step, where a
// Symbol would say beforehand what is computed.
//
//   NDArray w = NDArray::Normal({10, 784}, 0.01, Cpu(1)), b = NDArray::Zeros({10}, Cpu(1));
//   NDArray y = Apply(FullyConnected, {x, w, b}, {.num_hidden = 10});    // any operator
//   w -= 0.1 / 64 * gradient;                                          // in place
//   double loss = y.Mean().Scalar();                                   // waits
//
// A call makes the symbol of one operator, or of the few that its function makes, compiles it for the shapes, element
// types and kind of device at hand, and runs it: the operators, kernels and plans are those of Executor. What was
// compiled is kept, by everything that decides it, so that a loop compiles its first round only. Numbers in arithmetic
// (0.1 / 64 above) are arguments: another number is no other program.
//
// Calls are asynchronous: they return when the work is pushed, and what reads (ToHost, Scalar, Wait) waits, and throws
// what went wrong on the way. Errors in shapes, types and devices are thrown by the call, and name the operator.
//
// Gradients: executor/tape/tape.h. Several devices: executor/tape/split_and_load.h.
//
// Thread safety: an NDArray is a handle, like a shared pointer; the data are ordered by the engine.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/host_tensor.h"
#include "engine/tensor.h"
#include "executor/plan/signature.h"
#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"

namespace bindery {

namespace tape {
struct ArrayState;
}  // namespace tape

class NDArray {
 public:
  NDArray() = default;                     // empty: defined() is false
  explicit NDArray(const Tensor& tensor);  // the same memory
  explicit NDArray(const HostTensor& value, Device device = Cpu(0));
  static NDArray Zeros(const Shape& shape, Device device = Cpu(0), DType dtype = DType::kFloat32);
  static NDArray Full(const Shape& shape, double value, Device device = Cpu(0), DType dtype = DType::kFloat32);
  // Random numbers of mean 0 and this standard deviation, float32; see SeedArrays.
  static NDArray Normal(const Shape& shape, double scale, Device device = Cpu(0));

  bool defined() const { return state_ != nullptr; }
  const Shape& shape() const { return tensor().shape(); }
  DType dtype() const { return tensor().dtype(); }
  Device device() const { return tensor().device(); }
  int64_t elements() const { return tensor().elements(); }
  const Tensor& tensor() const;  // throws Error if empty

  // --- to the host; all wait ---
  HostTensor ToHost() const { return tensor().ToHost(); }
  double Scalar() const;  // of one element; throws ShapeError
  void Wait() const { tensor().Wait(); }

  // --- copies and views ---
  // A copy on another device, or on this. Gradients do not pass: throws Error where one would have to.
  NDArray CopyTo(Device device) const;
  // Rows begin .. end - 1 of axis 0, and another shape (0: this extent, -1: what remains): views of the memory, but
  // copies where the tape records them.
  NDArray Slice(int64_t begin, int64_t end) const;
  NDArray Reshape(const std::vector<int64_t>& shape) const;
  NDArray As(DType dtype) const;  // cast
  NDArray Detach() const;         // the same memory, of which the tape knows nothing

  // --- results of this array ---
  NDArray Sum(const std::vector<int64_t>& axes = {}) const;   // no axes: all
  NDArray Mean(const std::vector<int64_t>& axes = {}) const;  // no axes: all
  NDArray ArgMax(int64_t axis = 1) const;                     // places, int64
  NDArray operator-() const;

  // --- in place; throw Error where the tape records the array, ShapeError unless the shape stays ---
  void CopyFrom(const HostTensor& value);
  void CopyFrom(const NDArray& value);  // from any device
  void Fill(double value);
  NDArray& operator+=(const NDArray& other);
  NDArray& operator-=(const NDArray& other);
  NDArray& operator*=(const NDArray& other);
  NDArray& operator/=(const NDArray& other);
  NDArray& operator+=(double number);
  NDArray& operator-=(double number);
  NDArray& operator*=(double number);
  NDArray& operator/=(double number);

  // --- gradients (tape.h) ---
  // From now on what is recorded with this array can be differentiated by it; Backward writes or adds to gradient().
  // kNull: no longer. Throws Error if the array is a recorded result, or not of floating point.
  void AttachGradient(GradReq request = GradReq::kWrite);
  NDArray gradient() const;  // zeros at first; throws Error if none is attached
  bool has_gradient() const;
  // Of what was recorded to make this array, which becomes the heads' only one. See Backward in tape.h.
  void Backward() const;
  void Backward(const NDArray& head_gradient) const;

  const std::shared_ptr<tape::ArrayState>& state() const { return state_; }  // for executor/tape
  explicit NDArray(std::shared_ptr<tape::ArrayState> state) : state_(std::move(state)) {}

 private:
  void ChangeInPlace(const char* name, const BinaryFunction& function, const NDArray& other);
  void CheckMayChange(const char* name, const NDArray* other = nullptr) const;
  std::shared_ptr<tape::ArrayState> state_;
};

// Arrays stretch to each other as in NumPy, have one element type, and lie on one device; comparisons give bool.
NDArray operator+(const NDArray& a, const NDArray& b);
NDArray operator-(const NDArray& a, const NDArray& b);
NDArray operator*(const NDArray& a, const NDArray& b);
NDArray operator/(const NDArray& a, const NDArray& b);
NDArray operator==(const NDArray& a, const NDArray& b);
NDArray operator!=(const NDArray& a, const NDArray& b);
NDArray operator<(const NDArray& a, const NDArray& b);
NDArray operator<=(const NDArray& a, const NDArray& b);
NDArray operator>(const NDArray& a, const NDArray& b);
NDArray operator>=(const NDArray& a, const NDArray& b);
// A number takes the array's element type; throws Error if that has no such number.
NDArray operator+(const NDArray& a, double b);
NDArray operator-(const NDArray& a, double b);
NDArray operator*(const NDArray& a, double b);
NDArray operator/(const NDArray& a, double b);
NDArray operator==(const NDArray& a, double b);
NDArray operator!=(const NDArray& a, double b);
NDArray operator<(const NDArray& a, double b);
NDArray operator<=(const NDArray& a, double b);
NDArray operator>(const NDArray& a, double b);
NDArray operator>=(const NDArray& a, double b);
NDArray operator+(double a, const NDArray& b);
NDArray operator-(double a, const NDArray& b);
NDArray operator*(double a, const NDArray& b);
NDArray operator/(double a, const NDArray& b);

// --- any operator ---

namespace tape {
using BuildFunction = std::function<Symbol(const std::vector<Symbol>& inputs)>;
// All outputs of the symbol that `build` makes of variables that stand for the inputs.
std::vector<NDArray> Compute(const BuildFunction& build, const std::vector<NDArray>& inputs);
NDArray OnlyOne(std::vector<NDArray> outputs);  // throws Error
}  // namespace tape

// Apply(Convolution, {x, weight, bias}, {.num_filter = 20, .kernel = {5, 5}}). The inputs are the operator's, in its
// order, all of them, states too: BatchNorm's running statistics move in training mode. ApplyAll: of several outputs.
template <OpAttrs A, int kInputs>
std::vector<NDArray> ApplyAll(const OpFunction<A, kInputs>& f, const std::vector<NDArray>& inputs,
                              const std::type_identity_t<A>& attrs = {}) {
  return tape::Compute([&](const std::vector<Symbol>& x) { return Apply(f.op(), attrs, x); }, inputs);
}
template <OpAttrs A, int kInputs>
NDArray Apply(const OpFunction<A, kInputs>& f, const std::vector<NDArray>& inputs,
              const std::type_identity_t<A>& attrs = {}) {
  return tape::OnlyOne(ApplyAll(f, inputs, attrs));
}

using Symbols = std::vector<Symbol>;
// Whatever makes a symbol of symbols, one for each input or a std::vector of all:
//   Apply(Relu, {x});  Apply([](const Symbol& x, const Symbol& y) { return SoftmaxCrossEntropy(x, y); }, {x, y});
// It is called each time, and compiled only if it made something else than before. What it makes runs as one program.
template <class F>
concept MakesSymbol = std::invocable<F, Symbol> || std::invocable<F, Symbol, Symbol> ||
    std::invocable<F, Symbol, Symbol, Symbol> || std::invocable<F, Symbols>;
template <MakesSymbol F>
std::vector<NDArray> ApplyAll(const F& f, const std::vector<NDArray>& inputs) {
  return tape::Compute(
      [&](const std::vector<Symbol>& x) -> Symbol {
        if constexpr (std::invocable<F, Symbol>) {
          if (x.size() == 1) return f(x[0]);
        }
        if constexpr (std::invocable<F, Symbol, Symbol>) {
          if (x.size() == 2) return f(x[0], x[1]);
        }
        if constexpr (std::invocable<F, Symbol, Symbol, Symbol>) {
          if (x.size() == 3) return f(x[0], x[1], x[2]);
        }
        if constexpr (std::invocable<F, Symbols>) {
          return f(x);
        } else {
          Throw("Apply: the function does not take {} inputs", x.size());
        }
      },
      inputs);
}
template <MakesSymbol F>
NDArray Apply(const F& f, const std::vector<NDArray>& inputs) {
  return tape::OnlyOne(ApplyAll(f, inputs));
}

// --- all arrays of the default engine ---

void WaitAll();                  // until everything that was pushed is done; throws the first error since the last time
void SeedArrays(uint64_t seed);  // what Normal, Dropout and other random operators draw from here on

// For tests and the curious. Programs that were compiled: a loop that goes on compiling has shapes, attributes or a
// graph that change.
struct TapeStatistics {
  int64_t calls = 0, backwards = 0;  // programs that are kept, of calls and of gradients
  int64_t compiled = 0;              // so far
  int64_t runs = 0;                  // of programs
};
TapeStatistics ArrayStatistics();

}  // namespace bindery
