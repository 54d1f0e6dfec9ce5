// Values that are not finite go the same ways through both tables of kernels.
#pragma once

#include <string>
#include <vector>

#include "tests/executor/graph_runner.h"

namespace bindery {

inline const std::vector<float> kUnusual = {NAN, INFINITY, -INFINITY};

// Values of both signs, none zero; `value` at one place of every sample.
HostTensor WithOne(const Shape& shape, float value, int64_t place);

// Sums of many terms differ in their last digits: here only what is not finite counts. Where oneDNN has no convolution
// but a matrix product with the unfolded data (for SSE4.1, mostly), padding is multiplied too, and 0 times infinity is
// no number: such a kernel may give NaN where others give none.
void ExpectSameUnusual(const Symbol& symbol, const HostTensorMap& inputs, Layout layout = Layout::kPlain,
                       int threads = 1);

// The results and their gradients, where one of the values is at the first, a middle or the last place of each of these
// inputs (of none: of all that they are differentiated by) and of each gradient that comes back.
void ExpectSameBackward(const Symbol& y, const HostTensorMap& inputs, const std::vector<std::string>& wrt = {"x"},
                        std::vector<std::string> of = {}, const std::vector<float>& unusual = kUnusual);

}  // namespace bindery
