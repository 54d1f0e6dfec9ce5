#include "tests/executor/operator_cases.h"

#include <iterator>

namespace bindery {

std::vector<OperatorCase> AllOperatorCases() {
  std::vector<OperatorCase> all;
  for (auto* family : {ActivationCases, AttentionCases, BatchNormCases, ConvolutionCases, DropoutCases, BinaryCases,
                       UnaryCases, FullyConnectedCases, LossCases, MatMulCases, MeasureCases, PoolingCases, ReduceCases,
                       ShapeCases, SoftmaxCases, LargeCases}) {
    std::vector<OperatorCase> cases = family();
    all.insert(all.end(), std::make_move_iterator(cases.begin()), std::make_move_iterator(cases.end()));
  }
  return all;
}

}  // namespace bindery
