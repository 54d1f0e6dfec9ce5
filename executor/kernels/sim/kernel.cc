#include "executor/kernels/sim/kernel.h"

#include <utility>

#include "engine/sim/stream.h"

namespace bindery {

Kernel OnSimulatedDevice(Kernel reference, std::string what) {
  auto bind = [bind = std::move(reference.bind), what = std::move(what)](const KernelArgs& args) -> Call {
    sim::SimStream& stream = sim::SimStreamOf(*args.stream);
    std::vector<void*> inputs, outputs;
    for (const void* input : args.inputs) inputs.push_back(stream.View(input));
    for (const void* output : args.outputs) outputs.push_back(stream.View(output));
    const KernelArgs views{.inputs = inputs,
                           .outputs = outputs,
                           .scratch = stream.View(args.scratch),
                           .step = reinterpret_cast<const StepBlock*>(stream.View(args.step)),
                           .stream = args.stream};
    return [&stream, call = bind(views), what] { stream.Enqueue(call, what); };
  };
  reference.bind = std::move(bind);
  return reference;
}

}  // namespace bindery
