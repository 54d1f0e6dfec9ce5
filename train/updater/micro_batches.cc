#include "train/updater/micro_batches.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

// Rows begin..end-1 of an array in pieces.
std::vector<Tensor> RowsOf(const std::vector<Tensor>& pieces, const SampleRange& range) {
  std::vector<Tensor> rows;
  int64_t first = 0;  // of the piece
  for (const Tensor& piece : pieces) {
    const int64_t extent = piece.shape()[0];
    const int64_t begin = std::max<int64_t>(range.begin - first, 0), end = std::min(range.end - first, extent);
    if (begin < end) rows.push_back(piece.Slice(begin, end));
    first += extent;
  }
  return rows;
}

void CutArrays(const std::vector<DataDesc>& descs, const std::vector<HostTensor>& on_host,
               const DeviceArrays& on_devices, const SampleRange& range, std::vector<HostTensor>* host_part,
               DeviceArrays* device_part) {
  for (size_t i = 0; i < on_host.size(); ++i) {
    const int axis = i < descs.size() && !on_devices.Find(i) ? descs[i].BatchAxis() : -1;
    host_part->push_back(axis < 0 ? on_host[i] : on_host[i].Slice(axis, range.begin, range.end));
  }
  for (size_t i = 0; i < on_devices.size(); ++i) {
    const std::vector<Tensor>* pieces = on_devices.Find(i);
    if (!pieces) continue;
    const int axis = descs[i].BatchAxis();
    if (axis > 0) {
      Throw<DataError>(
          "\"{}\" lies on devices with its samples along axis {}: only along axis 0 can it be cut into micro-batches",
          descs[i].name, axis);
    }
    device_part->Set(i, axis < 0 ? *pieces : RowsOf(*pieces, range));
  }
}

}  // namespace

int64_t MicroBatches::PiecesOf(int64_t samples) const {
  if (pieces == 1) return 1;
  return std::max<int64_t>(1, CeilDiv(CheckedMul(samples, pieces, "micro-batches"), batch_size));
}

bool IsMeanOfPiece(const NodePtr& head) {
  if (!IsMean(head)) return false;
  const AttrMap attributes = head->attrs().ToFullMap();
  const auto found = attributes.find("normalization");
  return found == attributes.end() || found->second != AttrValue(std::string("batch"));
}

int64_t BatchSizeOf(const std::vector<DataDesc>& descriptions) {
  for (const DataDesc& desc : descriptions) {
    const int axis = desc.BatchAxis();
    if (axis >= 0 && axis < desc.shape.rank()) return desc.shape[axis];
  }
  return 1;
}

GroupOptions ForMicroBatches(const GroupOptions& whole, int64_t samples) {
  if (whole.inputs_need_grad) Throw("gradients of inputs are not there for micro-batches: each has its own");
  if (!whole.states.empty()) Throw("states are those of one batch's samples: it cannot be cut into micro-batches");
  GroupOptions options = whole;
  const int64_t batch_size = BatchSizeOf(whole.data);
  for (std::vector<DataDesc>* list : {&options.data, &options.labels, &options.states}) {
    for (DataDesc& desc : *list) {
      const int axis = desc.BatchAxis();
      if (axis >= 0 && axis < desc.shape.rank() && desc.shape[axis] == batch_size) desc.shape.Set(axis, samples);
    }
  }
  if (const auto* request = std::get_if<GradReq>(&whole.grad_req); request && *request == GradReq::kWrite) {
    options.grad_req = GradReq::kAdd;
  }
  return options;
}

std::vector<BatchPtr> CutBatch(const BatchPtr& batch, const GroupOptions& group, int64_t samples, int64_t pieces) {
  if (pieces == 1) return {batch};
  std::vector<BatchPtr> cut;
  for (const SampleRange& range : SplitBatch(samples, std::vector<double>(static_cast<size_t>(pieces), 1))) {
    cut.push_back(CutBatch(batch, group, range));
  }
  return cut;
}

BatchPtr CutBatch(const BatchPtr& batch, const GroupOptions& group, const SampleRange& range) {
  auto piece = std::make_shared<Batch>();
  CutArrays(group.data, batch->data, batch->device_data, range, &piece->data, &piece->device_data);
  CutArrays(group.labels, batch->label, batch->device_label, range, &piece->label, &piece->device_label);
  piece->samples = range.size();
  piece->first = batch->first.value_or(0) + range.begin;
  if (!batch->index.empty()) {
    piece->index.assign(batch->index.begin() + range.begin, batch->index.begin() + range.end);
  }
  return piece;
}

}  // namespace bindery
