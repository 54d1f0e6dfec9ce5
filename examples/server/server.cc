#include "examples/server/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "examples/server/wire.h"

namespace bindery::server {
namespace {

constexpr const char *kJson = "application/json", *kOctets = "application/octet-stream";

void Fail(httplib::Response* response, int status, const std::string& message) {
  response->status = status;
  response->set_content(JsonOfError(message), kJson);
  if (status == 503) response->set_header("Retry-After", "1");
}

// What httplib answers by itself, without a word.
std::string MessageOf(int status, const httplib::Request& request, size_t largest_body) {
  switch (status) {
    case 400: return "this is no request of HTTP, or its body did not come whole";
    case 404:
      return fmt::format("there is no {} {}: see POST /predict, GET /, /healthz, /metrics", request.method,
                         request.path);
    case 413: return fmt::format("the body is larger than {} bytes", largest_body);
    default: return fmt::format("status {}", status);
  }
}

// The type alone, in small letters, without parameters as in "application/json; charset=utf-8".
std::string MediaType(const std::string& header) {
  std::string type = header.substr(0, header.find(';'));
  type.erase(type.find_last_not_of(' ') + 1);
  for (char& c : type) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return type;
}

// Answers 415 unless the type is one of ours.
bool IsTypeKnown(const httplib::Request& request, httplib::Response* response) {
  const std::string type = MediaType(request.get_header_value("Content-Type"));
  if (type == kJson || type == kOctets) return true;
  Fail(response, 415, fmt::format("Content-Type: expected {} or {}, got \"{}\"", kJson, kOctets, type));
  return false;
}

// Answers what the library would not read whole, or without a limit: it reads bodies of some methods, of the first
// Content-Length, or until the connection ends where there is none, and checks that length before it decompresses.
bool IsReadable(const httplib::Request& request, httplib::Response* response) {
  const bool posts = request.method == "POST";
  const std::string length = request.get_header_value("Content-Length");
  if (!posts && request.method != "GET" && request.method != "HEAD") {
    Fail(response, 404, MessageOf(404, request, 0));
  } else if (request.has_header("Transfer-Encoding")) {
    Fail(response, 411, "Transfer-Encoding: expected a Content-Length in its place");
  } else if (request.has_header("Content-Encoding")) {
    Fail(response, 415, "Content-Encoding: expected a body as it is");
  } else if (request.get_header_value_count("Content-Length") > 1 ||
             length.find_first_not_of("0123456789") != std::string::npos) {
    Fail(response, 400, "Content-Length: expected one number");
  } else if (posts && length.empty()) {
    Fail(response, 411, "expected a Content-Length");
  } else if (!posts && length.find_first_not_of('0') != std::string::npos) {
    Fail(response, 400, fmt::format("a body: {} has none", request.method));
  } else {
    return true;
  }
  return false;
}

// Ends the connection behind this answer: what the library has not read of the request, it would take for the next one.
// It heeds no "Connection: close" of an answer, but ends where who provides a body gives up, which is here once all of
// it is written. Of answers to HEAD it would not ask for one.
void EndBehind(const httplib::Request& request, httplib::Response* response) {
  std::string body = request.method == "HEAD" ? "" : std::move(response->body);
  const std::string type = response->get_header_value("Content-Type");
  for (const char* const name : {"Content-Type", "Connection", "Keep-Alive"}) response->headers.erase(name);
  response->set_header("Connection", "close");
  response->body.clear();
  response->set_content_provider(1, type, [body = std::move(body)](size_t, size_t, httplib::DataSink& sink) {
    sink.write(body.data(), body.size());
    return false;
  });
  const_cast<httplib::Request&>(request).method = "GET";
}

PredictorOptions PredictorOptionsOf(const ServedModel& model, const ServerOptions& options) {
  return {.device = options.device,
          .inputs = model.Describe(options.batcher.max_batch),
          .calls = options.batcher.workers,
          .threads = options.threads};
}

}  // namespace

Server::Server(ServedModel model, const ServerOptions& options)
    : model_(std::move(model)), options_(options), metrics_(options.batcher.max_batch) {
  BatcherOptions batcher = options_.batcher;
  batcher.on_batch = [this](int64_t samples) { metrics_.Ran(samples); };
  Batcher::Run run = options_.run;
  if (!run) {
    predictor_ = std::make_unique<Predictor>(model_.model, PredictorOptionsOf(model_, options_));
    run = [this](const HostTensorMap& batch) { return predictor_->Predict(batch); };
  }
  batcher_ = std::make_unique<Batcher>(std::move(run), batcher);
  http_ = std::make_unique<httplib::Server>();
  AddRoutes();
  port_ = options_.port;
  errno = 0;
  if (port_ == 0) {
    port_ = http_->bind_to_any_port(options_.host);
  } else if (!http_->bind_to_port(options_.host, port_)) {
    port_ = -1;
  }
  if (port_ <= 0) {
    // A host without an address is none of the system's errors.
    const std::string why = errno == 0 ? "no such address" : std::generic_category().message(errno);
    Throw<DataError>("cannot listen on {}:{}: {}", options_.host, options_.port, why);
  }
  // The library lets five connections wait to be accepted; more at once would be dropped, and tried again a second later.
  listen(socket_, SOMAXCONN);
}

Server::~Server() = default;

void Server::AddRoutes() {
  const size_t largest = LargestBody(model_, options_.batcher.max_batch);
  http_->set_payload_max_length(largest);
  http_->set_read_timeout(options_.read_seconds);
  http_->set_write_timeout(options_.read_seconds);
  http_->set_keep_alive_timeout(options_.read_seconds);
  http_->set_keep_alive_max_count(std::numeric_limits<size_t>::max());
  http_->set_tcp_nodelay(true);
  // Not SO_REUSEPORT, which httplib sets: two servers would share a port, unaware of each other.
  http_->set_socket_options([this](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    socket_ = socket;
  });
  http_->new_task_queue = [this] { return new httplib::ThreadPool(static_cast<size_t>(options_.connections)); };

  http_->set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
    // The library applies them to predictions, too, and as often as they are repeated.
    const_cast<httplib::Request&>(request).ranges.clear();
    if (IsReadable(request, &response)) return httplib::Server::HandlerResponse::Unhandled;
    response.set_header("Connection", "close");
    return httplib::Server::HandlerResponse::Handled;
  });
  http_->Get("/", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(JsonOfModel(model_, options_.batcher.max_batch), kJson);
  });
  http_->Get("/healthz", [this](const httplib::Request&, httplib::Response& response) {
    if (stopping_) return Fail(&response, 503, "shutting down");
    response.set_content("ok\n", "text/plain");
  });
  http_->Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics_.Print(batcher_->queued()), "text/plain; version=0.0.4");
  });
  http_->Post("/predict",
              [this](const httplib::Request& request, httplib::Response& response) { Predict(request, &response); });
  http_->set_error_handler([=](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    // The library's own. It has a smaller limit for forms, and ends at parts that are none.
    const bool predicts = request.method == "POST" && request.path == "/predict";
    if (!predicts || IsTypeKnown(request, &response)) {
      response.set_content(JsonOfError(MessageOf(response.status, request, largest)), kJson);
    }
    if (response.status != 404) response.set_header("Connection", "close");
  });
  http_->set_post_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (stopping_) {  // then the library asks nobody for a body any more, and ends connections itself
      response.headers.erase("Connection");
      response.set_header("Connection", "close");
    } else if (response.get_header_value("Connection") == "close") {
      EndBehind(request, &response);
    }
  });
  // Called by the connection's thread when the answer is written, before it waits for the next request.
  http_->set_logger([this](const httplib::Request& request, const httplib::Response& response) {
    metrics_.Answered(request.path, response.status);
    PauseAfter(response);
  });
}

