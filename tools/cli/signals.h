// Signals that end a training, or make it save.
#pragma once

#include "train/trainer.h"

namespace bindery::cli {

// While it lives, an interrupt, or a request to end (SIGTERM, SIGUSR1), stops the trainer after its step, with a
// checkpoint; the second one ends the program at once. A hang-up saves a checkpoint, and the run goes on. One at a time.
class ListenToSignals {
 public:
  explicit ListenToSignals(Trainer* trainer);
  ~ListenToSignals();
  ListenToSignals(const ListenToSignals&) = delete;
  ListenToSignals& operator=(const ListenToSignals&) = delete;
};

}  // namespace bindery::cli
