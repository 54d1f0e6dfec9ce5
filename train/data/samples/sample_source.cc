#include "train/data/samples/sample_source.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "train/data/samples/numbers.h"

namespace bindery {
namespace {

class ArraySamples : public SampleSource {
 public:
  ArraySamples(std::vector<ArrayData> data, std::vector<ArrayData> labels) {
    Add(std::move(data), &data_);
    Add(std::move(labels), &labels_);
    if (arrays_.empty()) Throw<DataError>("samples need an array");
  }

  int64_t samples() const override { return samples_; }
  const std::vector<SampleArray>& data() const override { return data_; }
  const std::vector<SampleArray>& labels() const override { return labels_; }

  void Make(int64_t number, int64_t, std::span<void* const> to) const override {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const HostTensor& values = *arrays_[i].values;
      const int64_t bytes = values.bytes() / samples_;
      if (bytes > 0) {
        std::memcpy(to[i], static_cast<const char*>(values.raw()) + number * bytes, static_cast<size_t>(bytes));
      }
    }
  }

  uint64_t Fingerprint() const override { return fingerprint_; }

 private:
  void Add(std::vector<ArrayData> arrays, std::vector<SampleArray>* described) {
    for (ArrayData& array : arrays) {
      const Shape& shape = array.values->shape();
      if (shape.rank() == 0) Throw<DataError>("array \"{}\" is a single number, not one of each sample", array.name);
      if (!arrays_.empty() && shape[0] != samples_) {
        Throw<DataError>("array \"{}\" has {} samples, but \"{}\" has {}", array.name, shape[0], arrays_[0].name,
                         samples_);
      }
      samples_ = shape[0];
      fingerprint_ = Checksum(array.values->raw(), array.values->bytes(), fingerprint_);
      described->push_back({array.name, shape.Erase(0), array.values->dtype()});
      arrays_.push_back(std::move(array));
    }
  }

  std::vector<ArrayData> arrays_;
  std::vector<SampleArray> data_, labels_;
  int64_t samples_ = 0;
  uint64_t fingerprint_ = 0;
};

// All of another source.
class SamplesBehind : public SampleSource {
 public:
  explicit SamplesBehind(SampleSourcePtr from) : from_(std::move(from)) {}

  int64_t samples() const override { return from_->samples(); }
  const std::vector<SampleArray>& data() const override { return from_->data(); }
  const std::vector<SampleArray>& labels() const override { return from_->labels(); }
  void Make(int64_t number, int64_t sweep, std::span<void* const> to) const override { from_->Make(number, sweep, to); }
  void MakeLabels(int64_t number, std::span<void* const> to) const override { from_->MakeLabels(number, to); }
  uint64_t Fingerprint() const override { return from_->Fingerprint(); }
  std::string Name(int64_t number) const override { return from_->Name(number); }
  std::map<std::string, std::string> Metadata() const override { return from_->Metadata(); }

 protected:
  const SampleSourcePtr from_;
};

class DescribedSamples : public SamplesBehind {
 public:
  DescribedSamples(SampleSourcePtr from, std::map<std::string, std::string> metadata)
      : SamplesBehind(std::move(from)), metadata_(std::move(metadata)) {}

  std::map<std::string, std::string> Metadata() const override { return metadata_; }

 private:
  const std::map<std::string, std::string> metadata_;
};

class ChosenSamples : public SamplesBehind {
 public:
  ChosenSamples(SampleSourcePtr from, std::vector<int64_t> numbers)
      : SamplesBehind(std::move(from)), numbers_(std::move(numbers)) {
    for (const int64_t number : numbers_) {
      if (number < 0 || number >= from_->samples()) {
        Throw<DataError>("sample {} was chosen, but there are {}", number, from_->samples());
      }
    }
  }

  int64_t samples() const override { return static_cast<int64_t>(numbers_.size()); }
  void Make(int64_t number, int64_t sweep, std::span<void* const> to) const override {
    from_->Make(numbers_[static_cast<size_t>(number)], sweep, to);
  }
  void MakeLabels(int64_t number, std::span<void* const> to) const override {
    from_->MakeLabels(numbers_[static_cast<size_t>(number)], to);
  }
  uint64_t Fingerprint() const override {
    return Checksum(numbers_.data(), static_cast<int64_t>(numbers_.size() * sizeof(int64_t)), from_->Fingerprint());
  }
  std::string Name(int64_t number) const override { return from_->Name(numbers_[static_cast<size_t>(number)]); }

 private:
  const std::vector<int64_t> numbers_;
};

}  // namespace

void SampleSource::MakeLabels(int64_t number, std::span<void* const> to) const {
  std::vector<HostTensor> made;
  for (const SampleArray& array : data()) made.emplace_back(array.dtype, array.shape);
  std::vector<void*> all;
  for (HostTensor& array : made) all.push_back(array.raw());
  all.insert(all.end(), to.begin(), to.end());
  Make(number, /*sweep=*/0, all);
}

SampleSourcePtr SamplesOf(std::vector<ArrayData> data, std::vector<ArrayData> labels) {
  return std::make_shared<ArraySamples>(std::move(data), std::move(labels));
}

SampleSourcePtr ChooseSamples(SampleSourcePtr from, std::vector<int64_t> numbers) {
  return std::make_shared<ChosenSamples>(std::move(from), std::move(numbers));
}

SampleSourcePtr WithMetadata(SampleSourcePtr from, std::map<std::string, std::string> metadata) {
  return std::make_shared<DescribedSamples>(std::move(from), std::move(metadata));
}

SplitSamples SplitSource(const SampleSourcePtr& from, double part) {
  SplitNumbers numbers = SplitByPart(from->samples(), part);
  return {ChooseSamples(from, std::move(numbers.rest)), ChooseSamples(from, std::move(numbers.part))};
}

}  // namespace bindery
