// Loader: brings one device's share of the arrays that a batch has on the host, and the step block, to their place; or
// the block alone, where a device sits out.
//
// A device whose memory the host can write gets them in one go. For others it takes two parts. The first cuts the
// arrays into staging memory and copies them to a landing place on the device, by the copy lane and while the step
// before is still running; the second moves them from there, by the compute lane, when that step is over. Two landing
// places take turns: the second part may be one launch with all of its step, which is over late.
#pragma once

#include <memory>
#include <vector>

#include "engine/memory/storage.h"
#include "engine/step.h"
#include "executor/batch.h"
#include "executor/group/split_batch.h"
#include "executor/step_block.h"

namespace bindery {

// What the parts of one run are given. Used again from step to step.
struct StepInput {
  struct Share {
    BatchPtr batch;                  // until it is loaded
    std::shared_ptr<Chunk> staging;  // as the device's stream copies it: block, data, labels
    std::vector<bool> landed;        // per array: it came from the host
  };
  mutable std::vector<Share> shares = {};  // per device of the group
  int turn = 0;                            // which landing place it is for
  bool is_cut = false;                     // every share has a batch of its own
  bool with_labels = true;
  StepBlock block = {};  // but for what each device has of its own
};

// Where one input of a batch goes on a device.
struct InputSlot {
  DType dtype = DType::kFloat32;
  int axis = -1;  // batch axis
  void* data = nullptr;
  int64_t bytes = 0;    // of the share
  int64_t landing = 0;  // offset in the landing place
};

struct Loader {
  static constexpr int kTurns = 2;
  Device device;
  int index;  // in the group
  SampleRange range;
  std::shared_ptr<Chunk> block;         // a StepBlock
  std::vector<InputSlot> slots = {};    // data, then labels
  size_t num_data = 0;                  // of them
  std::shared_ptr<Chunk> landing = {};  // of LandingBytes; not for host addressable devices

  void AddSlot(InputSlot slot);
  int64_t LandingBytes() const;

  // The parts, in order: they write `written` and, on the way, `landed`. Their payload is a StepInput.
  StepParts Parts(const VarPtr& landed, const std::vector<VarPtr>& written) const;

 private:
  void Load(const StepInput& input) const;
  void Stage(const StepInput& input, Stream& stream) const;
  void Place(const StepInput& input, Stream& stream) const;
  StepBlock BlockOf(const StepInput& input) const;
  template <class Visit>
  void ForEachHostArray(const StepInput& input, const Visit& visit) const;
  void Cut(const StepInput& input, const HostTensor& source, const InputSlot& slot, void* to) const;
};

}  // namespace bindery
