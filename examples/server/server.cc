#include "examples/server/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/names.h"
#include "examples/server/tensor_json.h"
#include "symbol/graph.h"

namespace bindery::server {
namespace {

using nlohmann::json;
using Buckets = prometheus::Histogram::BucketBoundaries;

constexpr const char* kJson = "application/json";
constexpr const char* kBytes = "application/octet-stream";

struct Input {
  std::string name;
  Shape sample = {};
  DType dtype = DType::kFloat32;
};

// All that comes with requests: arguments without values, but for labels.
std::vector<Input> InputsOf(const Model& model, const std::map<std::string, Shape>& samples) {
  const auto labels = ListLabels(model.symbol);
  std::vector<Input> inputs;
  std::vector<std::string> names;
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    const std::string& name = node->name();
    if (!node->is_variable() || labels.contains(name) || model.params.contains(name) || model.aux.contains(name))
      continue;
    Input input{.name = name, .dtype = node->declared_dtype.value_or(DType::kFloat32)};
    const auto given = samples.find(name);
    if (given != samples.end()) {
      input.sample = given->second;
    } else if (node->declared_shape && node->declared_shape->rank() > 0 && node->declared_shape->Erase(0).IsKnown()) {
      input.sample = node->declared_shape->Erase(0);
    } else {
      Throw<ModelError>("the model does not say the shape of \"{0}\": give that of a sample, {0}=1,28,28", name);
    }
    inputs.push_back(input);
    names.push_back(name);
  }
  if (inputs.empty()) throw ModelError("the model has no inputs");
  for (const auto& [name, shape] : samples) {
    if (std::ranges::find(names, name) == names.end()) {
      throw ModelError(fmt::format("the model has no input \"{}\"{}", name, NameHint(name, names)));
    }
  }
  return inputs;
}

PredictorOptions OptionsFor(const std::vector<Input>& inputs, const ServerOptions& options) {
  PredictorOptions wanted{.device = options.device, .calls = options.batches.workers, .threads = options.threads};
  for (const Input& input : inputs) {
    wanted.inputs.push_back({input.name, input.sample.Insert(0, options.batches.max_batch), input.dtype});
  }
  return wanted;
}

std::string ErrorText(const std::string& message) {
  return json({{"error", message}}).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

void Fail(int status, const std::string& message, httplib::Response* response) {
  response->status = status;
  response->set_content(ErrorText(message), kJson);
}

}  // namespace

struct InferenceServer::State {
  const ServerOptions options;
  const std::vector<Input> inputs;
  const Predictor predictor;
  std::vector<Shape> output_samples = {};

  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& answers = prometheus::BuildCounter()
                                                         .Name("bindery_requests_total")
                                                         .Help("Answers to /predict, by status")
                                                         .Register(registry);
  prometheus::Histogram& seconds =
      prometheus::BuildHistogram()
          .Name("bindery_request_seconds")
          .Help("From the whole request to its answer")
          .Register(registry)
          .Add({}, Buckets{1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10});
  prometheus::Histogram& batch_samples = prometheus::BuildHistogram()
                                             .Name("bindery_batch_samples")
                                             .Help("Samples of the batches that were computed")
                                             .Register(registry)
                                             .Add({}, Buckets{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024});
  prometheus::Counter& samples = prometheus::BuildCounter()
                                     .Name("bindery_samples_total")
                                     .Help("Samples that were asked for and computed")
                                     .Register(registry)
                                     .Add({});
  prometheus::Counter& fillers = prometheus::BuildCounter()
                                     .Name("bindery_filler_samples_total")
                                     .Help("Samples that were computed to fill batches up")
                                     .Register(registry)
                                     .Add({});
  prometheus::Gauge& queued =
      prometheus::BuildGauge().Name("bindery_queued_samples").Help("Samples that wait").Register(registry).Add({});
  prometheus::Gauge& open = prometheus::BuildGauge()
                                .Name("bindery_open_requests")
                                .Help("Requests that have come and are not answered yet")
                                .Register(registry)
                                .Add({});

  Batcher batcher;
  httplib::Server http = {};
  int port = 0;
  std::atomic<bool> has_ended = false;

