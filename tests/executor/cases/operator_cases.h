// The cases in which every operator is checked, by family: data for CheckOperator. A new operator gets its cases in one
// of the cases_*.cc beside this file; tests/executor/operators/table_test.cc says which operators have none.
#pragma once

#include <vector>

#include "tests/executor/check_operator.h"

namespace bindery {

std::vector<OperatorCase> ActivationCases();
std::vector<OperatorCase> AttentionCases();
std::vector<OperatorCase> ArrangeCases();  // what is made of others, and by numbers in tensors
std::vector<OperatorCase> BatchNormCases();
std::vector<OperatorCase> ConvolutionCases();
std::vector<OperatorCase> CTCCases();
std::vector<OperatorCase> CrossEntropyCases();
std::vector<OperatorCase> DropoutCases();
std::vector<OperatorCase> BinaryCases();  // element-wise, two operands and more
std::vector<OperatorCase> UnaryCases();   // element-wise, one operand
std::vector<OperatorCase> FullyConnectedCases();
std::vector<OperatorCase> IndexingCases();
std::vector<OperatorCase> LossCases();
std::vector<OperatorCase> MatMulCases();
std::vector<OperatorCase> MeasureCases();
std::vector<OperatorCase> NormalizeCases();
std::vector<OperatorCase> OrderCases();  // and sequences
std::vector<OperatorCase> PoolingCases();
std::vector<OperatorCase> QuantizedCases();       // layers of integers
std::vector<OperatorCase> LargeQuantizedCases();  // in LargeCases
std::vector<OperatorCase> RandomCases();          // and quantized numbers
std::vector<OperatorCase> RecurrentCases();
std::vector<OperatorCase> ReduceCases();
std::vector<OperatorCase> ShapeCases();
std::vector<OperatorCase> SoftmaxCases();
std::vector<OperatorCase> LargeCases();  // of all families: large enough to be run by several threads
std::vector<OperatorCase> AllOperatorCases();

}  // namespace bindery
