// The models that the program knows by name, as symbols: input "data", declared with its shape (the batch unknown),
// head "softmax" with label "softmax_label", names as MXNet's examples have them.
//
//   mlp       (1, 28, 28)    128-64 relu, 10 classes; 109,386 parameters
//   lenet     (1, 28, 28)    LeNet with tanh: 5x5x20, pool, 5x5x50, pool, 500, 10; 431,080 parameters
//   resnet20  (3, 32, 32)    He et al. 2015 for CIFAR: 3 x 3 basic blocks of 16, 32, 64 channels, 1x1 projections; 10
//   resnet50  (3, 224, 224)  v1.5: bottlenecks with the stride in the 3x3; 1000 classes; 25.56 M parameters
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"
#include "symbol/symbol.h"

namespace bindery {

struct ZooOptions {
  Shape input = {};              // of one sample: (channels, rows, columns); empty: the model's own
  int64_t num_classes = 0;       // 0: the model's own
  double dropout = 0;            // before the last layer (mlp: after each hidden one); 0: none
  bool sync_batch_norm = false;  // statistics over all devices
};

std::vector<std::string> ModelNames();
// Throw Error for an unknown name, with the nearest one; ModelByName for options that make no sense.
Symbol ModelByName(const std::string& name, const ZooOptions& options = {});
Shape ModelInputShape(const std::string& name);  // the model's own, of one sample
int64_t ModelClasses(const std::string& name);   // the model's own number

}  // namespace bindery
