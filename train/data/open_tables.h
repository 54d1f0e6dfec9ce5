// The kinds of data that are numbers in rows, for OpenData (train/data/open.h).
#pragma once

#include "train/data/open.h"
#include "train/data/samples/numbers.h"
#include "train/data/settings.h"

namespace bindery {

// csv; npy and npz. Of all samples, whatever the shard: by it are measured those that are trained on. Throw DataError.
OpenedData OpenCsv(DataSettings* settings, const Shard& shard, const OpenOptions& options);
OpenedData OpenArrays(DataSettings* settings, const Shard& shard, const OpenOptions& options);

}  // namespace bindery
