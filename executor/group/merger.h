// Merger: from a group's whole values to the devices' shares of them and back: outputs and input gradients, made one
// again where they are asked for, and the gradients of heads, shared out.
//
// What is merged lies in tensors of its own on the first device; nothing waits. Not thread safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/host_tensor.h"
#include "engine/tensor.h"
#include "executor/group/bindings.h"
#include "executor/group/options.h"

namespace bindery {

class Merger {
 public:
  Merger(const GroupSpec& spec, std::shared_ptr<Engine> engine) : spec_(spec), engine_(std::move(engine)) {}

  // Parts of the devices with samples, in order and private to the caller, to one tensor on the first part's device.
  // `type` tells where their samples are; without a batch axis `rule` says how they are merged ("" as "first").
  Tensor Merge(std::vector<Tensor> parts, ValueType type, const std::string& rule,
               const std::vector<SampleRange>& ranges) const;

  // Of the last run of a binding. [head][device with samples]; `end` -1: to the last head.
  std::vector<std::vector<Tensor>> OutputsPerDevice(const Binding& binding, int begin, int end) const;
  std::vector<Tensor> Outputs(const Binding& binding, int begin, int end) const;
  std::vector<std::vector<Tensor>> InputGradientsPerDevice(const Binding& binding) const;
  std::vector<Tensor> InputGradients(const Binding& binding) const;

  // Writes every device's share of the head gradients that the binding needs to its place. Per head, nullptr: not given;
  // or empty: none at all. Throws Error, ShapeError unless they are there, before anything is written.
  void PushHeadGradients(const Binding& binding, std::span<const HostTensor* const> gradients) const;

 private:
  void PushHeadGradient(const Binding& binding, int head, const HostTensor& gradient) const;

  const GroupSpec& spec_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace bindery
