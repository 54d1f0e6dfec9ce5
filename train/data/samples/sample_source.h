// SampleSource: the samples of a data set by number, made one at a time: rows of arrays in memory, decoded images,
// records of files. SampleIter makes batches of them.
//
// Thread safety: immutable; any threads may use one at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "train/data/array_iter.h"

namespace bindery {

// One array of each sample.
struct SampleArray {
  std::string name;
  Shape shape;  // of one sample
  DType dtype = DType::kFloat32;
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual int64_t samples() const = 0;
  virtual const std::vector<SampleArray>& data() const = 0;
  virtual const std::vector<SampleArray>& labels() const = 0;

  // Writes the elements of sample `number` to `to`: data, then labels, in their order, each in C order. What is drawn
  // at random depends on the seed that the source was made with, on `sweep` and on `number`, and on nothing else.
  // Throws DataError, which names file and record.
  virtual void Make(int64_t number, int64_t sweep, std::span<void* const> to) const = 0;

  // Tells data sets apart: a saved place belongs to one. Of all that is known without reading every record.
  virtual uint64_t Fingerprint() const = 0;

  // What its record is called, in messages and lists; empty: nothing.
  virtual std::string Name(int64_t /*number*/) const { return {}; }
  // DataIter::Metadata.
  virtual std::map<std::string, std::string> Metadata() const { return {}; }

  // The labels alone, in the first sweep: for who counts them, and as Make writes them behind the data, which it makes,
  // too, unless a source knows better.
  virtual void MakeLabels(int64_t number, std::span<void* const> to) const;
};
using SampleSourcePtr = std::shared_ptr<const SampleSource>;

// Rows of arrays in memory, whose first axis is the samples. Throws DataError if their numbers differ.
SampleSourcePtr SamplesOf(std::vector<ArrayData> data, std::vector<ArrayData> labels);

// Some samples of another source, in this order. Throws DataError for a number that it has not.
SampleSourcePtr ChooseSamples(SampleSourcePtr from, std::vector<int64_t> numbers);

// The same samples, with these metadata.
SampleSourcePtr WithMetadata(SampleSourcePtr from, std::map<std::string, std::string> metadata);

// Two sources of one: `part` of the samples, from 0 to 1, drawn without regard to their order but always the same, and
// the rest. Both keep the order.
struct SplitSamples {
  SampleSourcePtr rest, part;
};
SplitSamples SplitSource(const SampleSourcePtr& from, double part);

}  // namespace bindery
