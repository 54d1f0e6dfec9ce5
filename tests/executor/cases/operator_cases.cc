#include "tests/executor/cases/operator_cases.h"

#include <iterator>

namespace bindery {

std::vector<OperatorCase> AllOperatorCases() {
  std::vector<OperatorCase> all;
  for (auto* family : {
           ActivationCases, ArrangeCases,     AttentionCases,    BatchNormCases, BinaryCases,
           CTCCases,        ConvolutionCases, CrossEntropyCases, DropoutCases,   FullyConnectedCases,
           IndexingCases,   LargeCases,       LossCases,         MatMulCases,    MeasureCases,
           NormalizeCases,  OrderCases,       PoolingCases,      QuantizedCases, RandomCases,
           RecurrentCases,  ReduceCases,      ShapeCases,        SoftmaxCases,   UnaryCases,
       }) {
    std::vector<OperatorCase> cases = family();
    all.insert(all.end(), std::make_move_iterator(cases.begin()), std::make_move_iterator(cases.end()));
  }
  return all;
}

}  // namespace bindery
