// The pushes of one key whose values are sent compressed: each device packs its value, and the sum is of what was sent.
//
// Where the host addresses a device's memory, its worker packs. Elsewhere the value is copied to the host, packed there.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "engine/step.h"
#include "engine/tensor.h"
#include "kvstore/compression.h"

namespace bindery {

class CompressedPush {
 public:
  // Of values like `stored`; what it makes lies on that device, or on the host. `name`: of the key, in messages.
  CompressedPush(const Tensor& stored, const Compression& compression, std::string name);

  // Appends the sum, in the order of the list, of what is sent of `values`, and returns the tensor that gets it. A
  // residual belongs to a place in the list: it goes where that place's value is. All residuals stay what they were
  // until `keep`, which is to be pushed after each push, puts in their place what that has left: not if the sum failed,
  // nor if something did that the caller lets it read besides.
  //
  // Payload: none, then what is not finite fails the push; or the scale of the values (double), then it arrives as NaN.
  Tensor Append(std::span<const Tensor> values, StepParts* parts, Operation* keep);

  // One for each place that has sent something; waits.
  std::vector<HostTensor> Residuals() const;
  // Throws ShapeError for what are no such values.
  void SetResiduals(const std::vector<HostTensor>& residuals);

 private:
  struct Sender {
    // Two residuals: the one that holds, and what the push under way leaves, to hold in its place.
    Tensor residuals;
    std::shared_ptr<int> held = std::make_shared<int>(0);  // which holds; changes with residuals.var()
    Tensor packed = {};
  };
  // Where a device's values are packed and added up.
  static Device HostOf(Device device);
  Tensor NewResiduals(Device device) const;
  Tensor HeldBy(const Sender& sender) const;  // of one that nobody uses now
  void AppendPack(const Tensor& value, const Sender& sender, StepParts* parts) const;

  const std::shared_ptr<Engine> engine_;
  const DType dtype_;
  const Shape shape_;
  const Compression compression_;
  const std::string name_;
  const Tensor sum_;
  std::vector<Sender> senders_;
};

}  // namespace bindery
