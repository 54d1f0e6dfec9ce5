#include "executor/internal_kernels.h"

#include "engine/kernels/flat.h"

namespace bindery {
namespace {

Kernel Flat(const Format& format, std::function<Call(const KernelArgs&)> bind) {
  return {.implementation = "flat", .input_formats = {format}, .output_formats = {format}, .bind = std::move(bind)};
}

}  // namespace

Kernel MakeCopy(int64_t bytes, const Format& format) {
  return Flat(format, [bytes](const KernelArgs& args) -> Call {
    return [bytes, in = args.inputs[0], out = args.outputs[0]] { flat::Copy(in, out, bytes); };
  });
}

Kernel MakeAddTo(DType dtype, int64_t storage_elements, const Format& format) {
  return Flat(format, [dtype, storage_elements](const KernelArgs& args) -> Call {
    return [=, in = args.inputs[0], out = args.outputs[0]] { flat::Add(dtype, in, out, storage_elements); };
  });
}

Kernel MakeConstantFill(const HostTensor& value) {
  return {.implementation = "constant",
          .output_formats = {Format::Plain()},
          .bind = [value](const KernelArgs& args) -> Call {
            return [value, out = args.outputs[0]] { flat::Copy(value.raw(), out, value.bytes()); };
          }};
}

}  // namespace bindery
