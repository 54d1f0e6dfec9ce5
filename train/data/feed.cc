#include "train/data/feed.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "executor/group/split_batch.h"
#include "train/data/batch_pool.h"

namespace bindery {
namespace {

// For each of `wanted`, its place among `given`. Throws DataError unless just these are given.
std::vector<size_t> PlacesOf(const char* what, const std::vector<DataDesc>& wanted,
                             const std::vector<DataDesc>& given) {
  std::vector<std::string> names;
  for (const DataDesc& desc : given) names.push_back(desc.name);
  std::vector<size_t> places;
  for (const DataDesc& desc : wanted) {
    const auto found = std::ranges::find(names, desc.name);
    if (found == names.end()) {
      Throw<DataError>("the iterator has no {} \"{}\"{}", what, desc.name, NameHint(desc.name, names));
    }
    places.push_back(static_cast<size_t>(found - names.begin()));
    const DataDesc& mine = given[places.back()];
    if (mine.BatchAxis() != desc.BatchAxis()) {
      Throw<DataError>("{} \"{}\": the iterator's samples lie along axis {}, expected axis {}", what, desc.name,
                       mine.BatchAxis(), desc.BatchAxis());
    }
  }
  if (given.size() != wanted.size()) {
    Throw<DataError>("the iterator has {} {} arrays, expected {}", given.size(), what, wanted.size());
  }
  return places;
}

// The samples of each device.
std::vector<std::vector<int64_t>> SharesOf(int64_t samples, const GroupOptions& group, SampleOrder order) {
  const size_t devices = group.devices.size();
  std::vector<double> workload = group.workload.empty() ? std::vector<double>(devices, 1) : group.workload;
  std::vector<std::vector<int64_t>> shares(devices);
  if (order == SampleOrder::kStrided) {
    if (std::ranges::count(workload, workload[0]) != static_cast<int64_t>(devices)) {
      Throw("samples are shared out in strides among devices of one workload only");
    }
    for (int64_t i = 0; i < samples; ++i) shares[static_cast<size_t>(i) % devices].push_back(i);
    return shares;
  }
  const std::vector<SampleRange> ranges = SplitBatch(samples, workload);
  for (size_t d = 0; d < devices; ++d) {
    shares[d].resize(static_cast<size_t>(ranges[d].size()));
    std::iota(shares[d].begin(), shares[d].end(), ranges[d].begin);
  }
  return shares;
}

std::vector<HostTensor> TakeRows(const std::vector<HostTensor>& arrays, const std::vector<DataDesc>& descs,
                                 const std::vector<int64_t>& rows) {
  std::vector<HostTensor> taken;
  for (size_t i = 0; i < arrays.size(); ++i) {
    taken.push_back(bindery::TakeRows(arrays[i], i < descs.size() ? descs[i].BatchAxis() : 0, rows));
  }
  return taken;
}

Batch TakeRows(const Batch& batch, const GroupOptions& group, const std::vector<int64_t>& rows) {
  Batch taken{.data = TakeRows(batch.data, group.data, rows),
              .label = TakeRows(batch.label, group.labels, rows),
              .samples = static_cast<int64_t>(rows.size())};
  for (const int64_t row : rows) {
    if (!batch.index.empty()) taken.index.push_back(batch.index[static_cast<size_t>(row)]);
  }
  return taken;
}

// A device's part of an array, as pieces on devices.
std::vector<Tensor> PiecesOf(const std::vector<HostTensor>& on_host, const DeviceArrays& on_devices, size_t i,
                             Device device, const std::shared_ptr<Engine>& engine) {
  if (const std::vector<Tensor>* pieces = on_devices.Find(i)) return *pieces;
  if (i >= on_host.size()) Throw<DataError>("the converter made nothing of array {} for {}", i, device);
  const Tensor piece(engine, device, on_host[i].dtype(), on_host[i].shape());
  piece.CopyFrom(on_host[i]);
  return {piece};
}

// Each array, in host memory or on devices, from its place among the iterator's to its own.
void ToOrder(const char* what, const std::vector<size_t>& places, std::vector<HostTensor>* on_host,
             DeviceArrays* on_devices) {
  std::vector<HostTensor> host = std::exchange(*on_host, {});
  const DeviceArrays devices = std::exchange(*on_devices, {});
  for (size_t i = 0; i < places.size(); ++i) {
    const std::vector<Tensor>* const pieces = devices.Find(places[i]);
    if (!pieces && places[i] >= host.size()) {
      Throw<DataError>("the iterator's batch has {} of {} {} arrays", std::max(host.size(), devices.size()),
                       places.size(), what);
    }
    if (pieces) on_devices->Set(i, *pieces);
    if (places[i] >= host.size()) continue;
    on_host->resize(i + 1);
    (*on_host)[i] = std::move(host[places[i]]);
  }
}

}  // namespace

Feed::Feed(const GroupOptions& group, const DataIter& data) : data_(PlacesOf("data", group.data, data.ProvideData())) {
  const std::vector<DataDesc> labels = data.ProvideLabel();
  if (!group.labels.empty() && !labels.empty()) labels_ = PlacesOf("label", group.labels, labels);
}

BatchPtr Feed::Arrange(BatchPtr batch) const {
  if (!batch || (std::ranges::is_sorted(data_) && std::ranges::is_sorted(labels_))) return batch;
  auto arranged = std::make_shared<Batch>(*batch);
  ToOrder("data", data_, &arranged->data, &arranged->device_data);
  if (batch->num_labels() > 0) ToOrder("label", labels_, &arranged->label, &arranged->device_label);
  return arranged;
}

// An array of shape (outer..., samples, inner...): `outer` blocks, in each of which whole rows are copied.
void TakeRows(const HostTensor& from, int axis, std::span<const int64_t> rows, HostTensor* to) {
  MakeRoom(from.dtype(), axis < 0 ? from.shape() : from.shape().With(axis, static_cast<int64_t>(rows.size())), to);
  if (to->bytes() == 0) return;
  if (axis < 0) {
    std::memcpy(to->raw(), from.raw(), static_cast<size_t>(from.bytes()));
    return;
  }
  const int64_t outer = from.shape().CountTo(axis), extent = from.shape()[axis];
  const size_t row_bytes = static_cast<size_t>(from.shape().CountFrom(axis + 1) * SizeOf(from.dtype()));
  char* out = static_cast<char*>(to->raw());
  for (int64_t block = 0; block < outer; ++block) {
    const char* in = static_cast<const char*>(from.raw()) + static_cast<size_t>(block * extent) * row_bytes;
    for (const int64_t row : rows) {
      std::memcpy(out, in + static_cast<size_t>(row) * row_bytes, row_bytes);
      out += row_bytes;
    }
  }
}

HostTensor TakeRows(const HostTensor& from, int axis, std::span<const int64_t> rows) {
  HostTensor to;
  TakeRows(from, axis, rows, &to);
  return to;
}

BatchPtr ShareOut(const BatchPtr& batch, const GroupOptions& group, const std::shared_ptr<Engine>& engine,
                  SampleOrder order, const Converter& converter) {
  if (order == SampleOrder::kContiguous && !converter) return batch;
  const std::vector<std::vector<int64_t>> shares = SharesOf(batch->samples, group, order);
  if (!converter) {  // in another order, of which the devices get ranges as always
    std::vector<int64_t> rows;
    for (const std::vector<int64_t>& share : shares) rows.insert(rows.end(), share.begin(), share.end());
    return std::make_shared<Batch>(TakeRows(*batch, group, rows));
  }
  auto whole = std::make_shared<Batch>();
  std::vector<std::vector<Tensor>> data(group.data.size()), labels(batch->label.size());
  for (size_t d = 0; d < shares.size(); ++d) {
    if (shares[d].empty()) continue;
    const Device device = group.devices[d];
    const Batch part = converter(TakeRows(*batch, group, shares[d]), device);
    if (part.samples != static_cast<int64_t>(shares[d].size()) || part.num_data() != data.size() ||
        part.num_labels() != labels.size()) {
      Throw<DataError>("the converter made {} samples, {} data and {} labels for {}, expected {}, {} and {}",
                       part.samples, part.num_data(), part.num_labels(), device, shares[d].size(), data.size(),
                       labels.size());
    }
    const auto add = [&](const auto& on_host, const auto& on_devices, auto* arrays, const auto& descs) {
      for (size_t i = 0; i < arrays->size(); ++i) {
        if (descs[i].BatchAxis() < 0 && !(*arrays)[i].empty()) continue;  // one for all
        std::ranges::move(PiecesOf(on_host, on_devices, i, device, engine), std::back_inserter((*arrays)[i]));
      }
    };
    add(part.data, part.device_data, &data, group.data);
    add(part.label, part.device_label, &labels, group.labels);
    whole->samples += part.samples;
    whole->index.insert(whole->index.end(), part.index.begin(), part.index.end());
  }
  whole->device_data = DeviceArrays(std::move(data));
  whole->device_label = DeviceArrays(std::move(labels));
  return whole;
}

}  // namespace bindery
