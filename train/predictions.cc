#include "train/predictions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "train/metrics/step_measurement.h"
#include "train/updater/blocks.h"

namespace bindery {
namespace {

// What is predicted in one go, of consecutive samples: the batch, or pieces of it, or a piece for each device.
std::vector<std::vector<BatchPtr>> Pieces(const ExecutorGroup& group, const MicroBatches& cut, const BatchPtr& batch) {
  if (cut.pieces == 1 && cut.block == 0) return {{batch}};
  for (size_t i = 0; i < group.output_names().size(); ++i) {
    if (group.OutputType(static_cast<int>(i)).batch_axis < 0) return {{batch}};
  }
  const int64_t samples = group.CheckBatch(*batch, Mode::kPredict);
  if (cut.block != 0) return DealBlocks(batch, group.options(), samples, cut.block);
  std::vector<std::vector<BatchPtr>> pieces;
  for (BatchPtr& piece : CutBatch(batch, group.options(), samples, cut.PiecesOf(samples))) {
    pieces.push_back({std::move(piece)});
  }
  return pieces;
}

void Forward(ExecutorGroup* group, const std::vector<BatchPtr>& piece) {
  if (piece.size() == 1) {
    group->Forward(piece[0], Mode::kPredict);
  } else {
    group->Forward(piece, Mode::kPredict);
  }
}

}  // namespace

std::vector<HostTensor> PredictBatch(ExecutorGroup* group, const MicroBatches& cut, const BatchPtr& batch) {
  std::vector<std::vector<HostTensor>> parts(group->output_names().size());
  for (const std::vector<BatchPtr>& piece : Pieces(*group, cut, batch)) {
    Forward(group, piece);
    const std::vector<Tensor> outputs = group->Outputs();
    for (size_t i = 0; i < outputs.size(); ++i) parts[i].push_back(outputs[i].ToHost());
  }
  std::vector<HostTensor> whole;
  for (size_t i = 0; i < parts.size(); ++i) {
    whole.push_back(Joined(std::move(parts[i]), group->OutputType(static_cast<int>(i))));
  }
  return whole;
}

void ScoreBatch(ExecutorGroup* group, const MicroBatches& cut, const BatchPtr& batch, TrainingMetric* metric) {
  const std::vector<DataDesc>& labels = group->options().labels;
  if (batch->num_labels() != labels.size()) {
    Throw<DataError>("a batch to measure on has {} label arrays, expected {}{}", batch->num_labels(), labels.size(),
                     labels.empty() ? "" : fmt::format(", first \"{}\"", labels[0].name));
  }
  StepMeasurement measured;
  const VarPtr done = group->engine()->NewVar();
  for (const std::vector<BatchPtr>& piece : Pieces(*group, cut, batch)) {
    Forward(group, piece);
    measured.Push(*group, *metric, done);
    group->engine()->Wait(done);
  }
  measured.MergeInto(metric);
}

HostTensor Joined(std::vector<HostTensor> parts, ValueType type) {
  if (parts.size() == 1) return std::move(parts[0]);
  std::vector<HostTensor> views;
  for (const HostTensor& part : parts) {
    type.shape = part.shape();
    views.push_back(part.Reshape(type.SampleView()));
  }
  const HostTensor whole = Concatenate(views, 1);
  const int64_t extent = whole.shape()[1] * type.batch_fold.outer * type.batch_fold.inner;
  return whole.Reshape(parts[0].shape().With(type.batch_axis, extent));
}

}  // namespace bindery
