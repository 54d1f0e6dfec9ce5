#include "executor/executor.h"

#include <vector>

#include "base/error.h"
#include "bindery/c_api/call.h"
#include "bindery/c_api/model.h"
#include "bindery/c_api/tensor.h"

struct bindery_executor {
  bindery::Executor executor;
};

using namespace bindery;         // NOLINT: these are its functions
using namespace bindery::c_api;  // NOLINT

bindery_status bindery_executor_create(const bindery_model* model, const bindery_input* inputs, size_t num_inputs,
                                       const bindery_executor_options* options, bindery_executor** executor) {
  return Make(executor, [&] {
    const bindery_executor_options given = options ? *options : bindery_executor_options{};
    if (given.threads < 0) Throw("an executor of {} threads: expected 0 or more", given.threads);
    const Model& source = *Given(model, "model").model;
    ForbidForks();
    auto made = std::unique_ptr<bindery_executor>(
        new bindery_executor{Executor(source.symbol, {.device = DeviceOf(given.device),
                                                      .inputs = Describe(inputs, num_inputs),
                                                      .for_training = given.training != 0,
                                                      .threads = given.threads,
                                                      .seed = given.seed,
                                                      // Parameters are written in place, which no engine sees.
                                                      .switches = {.derive = false}})});
    made->executor.SetParams(source.params, source.aux);
    return made.release();
  });
}

bindery_status bindery_executor_argument(const bindery_executor* executor, const char* name, bindery_tensor** tensor) {
  return Make(tensor,
              [&] { return HandleOf(Given(executor, "executor").executor.ArgumentArray(&Given(name, "name"))); });
}

bindery_status bindery_executor_gradient(const bindery_executor* executor, const char* name, bindery_tensor** tensor) {
  return Make(tensor,
              [&] { return HandleOf(Given(executor, "executor").executor.GradientArray(&Given(name, "name"))); });
}

bindery_status bindery_executor_auxiliary(const bindery_executor* executor, const char* name, bindery_tensor** tensor) {
  return Make(tensor,
              [&] { return HandleOf(Given(executor, "executor").executor.AuxiliaryArray(&Given(name, "name"))); });
}

bindery_status bindery_executor_output(const bindery_executor* executor, size_t index, bindery_tensor** tensor) {
  return Make(tensor, [&] {
    const Executor& asked = Given(executor, "executor").executor;
    if (index >= asked.output_names().size()) {
      Throw("there is no output {}: the network has {}", index, asked.output_names().size());
    }
    return HandleOf(asked.OutputArray(static_cast<int>(index)));
  });
}

bindery_status bindery_executor_set(const bindery_executor* executor, const char* name, const bindery_tensor* value) {
  return Try([&] {
    const Tensor to = Given(executor, "executor").executor.ArgumentArray(&Given(name, "name"));
    to.CopyFrom(Given(value, "value").tensor);
    to.Wait();
  });
}

bindery_status bindery_executor_forward(bindery_executor* executor) {
  return Try([&] { Given(executor, "executor").executor.Forward(); });
}

bindery_status bindery_executor_backward(bindery_executor* executor, const bindery_tensor* const* head_gradients,
                                         size_t count) {
  return Try([&] {
    if (count > 0) Given(head_gradients, "head_gradients");
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < count; ++i) gradients.push_back(head_gradients[i] ? head_gradients[i]->tensor : Tensor());
    Given(executor, "executor").executor.Backward(gradients);
    // Until they are read, so that borrowed memory is the caller's again.
    for (const Tensor& gradient : gradients) {
      if (gradient.defined()) gradient.Wait();
    }
  });
}

void bindery_executor_free(bindery_executor* executor) { Free(executor); }
