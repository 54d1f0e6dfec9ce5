#include "train/events/event_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <mutex>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "train/data/images/encode.h"
#include "train/data/records/crc32c.h"
#include "train/events/events.pb.h"
#include "train/events/graph_def.h"
#include "train/quoted_text.h"

namespace bindery {
namespace {

constexpr int kBuckets = 30;
constexpr const char* kSettings = "hparams";  // the plugin

double Now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string HostName() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? ValidUtf8(name) : "host";
}

template <class T>
void AppendBytes(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);  // little-endian, as all that we run on
}

std::string Framed(const std::string& message) {
  std::string record;
  AppendBytes<uint64_t>(message.size(), &record);
  AppendBytes<uint32_t>(MaskedCrc32c(record), &record);
  record += message;
  AppendBytes<uint32_t>(MaskedCrc32c(message), &record);
  return record;
}

void SetHistogram(const std::vector<double>& values, events::Histogram* histogram) {
  const auto [low, high] = std::ranges::minmax(values);
  double sum = 0, squares = 0;
  std::vector<double> counts(kBuckets, 0);
  const double width = (high - low) / kBuckets;
  for (const double value : values) {
    sum += value;
    squares += value * value;
    // Halves, as the distance of two numbers may be more than a number can be.
    const double part = high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0;
    ++counts[static_cast<size_t>(std::clamp(static_cast<int>(part * kBuckets), 0, kBuckets - 1))];
  }
  histogram->set_min(low);
  histogram->set_max(high);
  histogram->set_num(static_cast<double>(values.size()));
  histogram->set_sum(sum);
  histogram->set_sum_squares(squares);
  if (!(width > 0) || !std::isfinite(width)) {  // all the same, or as far apart as numbers can be
    histogram->add_bucket_limit(high);
    histogram->add_bucket(static_cast<double>(values.size()));
    return;
  }
  for (int b = 0; b < kBuckets; ++b) {
    histogram->add_bucket_limit(b + 1 == kBuckets ? high : low + width * (b + 1));
    histogram->add_bucket(counts[static_cast<size_t>(b)]);
  }
}

}  // namespace

struct EventWriter::Impl {
  std::mutex mutex;
  std::string path;
  std::ofstream file;

  void Check() const {
    if (!file) Throw<DataError>("cannot write \"{}\": {}", path, std::generic_category().message(errno));
  }
  void Write(events::Event event) {
    event.set_wall_time(Now());
    const std::string record = Framed(event.SerializeAsString());
    const std::lock_guard lock(mutex);
    file.write(record.data(), static_cast<std::streamsize>(record.size()));
    Check();
  }
  // One value of a summary.
  template <class Set>
  void Write(const std::string& tag, int64_t step, Set set) {
    events::Event event;
    event.set_step(step);
    events::Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(ValidUtf8(tag));
    set(value);
    Write(std::move(event));
  }
  void WriteSettings(const std::string& tag, const events::HParamsPluginData& data) {
    Write(tag, 0, [&](events::Summary::Value* value) {
      auto* plugin = value->mutable_metadata()->mutable_plugin_data();
      plugin->set_plugin_name(kSettings);
      plugin->set_content(data.SerializeAsString());
      // A value that nobody reads; summaries without one are passed over.
      value->mutable_tensor()->set_dtype(events::Tensor::FLOAT);
      value->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(1);
      value->mutable_tensor()->add_float_val(0);
    });
  }
};

EventWriter::EventWriter(const std::string& folder) : impl_(std::make_unique<Impl>()) {
  static std::atomic<int> number = 0;
  MakeFolder(folder);
  impl_->path = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder, static_cast<int64_t>(Now()), HostName(),
                            ::getpid(), number++);
  errno = 0;
  impl_->file.open(impl_->path, std::ios::binary | std::ios::trunc);
  impl_->Check();
  events::Event first;
  first.set_file_version("brain.Event:2");
  impl_->Write(std::move(first));
  Flush();
}

