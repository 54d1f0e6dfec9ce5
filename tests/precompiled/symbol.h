// What tests of symbols read (outside.h).
#include "symbol/graph.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/precompiled/outside.h"
