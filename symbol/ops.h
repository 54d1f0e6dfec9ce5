// Every operator, for users. The registry's table is in symbol/ops.cc.
#pragma once

#include "symbol/ops/activation.h"
#include "symbol/ops/attention.h"
#include "symbol/ops/batch_norm.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/curve.h"
#include "symbol/ops/dropout.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/matmul.h"
#include "symbol/ops/measure.h"
#include "symbol/ops/normalize.h"
#include "symbol/ops/pooling.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/shape_ops.h"
#include "symbol/ops/softmax.h"
