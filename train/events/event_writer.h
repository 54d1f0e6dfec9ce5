// EventWriter: event files, as TensorBoard reads them: numbers over steps, histograms, images, text, the graph, and the
// settings of a run. A folder is a run; TensorBoard is given it, or one with several runs in it.
//
//   EventWriter events("runs/1");
//   events.Scalar("train/loss", step, loss);
//   events.Histogram("fc1_weight", step, params.at("fc1_weight"));
//   events.Graph(net, {{"data", {64, 1, 28, 28}}});
//
// A file is a series of records, each with two checksums (as train/data/records/tf_record.h has them), of messages
// (events.proto). Each call appends whole records, which a reader that follows the file sees after Flush.
//
// All of these throw DataError, with the path, if the file cannot be written. Tags may be any text; bytes that are no
// UTF-8 are replaced. "/" makes groups of them.
//
// Thread safety: any thread may call anything.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/host_tensor.h"
#include "symbol/infer.h"
#include "symbol/symbol.h"

namespace bindery {

class EventWriter {
 public:
  using Setting = std::variant<double, std::string>;

  // A new file in the folder, which is made: events.out.tfevents.<seconds since 1970>.<host>.<process>.<number>.
  explicit EventWriter(const std::string& folder);
  ~EventWriter();  // flushes; what cannot be written then is lost
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void Scalar(const std::string& tag, int64_t step, double value);  // kept as float32; NaN and infinities, too
  // Of 30 buckets of equal width between the lowest and the highest value, of any type and shape. Values that are not
  // finite are left out; if there are any, their number is the scalar "<tag>/not finite". Of none at all: nothing.
  void Histogram(const std::string& tag, int64_t step, const HostTensor& values);
  // (rows, columns) or (channels, rows, columns), as ToImage (train/data/images/encode.h) shows it. Throws ShapeError.
  void Image(const std::string& tag, int64_t step, const HostTensor& values);
  void Text(const std::string& tag, int64_t step, const std::string& markdown);
  // Nodes with operators, attributes and the shapes that follow from `shapes`; once per run.
  void Graph(const Symbol& symbol, const ShapeMap& shapes = {});
  // What distinguishes this run from others, and the tags of the scalars by which runs are compared; once per run.
  void Settings(const std::map<std::string, Setting>& settings, const std::vector<std::string>& metrics);
  // The run goes on at this step: what earlier files in the folder have from it on is no longer shown.
  void Restart(int64_t step);
  // How the run ended, for the table of settings.
  void End(bool succeeded);
  void Flush();

  const std::string& path() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bindery
