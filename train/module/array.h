// Array: what modules hand to each other: an array on devices, whole or in the pieces that the replicas made, or one on
// the host that has not gone to a device yet. Pieces stay where they are until somebody wants the whole: a module that
// reads them takes the rows that its replicas need from where these lie.
//
//   const Array scores = net.Forward(images).leaf();
//   scores.ToHost();      // waits
//   scores.Whole();       // a Tensor, on the first piece's device
//
// A handle: copies share the data. Thread safety: as Tensor (engine/tensor.h).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/device.h"
#include "base/host_tensor.h"
#include "engine/tensor.h"
#include "train/module/nest.h"

namespace bindery {

class Array {
 public:
  Array() = default;         // empty
  Array(Tensor whole);       // an undefined one is empty
  Array(HostTensor values);  // on the host
  // Rows that follow each other along `axis`, of one type, on any devices of one engine. Throws ShapeError unless they
  // fit together.
  Array(std::vector<Tensor> pieces, int axis);

  bool empty() const;  // nothing, or no elements
  bool on_host() const { return host_ != nullptr; }
  const std::shared_ptr<const HostTensor>& host() const { return host_; }  // null: on devices
  const std::vector<Tensor>& pieces() const { return pieces_; }            // none on the host
  int axis() const { return axis_; }                                       // along which there are several pieces
  Device device() const;                                                   // of the first piece; Cpu(0) on the host
  const Shape& shape() const { return shape_; }                            // of the whole
  DType dtype() const { return dtype_; }

  // As pieces of an engine's; what is on the host shares its memory with them.
  std::vector<Tensor> PiecesFor(const std::shared_ptr<Engine>& engine) const;
  // In one piece, on that device, or where the first piece is. One that is so already is itself, not copied. On the
  // host it becomes one of `engine`, or of DefaultEngine(). Throws Error if it is nothing.
  Tensor Whole(std::optional<Device> device = {}, const std::shared_ptr<Engine>& engine = nullptr) const;
  HostTensor ToHost() const;  // waits
  void Wait() const;          // throws what became of the pieces

 private:
  std::vector<Tensor> pieces_;
  std::shared_ptr<const HostTensor> host_;
  int axis_ = 0;
  Shape shape_{0};
  DType dtype_ = DType::kFloat32;
};

using Values = Nest<Array>;

template <>
struct LeafIn<Tensor> {
  using Type = Array;
};
template <>
struct LeafIn<HostTensor> {
  using Type = Array;
};

}  // namespace bindery
