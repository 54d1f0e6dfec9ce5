// Labels that are numbers, scaled where a network learns them, so that it learns numbers about 1 whatever their unit
// is; and what it gives is in the labels' own unit again. So data, metrics and who asks the model know nothing of it.
//
//   const OpenedData goods = OpenData("csv:goods.csv?label=price&label_kind=numbers&label_scale=standard",
//                                     {.training = true});
//   Model model{.symbol = net};                       // ends in a LinearRegressionOutput
//   SetPreprocessing(goods.preprocessing, &model);    // with the numbers
//   ScaleLabelsAsKept(&model);
//
// Behind the network's last layer x, what is compared with labels is x * unit + origin (kStandard: deviation and mean;
// kRange: the range and its smallest; a unit of 0 counts as 1). Its gradient is that of x compared with
// (label - origin) / unit.
#pragma once

#include "symbol/model.h"
#include "symbol/symbol.h"
#include "train/data/tables/scaling.h"

namespace bindery {

// With numbers for each number of a sample's label, in place of those that it has; kNone: without. Throws ModelError
// unless its only head compares numbers with them: LinearRegressionOutput, MAERegressionOutput.
Symbol ScaleLabels(const Symbol& symbol, const ColumnScaling& scaling);

// As the model's metadata have it (ScalingOfLabels): where its values and its graph come from different places. A model
// of another head stays as it is. Throws DataError for damaged numbers.
void ScaleLabelsAsKept(Model* model);

}  // namespace bindery