  State(const Model& model, const ServerOptions& wanted)
      : options(wanted), inputs(InputsOf(model, wanted.samples)), predictor(model, OptionsFor(inputs, wanted)),
        batcher([this](const HostTensorMap& batch) { return predictor.Predict(batch); }, wanted.batches,
                [this](int64_t asked, int64_t computed) {
                  batch_samples.Observe(static_cast<double>(asked));
                  samples.Increment(static_cast<double>(asked));
                  fillers.Increment(static_cast<double>(computed - asked));
                }) {
    Warm();
    Route();
    port = options.port == 0 ? http.bind_to_any_port(options.host)
                             : (http.bind_to_port(options.host, options.port) ? options.port : -1);
    if (port <= 0) Throw<DataError>("cannot listen on {}:{}", options.host, options.port);
  }

  // Binds every shape that batches will have, and sees that outputs are of samples.
  void Warm() {
    for (int64_t size = 1;; size = std::min(2 * size, options.batches.max_batch)) {
      HostTensorMap zeros;
      for (const Input& input : inputs) zeros[input.name] = HostTensor(input.dtype, input.sample.Insert(0, size));
      const std::vector<HostTensor> outputs = predictor.Predict(zeros);
      output_samples.clear();
      for (size_t i = 0; i < outputs.size(); ++i) {
        const Shape& shape = outputs[i].shape();
        if (shape.rank() == 0 || shape[0] != size) {
          Throw<ModelError>("the output \"{}\" of {} samples is {}: it has no row for each of them",
                            predictor.output_names()[i], size, shape);
        }
        output_samples.push_back(shape.Erase(0));
      }
      if (size == options.batches.max_batch) return;
    }
  }

