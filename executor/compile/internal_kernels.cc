#include "executor/compile/internal_kernels.h"

#include "engine/backend.h"

namespace bindery {
namespace {

Kernel Flat(const Format& format, std::function<Call(const KernelArgs&)> bind) {
  return {.implementation = "flat", .input_formats = {format}, .output_formats = {format}, .bind = std::move(bind)};
}

const FlatKernels& FlatOf(const KernelArgs& args) { return Backend::Of(args.stream->device().kind).flat(); }

}  // namespace

Kernel MakeCopy(int64_t bytes, const Format& format) {
  return Flat(format, [bytes](const KernelArgs& args) -> Call {
    return [bytes, in = args.inputs[0], out = args.outputs[0], &stream = *args.stream, &flat = FlatOf(args)] {
      flat.Copy(stream, in, out, bytes);
    };
  });
}

Kernel MakeAddTo(DType dtype, int64_t storage_elements, const Format& format) {
  return Flat(format, [dtype, storage_elements](const KernelArgs& args) -> Call {
    return [=, in = args.inputs[0], out = args.outputs[0], &stream = *args.stream, &flat = FlatOf(args)] {
      flat.Add(stream, dtype, in, out, storage_elements);
    };
  });
}

Kernel MakeConstantFill(const HostTensor& value) {
  return {.implementation = "constant",
          .output_formats = {Format::Plain()},
          .bind = [value](const KernelArgs& args) -> Call {
            return [value, out = args.outputs[0], &stream = *args.stream] {
              CopyBetween(stream, Cpu(), value.raw(), stream.device(), out, value.bytes());
            };
          }};
}

}  // namespace bindery
