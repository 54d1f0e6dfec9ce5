// Tensor: an array on a device. A handle: copies and views share the memory and the variable that orders access to it.
// Always plain (C order). Whatever touches the memory must run as an engine operation that names `var()`; the methods
// below do that. Reading to the host waits and rethrows an error that travelled into the tensor.
//
// Thread safety: a Tensor object like any value; the data by the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/device.h"
#include "base/dtype.h"
#include "base/host_tensor.h"
#include "base/shape.h"
#include "engine/engine.h"
#include "engine/memory/storage.h"

namespace bindery {

class Tensor {
 public:
  Tensor() = default;                                                                      // empty: defined() is false
  Tensor(std::shared_ptr<Engine> engine, Device device, DType dtype, const Shape& shape);  // zero-filled, own variable
  Tensor(Device device, DType dtype, const Shape& shape) : Tensor(DefaultEngine(), device, dtype, shape) {}
  // On memory that exists: `keep_alive` owns it, `var` orders access (several tensors may share one, so this one counts
  // as part of what the variable stands for).
  Tensor(std::shared_ptr<Engine> engine, Device device, DType dtype, const Shape& shape, void* data,
         std::shared_ptr<const void> keep_alive, VarPtr var);

  bool defined() const { return engine_ != nullptr; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  Device device() const { return device_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.Elements(); }
  int64_t bytes() const { return elements() * SizeOf(dtype_); }
  // Where it is, as the device sees it: for kernels, never to be followed by the host.
  void* address() const { return data_; }
  // The same for the host. Throws DeviceError where the host cannot address the device's memory.
  void* data() const;
  const VarPtr& var() const { return var_; }
  bool whole() const { return whole_; }  // var() stands for nothing but these elements

  Tensor Reshape(const Shape& shape) const;        // a view; throws ShapeError on another count
  Tensor Slice(int64_t begin, int64_t end) const;  // a view of rows along axis 0; throws ShapeError
  // The very same for another device that shares the memory, whose worker then writes it. Throws DeviceError if it does
  // not.
  Tensor On(Device device) const;
  // The same memory as a tensor of another engine. Neither engine knows what the other still has to do there: wait for
  // this tensor first, and write it by one of them only while the other leaves it alone.
  Tensor For(std::shared_ptr<Engine> engine) const;

  // The three ways to write, all asynchronous, run by this tensor's device. An error that travels here fails the
  // tensor, with all its views. Writing a whole tensor makes it whole again; writing a part (a slice, a tensor on
  // shared memory) cannot know about the rest, so while the variable is failed it is skipped, until the whole is
  // written or Recover().
  //
  // From the host: `source` may be changed at once. Casts. Throws ShapeError on another shape.
  void CopyFrom(const HostTensor& source) const;
  // Device to device. Casts. Throws ShapeError on another shape. The two may be views of the same memory. `priority`:
  // that of the operation.
  void CopyFrom(const Tensor& source, int priority = 0) const;
  void Fill(double value) const;
  HostTensor ToHost() const;  // waits
  void Wait() const;

 private:
  void CheckDefined(const char* method) const;
  void CheckShape(const Shape& source) const;
  void Write(const char* name, std::vector<VarPtr> reads, std::function<void(const OpContext&)> run,
             int priority = 0) const;

  std::shared_ptr<Engine> engine_;
  Device device_;
  DType dtype_ = DType::kFloat32;
  Shape shape_{0};
  void* data_ = nullptr;
  std::shared_ptr<const void> keep_alive_;
  VarPtr var_;
  bool whole_ = false;  // var_ stands for nothing but these elements
};

// In their order, those that are the same by other devices' names (Tensor::On) once: the first of them.
std::vector<Tensor> EachOnce(const std::vector<Tensor>& tensors);

}  // namespace bindery
