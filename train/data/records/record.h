// Records: what data files hold one after another, as named fields; and samples made of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/data/images/transform.h"
#include "train/data/samples/sample_source.h"

namespace bindery {

// One of the three, as tf.train.Feature.
struct RecordField {
  std::vector<std::string> bytes = {};
  std::vector<float> floats = {};
  std::vector<int64_t> ints = {};
};
using Record = std::map<std::string, RecordField, std::less<>>;

// Records by number. Immutable: any threads may use one at the same time.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual int64_t records() const = 0;
  // Throws DataError, which names file and record.
  virtual Record Read(int64_t number) const = 0;
  virtual std::string Name(int64_t number) const = 0;  // for messages: the file, and which record of it
  virtual uint64_t Fingerprint() const = 0;            // as SampleSource's
  // The names of the classes that the labels number, where the source has names.
  virtual const std::vector<std::string>& classes() const = 0;
};
using RecordSourcePtr = std::shared_ptr<const RecordSource>;

struct RecordOptions {
  // The fields of data and label. Empty: the first there is of image, image/encoded, jpg, jpeg, png; of label,
  // image/class/label, cls.
  std::string data = {}, label = {};
  bool unlabelled = false;
  std::vector<std::string> classes = {};  // of labels that are text; class 0 first
  int64_t num_classes = 0;                // labels are below; 0: any
  int min_rank = 0;                       // numbers of fewer axes get leading ones of extent 1
  ImageOptions image = {};                // if the data are an image
  bool augment = false;                   // draw what is random in image
  uint64_t seed = 0;
};

// Samples of records: "data", float32, and "softmax_label", float32 (). Data are an image, (channels, rows, columns);
// or numbers, or an .npy file in bytes (a field called npy or *.npy), as many in all records as in the first:
// (numbers), or the array's shape. Throws DataError.
SampleSourcePtr SamplesOf(RecordSourcePtr records, RecordOptions options);

// Are their data images? As far as the first record tells.
bool AreImages(const RecordSource& records, const RecordOptions& options);

// One more than the largest label, of all records, which are read for it.
int64_t CountClasses(const RecordSource& records, const RecordOptions& options);

}  // namespace bindery
