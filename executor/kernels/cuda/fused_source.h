// The source of one kernel for a chain of elementwise operators: what NVRTC compiles (fused_image.h). A function of one
// element has a statement for each step; the kernel reads packs of each input, calls it for each element, and writes the
// pack, all by what fused_body.h has. Extents and strides are arguments, so that all shapes have one source.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace bindery::cuda {

struct FusedProgram {
  enum class Reads { kSame, kOne, kStretched };  // the element of the result's index, the only one, or by strides
  struct Input {
    DType dtype;
    Reads reads;
  };
  struct Step {
    const char* list;           // of executor/kernels/functions.h, "UnaryFunctions"; null: the operand as it is
    size_t place;               // of the function in it
    DType dtype;                // what it is rounded to
    std::vector<int> operands;  // inputs, then results of steps; two of a curve: what its slope is multiplied by first
    double a = 0, b = 0;        // of a curve
  };
  bool in_double = false;  // what is computed with: double, or float
  std::vector<Input> inputs = {};
  std::vector<Step> steps = {};  // of floats; the last gives the result
};

std::string FusedSource(const FusedProgram& program);

// What the source includes, and what that includes, by name: text within the program.
struct FusedHeader {
  const char* name;
  const char* text;
};
std::vector<FusedHeader> FusedHeaders();

}  // namespace bindery::cuda
