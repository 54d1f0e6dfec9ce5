// A run that is asked to stop.
#pragma once

#include "train/trainer.h"

namespace bindery {

// Fits until `step` steps are done.
inline FitResult FitUntil(int64_t step, Trainer* trainer, DataIter& data, FitOptions options) {
  options.on_batch = [=](const BatchReport& report) {
    if (report.step == step) trainer->RequestStop();
  };
  return trainer->Fit(data, options);
}

}  // namespace bindery
