#include "executor/predictor.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindery/c_api/call.h"
#include "bindery/c_api/model.h"
#include "bindery/c_api/tensor.h"

struct bindery_predictor {
  bindery::Predictor predictor;
};

using namespace bindery;         // NOLINT: these are its functions
using namespace bindery::c_api;  // NOLINT

bindery_status bindery_predictor_create(const bindery_model* model, const bindery_input* inputs, size_t num_inputs,
                                        const bindery_predictor_options* options, bindery_predictor** predictor) {
  return Make(predictor, [&] {
    const bindery_predictor_options given = options ? *options : bindery_predictor_options{};
    ForbidForks();
    return new bindery_predictor{Predictor(*Given(model, "model").model, {.device = DeviceOf(given.device),
                                                                          .inputs = Describe(inputs, num_inputs),
                                                                          .calls = given.calls,
                                                                          .threads = given.threads})};
  });
}

bindery_status bindery_predictor_run(const bindery_predictor* predictor, const char* const* names,
                                     const bindery_tensor* const* inputs, size_t num_inputs, bindery_tensor** outputs,
                                     size_t num_outputs) {
  return Try([&] {
    const Predictor& asked = Given(predictor, "predictor").predictor;
    if (num_inputs > 0) Given(names, "names"), Given(inputs, "inputs");
    if (num_outputs != asked.output_names().size()) {
      Throw("the model has {} outputs, asked for {}", asked.output_names().size(), num_outputs);
    }
    Given(outputs, "outputs");
    TensorMap by_name;
    for (size_t i = 0; i < num_inputs; ++i) {
      const std::string name = &Given(names[i], "an input's name");
      if (!by_name.emplace(name, Given(inputs[i], "an input").tensor).second) Throw("input \"{}\" comes twice", name);
    }
    std::vector<std::unique_ptr<bindery_tensor>> results;
    for (const Tensor& output : asked.Predict(by_name)) results.emplace_back(HandleOf(output));
    for (size_t i = 0; i < num_outputs; ++i) outputs[i] = results[i].release();
  });
}

void bindery_predictor_free(bindery_predictor* predictor) { Free(predictor); }