void Server::PauseAfter(const httplib::Response& response) {
  if (response.status != 503 || response.get_header_value("Connection") == "close") return;
  std::unique_lock lock(pause_);
  pause_ends_.wait_for(lock, options_.overload_pause, [this] { return stopping_.load(); });
}

void Server::Predict(const httplib::Request& request, httplib::Response* response) {
  const auto start = std::chrono::steady_clock::now();
  if (!IsTypeKnown(request, response)) return;
  const bool octets = MediaType(request.get_header_value("Content-Type")) == kOctets;
  const std::string accept = MediaType(request.get_header_value("Accept"));
  try {
    const int64_t most = options_.batcher.max_batch;
    HostTensorMap inputs =
        octets ? InputsOfOctets(model_, request.body, most) : InputsOfJson(model_, request.body, most);
    const int64_t samples = inputs.begin()->second.shape()[0];
    const std::vector<HostTensor> outputs = batcher_->Predict(model_.Prepare(std::move(inputs)));
    if (accept == kOctets || (octets && accept != kJson)) {
      response->set_content(OctetsOf(outputs), kOctets);
    } else {
      response->set_content(JsonOf(model_, outputs), kJson);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    metrics_.Predicted(samples, seconds.count());
  } catch (const OverloadError& e) {
    Fail(response, 503, e.message());
  } catch (const ShutdownError& e) {
    Fail(response, 503, e.message());
  } catch (const TimeoutError& e) {
    Fail(response, 504, e.message());
  } catch (const DataError& e) {
    Fail(response, 400, e.message());
  } catch (const std::exception& e) {
    Fail(response, 500, e.what());
  }
}

void Server::Run() {
  const bool served = http_->listen_after_bind();
  ended_ = true;
  batcher_->Shutdown();
  if (!served && !stopping_) Throw<DataError>("cannot go on listening on {}:{}", options_.host, port_);
}

void Server::Stop() {
  {
    const std::lock_guard lock(pause_);
    stopping_ = true;
  }
  pause_ends_.notify_all();
  // Connections that were answered just now, and not told to close, come back to their loop and wait for the next
  // request there: one that is on its way is still read, and its answer closes. Only then the port is given up.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  while (!http_->is_running() && !ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  http_->stop();
}

}  // namespace bindery::server
