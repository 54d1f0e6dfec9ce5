#include "executor/group/metric.h"

#include <algorithm>

#include "engine/backend.h"
#include "engine/storage.h"
#include "executor/group/slice_copy.h"

namespace bindery {

GroupMetric::GroupMetric(std::shared_ptr<Engine> engine, const std::vector<GroupStep::Participant>& participants,
                         const std::vector<DataDesc>& labels, const std::vector<SampleRange>& ranges)
    : engine_(std::move(engine)) {
  for (size_t k = 0; k < participants.size(); ++k) {
    const GroupStep::Participant& p = participants[k];
    const Device device = p.replica->device();
    const bool on_host = HostAddressable(device);
    const auto share = std::make_shared<Share>();
    share->range = ranges[p.replica->index()];
    share->inputs.samples = share->range.size();
    std::vector<Tensor> outputs;
    for (const PlanOutput& output : p.bound->plan().outputs) {
      const ValueType& type = p.bound->plan().values[output.value].type;
      const void* values = p.bound->instance->AddressOf(output.value);
      if (!on_host) {
        outputs.push_back(p.replica->Value(*p.bound, output.value));
        share->fetched.push_back(DefaultStorage()->AllocateStaging(device, outputs.back().bytes()));
        values = share->fetched.back()->data();
      }
      share->inputs.outputs.emplace_back(
          output.name, ConstView{type.dtype, type.shape, values, type.batch_axis < 0 ? 0 : type.SampleView()[0]});
    }
    for (const DataDesc& label : labels) {
      share->inputs.labels.emplace_back(label.name, ConstView());
      share->label_axes.push_back(label.BatchAxis());
    }
    share->slices.resize(labels.size());
    VarPtr source = p.replica->arena()->var();
    if (!on_host) {
      const VarPtr fetched = engine_->NewVar();
      operations_.push_back(engine_->Prepare({.name = "fetch outputs",
                                              .device = device,
                                              .reads = {source},
                                              .writes = {fetched},
                                              .updates = {},
                                              .run = [share, outputs](const OpContext& context) {
                                                for (size_t i = 0; i < outputs.size(); ++i) {
                                                  CopyBetween(context.stream, outputs[i].device(), outputs[i].address(),
                                                              Cpu(), share->fetched[i]->data(), outputs[i].bytes());
                                                }
                                              }}));
      source = fetched;
    }
    measured_.push_back(engine_->NewVar());
    // On the outputs' own worker, where they are in its caches, or where the host has its copy.
    operations_.push_back(engine_->Prepare({.name = "metric",
                                            .device = on_host ? device : Cpu(),
                                            .reads = {source},
                                            .writes = {measured_.back()},
                                            .updates = {},
                                            .run = [share, k](const OpContext& context) {
                                              Accumulate(share.get(), k,
                                                         *static_cast<const Measurement*>(context.payload));
                                            }}));
    shares_.push_back(share);
  }
}

void GroupMetric::Accumulate(Share* share, size_t index, const Measurement& m) {
  for (size_t i = 0; i < share->label_axes.size(); ++i) {
    const HostTensor* label = m.cut_labels ? &(*m.cut_labels)[index][i] : &(*m.labels)[i];
    const int axis = m.cut_labels ? -1 : share->label_axes[i];
    ConstView& view = share->inputs.labels[i].second;
    if (axis > 0) {
      HostTensor& slice = share->slices[i];
      const Shape shape = label->shape().With(axis, share->range.size());
      if (slice.dtype() != label->dtype() || slice.shape() != shape) slice = HostTensor(label->dtype(), shape);
      CopySlice(label->dtype(), label->shape(), label->raw(), axis, share->range.begin, share->range.end, slice.dtype(),
                slice.raw());
      label = &slice;
    }
    view = {label->dtype(), label->shape(), label->raw(), 0};
    if (share->label_axes[i] >= 0) view.outer = view.shape.CountTo(share->label_axes[i]);
    if (axis == 0) {
      view.data =
          static_cast<const char*>(view.data) + share->range.begin * view.shape.CountFrom(1) * SizeOf(view.dtype);
      view.shape.Set(0, share->range.size());
    }
  }
  std::vector<double>& partial = m.partials[index];
  std::fill(partial.begin(), partial.end(), 0.0);
  m.metric->Accumulate(share->inputs, partial);
}

void GroupMetric::Push(const std::shared_ptr<Measurement>& measurement, const VarPtr& done) {
  measurement->partials.resize(shares_.size());
  for (std::vector<double>& partial : measurement->partials) {
    partial.resize(static_cast<size_t>(measurement->metric->partial_size()));
  }
  if (done_ != done) {
    end_ = engine_->Prepare({.name = "metric",
                             .device = Cpu(),
                             .reads = measured_,
                             .writes = {done},
                             .updates = {},
                             .run = [](const OpContext&) {}});
    done_ = done;
  }
  for (const PreparedPtr& operation : operations_) engine_->Push(operation, measurement);
  engine_->Push(end_);
}

}  // namespace bindery
