// What tests of executors read (outside.h).
#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/precompiled/outside.h"
