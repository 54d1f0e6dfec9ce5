// The models that the program knows by name, as symbols: input "data", declared with its shape (the batch unknown),
// head "softmax" with label "softmax_label". Names of those of images are as MXNet's examples have them.
//
// Of images (channels, rows, columns); `classes` as below:
//   mlp          (1, 28, 28)    128-64 relu, 10 classes; 109,386 parameters
//   lenet        (1, 28, 28)    LeNet with tanh: 5x5x20, pool, 5x5x50, pool, 500, 10; 431,080 parameters
//   resnet20     (3, 32, 32)    He et al. 2015 for CIFAR: 3 x 3 basic blocks of 16, 32, 64 channels, 1x1 projections; 10
//   resnet18     (3, 224, 224)  of basic blocks, 2-2-2-2; 1000 classes; 11,689,512
//   resnet34     (3, 224, 224)  of basic blocks, 3-4-6-3; 1000; 21,797,672
//   resnet50     (3, 224, 224)  v1.5: bottlenecks with the stride in the 3x3; 1000 classes; 25.56 M parameters
//   mobilenetv2  (3, 224, 224)  Sandler et al. 2018: inverted residuals with linear bottlenecks; 1000; 3,504,872
//   vgg11        (3, 224, 224)  Simonyan and Zisserman 2014, configuration A; 1000; 132,863,336
//   unet         (1, 64, 64)    Ronneberger et al. 2015, small: 16 to 128 channels, batch-norm; extents are multiples of
//                               8; 2 classes for each pixel: probabilities (N, classes, rows, columns)
// Of sequences of class numbers, (characters): probabilities (N, characters, classes) of the next, label likewise:
//   gpt          (64)           Radford et al. 2019: pre-norm, exact GELU, learned positions; 4 layers, width 128, 4 heads
//   lstm         (64)           embedding, 2 layers of LSTM of width 256 that begin at 0, linear head
//   transformer  (32)           Vaswani et al. 2017, encoder and decoder: "data" is the source, and "target", which the
//                               decoder sees up to each place, of the same length; post-norm, ReLU, learned positions
//                               (their table 3, row E); 2 layers each, width 128, 4 heads, 4 x width inside
// All three have 256 classes.
//
// Initial values are the published ones, kept with the variables. Not for mlp, lenet, resnet20 and resnet50: those are
// the trainer's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "symbol/symbol.h"

namespace bindery {

struct ZooOptions {
  Shape input = {};              // of one sample: (channels, rows, columns) or (characters); empty: the model's own
  int64_t num_classes = 0;       // 0: the model's own
  double dropout = 0;            // before the last layer (mlp, vgg11: after each hidden one; of sequences: of what is
                                 // embedded, and of what each layer gives); 0: none
  bool sync_batch_norm = false;  // statistics over all devices
  // Of sequences. 0: the model's own
  int64_t layers = 0;
  int64_t width = 0;        // of a position's vector, in all layers
  int64_t heads = 0;        // of attention
  bool tied = false;        // the head's weights are the embedding's (Press and Wolf 2017)
  bool time_first = false;  // lstm: data and label (characters, N), probabilities (characters, N, classes)
};

std::vector<std::string> ModelNames();
// Does the text begin with one of them, and with nothing or "(" behind it?
bool IsModelName(std::string_view text);
// `name` may have settings with it, "gpt(layers=2, context=128, tied=1)", which count where the options leave them open:
// classes, and those of the model: layers, width, heads, context (characters), tied, time_first. Of images, but for unet,
// also head=regression with outputs=N, 1 unless said: in place of classes N numbers for each sample, the label likewise
// (LinearRegressionOutput).
// Throw Error for an unknown name, with the nearest one, and settings; ModelByName for options that make no sense.
Symbol ModelByName(const std::string& name, const ZooOptions& options = {});
Shape ModelInputShape(const std::string& name);  // of one sample
int64_t ModelClasses(const std::string& name);

}  // namespace bindery
