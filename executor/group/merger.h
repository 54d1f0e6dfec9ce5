// Merger: from a group's whole values to the devices' shares of them and back: outputs and input gradients, made one
// again where they are asked for, and the gradients of heads, shared out.
//
// What is merged lies in tensors of its own on the first device; nothing waits. Not thread safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor.h"
#include "executor/group/bindings.h"
#include "executor/group/options.h"

namespace bindery {

class Merger {
 public:
  Merger(const GroupSpec& spec, std::shared_ptr<Engine> engine) : spec_(spec), engine_(std::move(engine)) {}

  // Parts of the devices with samples, in order and private to the caller, to one tensor on the first part's device.
  // `type` tells where their samples are; without a batch axis `rule` says how they are merged ("" as "first").
  Tensor Merge(std::vector<Tensor> parts, const ValueType& type, const std::string& rule,
               const std::vector<SampleRange>& ranges) const;

  // Of the last run of a binding. [head][device with samples]; `end` -1: to the last head.
  std::vector<std::vector<Tensor>> OutputsPerDevice(const Binding& binding, int begin, int end) const;
  std::vector<Tensor> Outputs(const Binding& binding, int begin, int end) const;
  std::vector<std::vector<Tensor>> InputGradientsPerDevice(const Binding& binding) const;
  std::vector<Tensor> InputGradients(const Binding& binding) const;

  // [state][device with samples]: where they are.
  std::vector<std::vector<Tensor>> States(const Binding& binding) const;
  // The same from pieces of whole ones, which may be states themselves, wherever they are, before any is written.
  void SetStates(const Binding& binding, std::vector<std::vector<Tensor>> pieces) const;

  // Shares out arrays that are inputs of the bound programs: some head gradients, or all states. Without a batch axis
  // `rule` says how much of it each device gets: the first all (first), each its part (mean), all of them all.
  struct Sharing {
    int argument;
    const std::vector<Tensor>& pieces;
    ValueType type = {};
    std::string rule = {};
  };
  void ShareOut(const Binding& binding, const char* what, const std::vector<Sharing>& arrays) const;
  // The head gradients that the binding needs. The former throws Error, ShapeError, DataError unless this one is there
  // where it is needed (null: it is not); the latter does before anything is written.
  void CheckHeadGradient(const Binding& binding, size_t head, const std::vector<Tensor>* given) const;
  void PushHeadGradients(const Binding& binding, const DeviceArrays& gradients) const;

 private:
  const GroupSpec& spec_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace bindery