EventWriter::~EventWriter() = default;

const std::string& EventWriter::path() const { return impl_->path; }

void EventWriter::Flush() {
  const std::lock_guard lock(impl_->mutex);
  impl_->file.flush();
  impl_->Check();
}

void EventWriter::Scalar(const std::string& tag, int64_t step, double value) {
  impl_->Write(tag, step, [&](auto* to) { to->set_simple_value(static_cast<float>(value)); });
}

void EventWriter::Histogram(const std::string& tag, int64_t step, const HostTensor& values) {
  std::vector<double> finite;
  finite.reserve(static_cast<size_t>(values.elements()));
  for (int64_t i = 0; i < values.elements(); ++i) {
    if (const double value = values.At(i); std::isfinite(value)) finite.push_back(value);
  }
  const int64_t others = values.elements() - static_cast<int64_t>(finite.size());
  if (others > 0) Scalar(tag + "/not finite", step, static_cast<double>(others));
  if (!finite.empty()) impl_->Write(tag, step, [&](auto* to) { SetHistogram(finite, to->mutable_histo()); });
}

void EventWriter::Image(const std::string& tag, int64_t step, const HostTensor& values) {
  const bindery::Image image = ToImage(values);
  impl_->Write(tag, step, [&](auto* to) {
    to->mutable_image()->set_height(static_cast<int>(image.rows));
    to->mutable_image()->set_width(static_cast<int>(image.columns));
    to->mutable_image()->set_colorspace(static_cast<int>(image.channels));
    to->mutable_image()->set_encoded_image_string(EncodePng(image));
  });
}

void EventWriter::Text(const std::string& tag, int64_t step, const std::string& markdown) {
  impl_->Write(tag, step, [&](auto* to) {
    to->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
    to->mutable_tensor()->set_dtype(events::Tensor::STRING);
    to->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(1);
    to->mutable_tensor()->add_string_val(ValidUtf8(markdown));
  });
}

void EventWriter::Graph(const Symbol& symbol, const ShapeMap& shapes) {
  events::Event event;
  event.set_graph_def(ToGraphDef(symbol, shapes).SerializeAsString());
  impl_->Write(std::move(event));
}

void EventWriter::Settings(const std::map<std::string, Setting>& settings, const std::vector<std::string>& metrics) {
  events::HParamsPluginData experiment, start;
  start.mutable_session_start_info()->set_start_time_secs(Now());
  for (const auto& [name, value] : settings) {
    auto* info = experiment.mutable_experiment()->add_hparam_infos();
    info->set_name(ValidUtf8(name));
    auto& given = (*start.mutable_session_start_info()->mutable_hparams())[ValidUtf8(name)];
    if (const double* number = std::get_if<double>(&value)) {
      info->set_type(events::HParamInfo::FLOAT64);
      given.set_number_value(*number);
    } else {
      info->set_type(events::HParamInfo::STRING);
      given.set_string_value(ValidUtf8(std::get<std::string>(value)));
    }
  }
  for (const std::string& metric : metrics) {
    experiment.mutable_experiment()->add_metric_infos()->mutable_name()->set_tag(ValidUtf8(metric));
  }
  impl_->WriteSettings("_hparams_/experiment", experiment);
  impl_->WriteSettings("_hparams_/session_start_info", start);
}

void EventWriter::Restart(int64_t step) {
  events::Event event;
  event.set_step(step);
  event.mutable_session_log()->set_status(events::SessionLog::START);
  impl_->Write(std::move(event));
}

void EventWriter::End(bool succeeded) {
  events::HParamsPluginData end;
  end.mutable_session_end_info()->set_status(succeeded ? events::SessionEndInfo::SUCCESS
                                                       : events::SessionEndInfo::FAILURE);
  end.mutable_session_end_info()->set_end_time_secs(Now());
  impl_->WriteSettings("_hparams_/session_end_info", end);
  Flush();
}

}  // namespace bindery