  void Route() {
    // What is packed could become larger than any limit.
    http.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!request.has_header("Content-Encoding")) return httplib::Server::HandlerResponse::Unhandled;
      Fail(415, "bodies are taken as they are, without Content-Encoding", &response);
      return httplib::Server::HandlerResponse::Handled;
    });
    http.new_task_queue = [connections = options.connections] {
      return new httplib::ThreadPool(static_cast<size_t>(connections));
    };
    // Not of several programs, among which connections would be shared out (SO_REUSEPORT, httplib's default).
    http.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http.set_payload_max_length(static_cast<size_t>(options.body_bytes));
    http.set_keep_alive_max_count(1'000'000);
    http.set_keep_alive_timeout(2);
    http.set_read_timeout(5);
    http.set_write_timeout(5);
    http.set_tcp_nodelay(true);
    http.Get("/", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(Description().dump(2) + "\n", kJson);
    });
    http.Get("/healthz",
             [](const httplib::Request&, httplib::Response& response) { response.set_content("ok\n", "text/plain"); });
    http.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      queued.Set(static_cast<double>(batcher.queued()));
      response.set_content(prometheus::TextSerializer().Serialize(registry.Collect()), "text/plain; version=0.0.4");
    });
    http.Post("/predict", [this](const httplib::Request& request, httplib::Response& response) {
      const auto begun = std::chrono::steady_clock::now();
      open.Increment();
      Answer(request, &response);
      open.Decrement();
      seconds.Observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
      answers.Add({{"code", std::to_string(response.status == -1 ? 200 : response.status)}}).Increment();
    });
    http.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const char* what = response.status == 404   ? "there is nothing here: POST /predict, GET /, /healthz, /metrics"
                         : response.status == 413 ? "the request is too large"
                                                  : "this is no request that can be answered";
      response.set_content(ErrorText(fmt::format("{} {}: {}", request.method, request.path, what)), kJson);
    });
  }

  json Description() const {
    json text = {{"inputs", json::object()}, {"outputs", json::object()}, {"max_batch", options.batches.max_batch}};
    const auto add = [&](const char* of, const std::string& name, const char* dtype, const Shape& sample) {
      text[of][name] = {{"dtype", dtype}, {"sample", std::vector<int64_t>(sample.begin(), sample.end())}};
    };
    for (const Input& input : inputs) add("inputs", input.name, ToString(input.dtype), input.sample);
    for (size_t i = 0; i < output_samples.size(); ++i) {
      add("outputs", predictor.output_names()[i], "float32", output_samples[i]);
    }
    return text;
  }

  void Answer(const httplib::Request& request, httplib::Response* response) {
    try {
      const std::string type = request.get_header_value("Content-Type");
      const bool is_bytes = type.starts_with(kBytes);
      HostTensorMap batch = is_bytes ? FromBytes(request.body) : FromJson(request.body);
      const Batcher::Outputs outputs = batcher.Run(std::move(batch), options.time_limit);
      if (is_bytes) {
        const HostTensor floats = outputs[0].dtype() == DType::kFloat32 ? outputs[0] : outputs[0].Cast(DType::kFloat32);
        response->set_content(static_cast<const char*>(floats.raw()), static_cast<size_t>(floats.bytes()), kBytes);
        return;
      }
      std::string text = "{\"outputs\":{";
      for (size_t i = 0; i < outputs.size(); ++i) {
        text += fmt::format("{}{}:", i == 0 ? "" : ",", json(predictor.output_names()[i]).dump());
        AppendJson(outputs[i], &text);
      }
      response->set_content(text + "}}\n", kJson);
    } catch (const OverloadedError& e) {
      response->set_header("Retry-After", "1");
      Fail(503, e.what(), response);
    } catch (const StoppedError& e) {
      Fail(503, e.what(), response);
    } catch (const TimeoutError& e) {
      Fail(504, e.what(), response);
    } catch (const json::exception& e) {
      Fail(400, fmt::format("no JSON: {}", e.what()), response);
    } catch (const DataError& e) {
      Fail(400, e.message(), response);
    } catch (const ShapeError& e) {
      Fail(400, e.message(), response);
    } catch (const std::exception& e) {
      Fail(500, e.what(), response);
    }
  }

  // Inputs by name, below "inputs" or at the top.
  HostTensorMap FromJson(const std::string& body) const {
    const json request = json::parse(body);
    if (!request.is_object()) throw DataError("expected an object, as {\"data\": [...]}");
    const json& given = request.contains("inputs") ? request.at("inputs") : request;
    if (!given.is_object()) throw DataError("\"inputs\": expected an object of arrays by name");
    HostTensorMap batch;
    std::vector<std::string> names;
    for (const Input& input : inputs) {
      names.push_back(input.name);
      const auto found = given.find(input.name);
      if (found == given.end()) Throw<DataError>("the input \"{}\" is missing", input.name);
      HostTensor tensor = TensorFromJson(*found, input.dtype, input.name);
      if (tensor.shape() == input.sample) tensor = tensor.Reshape(input.sample.Insert(0, 1));
      if (tensor.shape().rank() != input.sample.rank() + 1 || tensor.shape().Erase(0) != input.sample) {
        Throw<DataError>("\"{}\": expected samples of {}, got an array of {}", input.name, input.sample,
                         tensor.shape());
      }
      batch[input.name] = std::move(tensor);
    }
    for (const auto& [name, value] : given.items()) {
      if (!batch.contains(name))
        throw DataError(fmt::format("there is no input \"{}\"{}", name, NameHint(name, names)));
    }
    return batch;
  }

  // Float32 numbers, little-endian, of whole samples of the only input.
  HostTensorMap FromBytes(const std::string& body) const {
    if (inputs.size() != 1 || output_samples.size() != 1) {
      Throw<DataError>("bytes are for models of one input and one output: this one has {} and {}; ask in JSON",
                       inputs.size(), output_samples.size());
    }
    const Input& input = inputs[0];
    const auto bytes = static_cast<size_t>(input.sample.Elements()) * sizeof(float);
    if (body.empty() || body.size() % bytes != 0) {
      Throw<DataError>("\"{}\": expected samples of {} bytes each (float32, {}), got {} bytes", input.name, bytes,
                       input.sample, body.size());
    }
    HostTensor tensor(DType::kFloat32, input.sample.Insert(0, static_cast<int64_t>(body.size() / bytes)));
    std::memcpy(tensor.raw(), body.data(), body.size());
    HostTensorMap batch;
    batch[input.name] = input.dtype == DType::kFloat32 ? std::move(tensor) : tensor.Cast(input.dtype);
    return batch;
  }
};

InferenceServer::InferenceServer(const Model& model, const ServerOptions& options)
    : state_(std::make_unique<State>(model, options)) {}

InferenceServer::~InferenceServer() = default;

int InferenceServer::port() const { return state_->port; }

void InferenceServer::Serve() {
  state_->http.listen_after_bind();  // until its connections have been served
  state_->has_ended = true;
  state_->batcher.Stop();
}

void InferenceServer::Stop() {
  while (!state_->http.is_running() && !state_->has_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  state_->batcher.Hurry();
  state_->http.stop();
}

}  // namespace bindery::server
