// Connectionist temporal classification: Graves and others, ICML 2006.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct CTCLossAttrs {
  int64_t blank = 0;               // the class of no label; negative: counted from the last
  bool use_data_lengths = false;   // else every sample has all steps
  bool use_label_lengths = false;  // else a sample's labels end before the first that is negative or the blank
  bool zero_infinity = false;      // labels that no path gives lose 0, not infinity
  static FieldList Fields() {
    using A = CTCLossAttrs;
    return {{"blank", &A::blank, "class of no label"},
            {"use_data_lengths", &A::use_data_lengths, "take the steps of each sample"},
            {"use_label_lengths", &A::use_label_lengths, "take the number of labels of each sample"},
            {"zero_infinity", &A::zero_infinity, "impossible labels lose 0"}};
  }
};

// data (T, N, K), any numbers: softmax over K is taken; label (N, L) of class numbers, any dtype [, data_lengths (N)]
// [, label_lengths (N)] -> -log of the probability that data give each sample's labels (N). DataError, when run, for
// labels that are no class or the blank, and for lengths that are not whole or out of range. Gradients are of data
// alone.
const OpDef& CTCLossOp();
inline constexpr OpFunction<CTCLossAttrs, 2> CTCLoss{CTCLossOp};
const OpDef& CTCLossGradOp();  // (output gradient, data, label [, data_lengths] [, label_lengths]) -> data gradient

}  // namespace bindery
