#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "train/data/records/record.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

constexpr int64_t kMostClasses = 1 << 24;  // float32 labels are exact up to there

std::vector<std::string> NamesOf(const Record& record) {
  std::vector<std::string> names;
  for (const auto& [name, field] : record) names.push_back(name);
  return names;
}

// The name of the field that there is.
std::string Choose(const Record& record, const std::string& wanted, std::initializer_list<const char*> usual,
                   const char* what, const std::string& source) {
  if (!wanted.empty() && record.contains(wanted)) return wanted;
  if (!wanted.empty()) {
    Throw<DataError>("{}: no field \"{}\" for the {}{}", source, wanted, what, NameHint(wanted, NamesOf(record)));
  }
  for (const char* name : usual) {
    if (record.contains(name)) return name;
  }
  Throw<DataError>("{}: which field is the {}? It has {}", source, what, fmt::join(NamesOf(record), ", "));
}

class Decoder {
 public:
  Decoder(const RecordOptions& options, const Record& first, const std::string& source) : options_(options) {
    data_ = Choose(first, options.data, {"image", "image/encoded", "jpg", "jpeg", "png"}, "data", source);
    if (!options.unlabelled) {
      label_ = Choose(first, options.label, {"label", "image/class/label", "cls"}, "label", source);
    }
    const RecordField& field = first.at(data_);
    is_array_ = data_ == "npy" || data_.ends_with(".npy");
    is_image_ = !is_array_ && !field.bytes.empty();
    if (is_image_) {
      CheckImageOptions(options.image, options.augment);
      shape_ = {options.image.channels, options.image.rows, options.image.columns};
    } else {
      shape_ = Numbers(field, source).shape();
    }
  }

  const Shape& shape() const { return shape_; }
  bool is_image() const { return is_image_; }

  void Data(const Record& record, const std::string& source, PhiloxStream* random, float* to) const {
    const RecordField& field = Find(record, data_, source);
    if (is_image_) {
      const std::string& bytes = One(field.bytes, data_, source);
      Transform(DecodeImage(bytes, options_.image.channels, source), options_.image, random, source, to);
      return;
    }
    const HostTensor numbers = Numbers(field, source);
    if (numbers.shape() != shape_) {
      Throw<DataError>("{}: field \"{}\" has the shape {}, in the first record it has {}", source, data_,
                       numbers.shape(), shape_);
    }
    std::memcpy(to, numbers.raw(), static_cast<size_t>(numbers.bytes()));
  }

  int64_t Label(const Record& record, const std::string& source) const {
    const RecordField& field = Find(record, label_, source);
    std::optional<int64_t> label;
    if (!field.ints.empty()) label = One(field.ints, label_, source);
    if (!field.floats.empty()) {
      const float number = One(field.floats, label_, source);
      if (std::nearbyint(number) == number && std::abs(number) < kMostClasses) label = static_cast<int64_t>(number);
    }
    if (!field.bytes.empty()) label = ClassOf(One(field.bytes, label_, source), source);
    const int64_t classes = options_.num_classes > 0 ? options_.num_classes : kMostClasses;
    if (!label || *label < 0 || *label >= classes) {
      Throw<DataError>("{}: label \"{}\" is {}, expected a class, a whole number from 0 to {}", source, label_,
                       label ? std::to_string(*label) : "something else", classes - 1);
    }
    return *label;
  }

 private:
  static const RecordField& Find(const Record& record, const std::string& name, const std::string& source) {
    const auto found = record.find(name);
    if (found == record.end()) {
      Throw<DataError>("{}: it has no field \"{}\"{}", source, name, NameHint(name, NamesOf(record)));
    }
    return found->second;
  }

  template <class T>
  static const T& One(const std::vector<T>& values, const std::string& name, const std::string& source) {
    if (values.size() != 1) {
      Throw<DataError>("{}: field \"{}\" has {} values of its type, expected one", source, name, values.size());
    }
    return values[0];
  }

  // Text: a number, or the name of a class.
  std::optional<int64_t> ClassOf(std::string_view text, const std::string& source) const {
    const size_t end = text.find_last_not_of(" \r\n");
    text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
    const auto known = std::ranges::find(options_.classes, text);
    if (known != options_.classes.end()) return known - options_.classes.begin();
    if (const auto number = ParseNumber<int64_t>(text)) return number;
    Throw<DataError>("{}: label \"{}\" is \"{}\", neither a number nor one of the {} classes", source, label_,
                     text.substr(0, 40), options_.classes.size());
  }

  HostTensor Numbers(const RecordField& field, const std::string& source) const {
    if (is_array_) return ParseNpy(One(field.bytes, data_, source), source).Cast(DType::kFloat32);
    const auto count = static_cast<int64_t>(std::max(field.floats.size(), field.ints.size()));
    HostTensor numbers(DType::kFloat32, {count});
    std::ranges::copy(field.floats, numbers.data<float>().begin());
    std::ranges::transform(field.ints, numbers.data<float>().begin(), [](int64_t i) { return static_cast<float>(i); });
    return numbers;
  }

  const RecordOptions options_;
  std::string data_, label_;
  bool is_image_ = false, is_array_ = false;
  Shape shape_;
};

class RecordSamples : public SampleSource {
 public:
  RecordSamples(RecordSourcePtr records, RecordOptions options)
      : records_(std::move(records)), options_(std::move(options)),
        decoder_(options_, records_->Read(0), records_->Name(0)) {
    Shape shape = decoder_.shape();
    while (shape.rank() > 0 && shape.rank() < options_.min_rank) shape = shape.Insert(0, 1);
    data_.push_back({"data", shape, DType::kFloat32});
    if (!options_.unlabelled) labels_.push_back({"softmax_label", {}, DType::kFloat32});
  }

  int64_t samples() const override { return records_->records(); }
  const std::vector<SampleArray>& data() const override { return data_; }
  const std::vector<SampleArray>& labels() const override { return labels_; }

  void Make(int64_t number, int64_t sweep, std::span<void* const> to) const override {
    const Record record = records_->Read(number);
    const std::string name = records_->Name(number);
    PhiloxStream random(options_.seed, fmt::format("augment:{}:{}", sweep, number));
    decoder_.Data(record, name, options_.augment ? &random : nullptr, static_cast<float*>(to[0]));
    if (!options_.unlabelled) *static_cast<float*>(to[1]) = static_cast<float>(decoder_.Label(record, name));
  }
  void MakeLabels(int64_t number, std::span<void* const> to) const override {
    if (options_.unlabelled) return;
    *static_cast<float*>(to[0]) = static_cast<float>(decoder_.Label(records_->Read(number), records_->Name(number)));
  }

  uint64_t Fingerprint() const override {
    const ImageOptions& image = options_.image;
    const std::string settings =
        fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", options_.data, options_.label, options_.augment,
                    options_.augment ? options_.seed : 0, image.channels, image.rows, image.columns, image.shorter_side,
                    image.padding, static_cast<int>(image.crop), image.mirror, image.brightness, image.contrast,
                    image.saturation, fmt::join(image.mean, ","), fmt::join(image.deviation, ","));
    return Checksum(settings.data(), static_cast<int64_t>(settings.size()), records_->Fingerprint());
  }

  std::string Name(int64_t number) const override { return records_->Name(number); }

 private:
  const RecordSourcePtr records_;
  const RecordOptions options_;
  const Decoder decoder_;
  std::vector<SampleArray> data_, labels_;
};

}  // namespace

SampleSourcePtr SamplesOf(RecordSourcePtr records, RecordOptions options) {
  if (records->records() == 0) Throw<DataError>("there are no records");
  return std::make_shared<RecordSamples>(std::move(records), std::move(options));
}

bool AreImages(const RecordSource& records, const RecordOptions& options) {
  return Decoder(options, records.Read(0), records.Name(0)).is_image();
}

int64_t CountClasses(const RecordSource& records, const RecordOptions& options) {
  int64_t classes = 0;
  std::optional<Decoder> decoder;
  for (int64_t i = 0; i < records.records(); ++i) {
    const Record record = records.Read(i);
    const std::string name = records.Name(i);
    if (!decoder) decoder.emplace(options, record, name);
    classes = std::max(classes, decoder->Label(record, name) + 1);
  }
  return classes;
}

}  // namespace bindery
