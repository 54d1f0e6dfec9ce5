#include "executor/group/metric.h"

#include <algorithm>
#include <map>

#include "engine/backend.h"
#include "engine/memory/storage.h"
#include "executor/group/options.h"
#include "symbol/graph.h"
#include "symbol/model.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

constexpr size_t kMostPlaces = 8;  // before those that are free go

// Everything that a graph gives as one output: the partial, then two numbers for each check.
Symbol HeadOf(const MetricGraph& graph) {
  std::vector<Symbol> parts = {graph.partial};
  for (const MetricGraph::Check& check : graph.checks) parts.push_back(check.first);
  return Concat(parts, {.axis = 0}, "partial");
}

// Where the samples of a label are: the product of the extents before them; 0 if there are none.
int64_t OuterOf(const DataDesc& desc, const Shape& shape) {
  const int axis = desc.BatchAxis();
  if (axis >= shape.rank()) {
    Throw<ShapeError>("UpdateMetric: label \"{}\" of shape {} has no samples along axis {}", desc.name, shape, axis);
  }
  return axis < 0 ? 0 : shape.CountTo(axis);
}

int LabelOf(const Plan& plan, int place) {
  const auto found = std::ranges::find_if(
      plan.arguments, [&](const PlanArgument& a) { return a.role == Role::kLabel && a.place == place; });
  Check(found != plan.arguments.end(), "every label that is described is an argument");
  return static_cast<int>(found - plan.arguments.begin());
}

}  // namespace

// One device's.
struct GroupMetric::Share {
  std::vector<Tensor> arrays;  // its program's arguments
  std::shared_ptr<const Program> program;
  std::vector<MetricGraph::Check> checks;
  std::shared_ptr<Chunk> memory;  // of the program
  std::shared_ptr<const Instance> instance;
  const void* output = nullptr;  // on the device
  int64_t bytes = 0;
  VarPtr measured;  // orders access to it
};

// A device goes on with the next step before the host has read what it left of this one: so each measuring that is
// under way has its place.
struct Measurement::Place {
  VarPtr done, status;
  StepRange parts;
  PreparedPtr end;
};

GroupMetric::GroupMetric(std::shared_ptr<Engine> engine, const Metric& metric,
                         const std::vector<GroupStep::Participant>& participants, const GroupSpec& spec,
                         const LabelLists* lists, const std::vector<SampleRange>& ranges, const CompileOptions& options)
    : engine_(std::move(engine)), metric_(metric.id()), partial_size_(static_cast<size_t>(metric.partial_size())),
      labels_of_batch_(!lists), measure_done_(engine_->NewVar()) {
  const std::vector<DataDesc>& labels = spec.options.labels;
  CompileOptions last;  // of the share before
  std::string last_graph;
  for (size_t k = 0; k < participants.size(); ++k) {
    const GroupStep::Participant& p = participants[k];
    const Device device = p.executor->device();
    const SampleRange& range = ranges[p.executor->index()];
    MetricArrays arrays{.samples = range.size(), .first = range.begin};
    std::map<std::string, Tensor> tensors;  // by variable
    const auto add = [&](const char* role, std::vector<MetricArray>* list, const std::string& name,
                         const Tensor& tensor, int64_t outer) {
      const std::string variable = fmt::format("{}{}", role, list->size());
      list->push_back({name, Variable(variable), tensor.dtype(), tensor.shape(), outer});
      tensors.emplace(variable, tensor);
    };
    for (const PlanOutput& output : p.bound->plan().outputs) {
      const ValueType& type = p.bound->plan().values[output.value].type;
      const size_t head = arrays.outputs.size();
      const bool is_part = type.batch_axis < 0 && spec.merge_rules[head] == "sum";
      add("output", &arrays.outputs, output.name, p.executor->Value(*p.bound, output.value),
          type.batch_axis < 0 ? 0 : type.SampleView()[0]);
      if (!is_part) continue;
      MetricArray& part = arrays.outputs.back();
      part.is_sum = !IsMean(spec.symbol.entries()[head].node);
      // Devices that compute for themselves have wholes each.
      if (!part.is_sum) part.part_of = spec.options.independent ? range.size() : ranges.back().end;
    }
    std::vector<Tensor>& mine = labels_.emplace_back();
    for (size_t i = 0; i < labels.size(); ++i) {
      mine.push_back(lists ? Tensor(engine_, device, (*lists)[k][i].dtype(), (*lists)[k][i].shape())
                           : p.executor->Input(*p.bound, LabelOf(p.bound->plan(), static_cast<int>(i))));
      add("label", &arrays.labels, labels[i].name, mine[i], OuterOf(labels[i], mine[i].shape()));
    }

    const NameScope names;  // equal shares give equal graphs, unless the metric looks at which samples they are
    MetricGraph graph = metric.AsGraph(arrays);
    const Symbol head = HeadOf(graph);
    CompileOptions own = options;
    own.device = device.kind;
    if (device.kind != DeviceKind::kCpu) own.threads = 1;
    const auto share = std::make_shared<Share>();
    own.signature = Signature::Of(head);
    for (Argument& a : own.signature.arguments) {
      share->arrays.push_back(tensors.at(a.name));
      a = {.name = a.name,
           .role = Role::kData,
           .shape = tensors.at(a.name).shape(),
           .dtype = tensors.at(a.name).dtype()};
    }
    std::string text = SerializeModel({.symbol = head});
    const bool again = own == last && text == last_graph;
    share->program = again ? shares_.back()->program : Compile(head, own);
    share->checks = std::move(graph.checks);
    last = std::move(own);
    last_graph = std::move(text);

    const Plan& plan = share->program->plan;
    const int output = plan.outputs[0].value;
    const Shape expected = {static_cast<int64_t>(partial_size_ + 2 * share->checks.size())};
    if (const ValueType& type = plan.values[output].type; type.dtype != DType::kFloat64 || type.shape != expected) {
      Throw("metric \"{}\": its graph gives {} {}, expected {} {}", metric.name(), type.dtype, type.shape,
            DType::kFloat64, expected);
    }
    Instance::Addresses addresses;
    addresses.stream = &engine_->StreamOf(device);
    if (!lists) addresses.step = p.executor->block();  // what its kernels refuse is the step's
    if (plan.arena_bytes > 0) {
      share->memory = DefaultStorage()->Allocate(device, plan.arena_bytes);
      addresses.arena = static_cast<char*>(share->memory->data());
    }
    for (const Tensor& array : share->arrays) addresses.arguments.push_back(array.address());
    share->instance = std::make_shared<const Instance>(share->program, addresses);
    share->output = share->instance->AddressOf(output);
    share->bytes = expected[0] * static_cast<int64_t>(sizeof(double));
    share->measured = engine_->NewVar();

    Operation part{.name = fmt::format("metric {}", device),
                   .device = device,
                   .reads = {p.executor->arena()->var(), p.executor->Rates().var()},
                   .writes = {share->measured}};
    for (const Tensor& array : share->arrays) {
      if (std::ranges::find(part.reads, array.var()) == part.reads.end()) part.reads.push_back(array.var());
    }
    part.at = [instance = share->instance] { return instance->At(); };
    parts_.push_back(std::move(part));
    shares_.push_back(share);
  }
}

bool GroupMetric::IsFor(const Metric& metric, const LabelLists* lists) const {
  if (metric_ != metric.id() || labels_of_batch_ != !lists) return false;
  for (size_t k = 0; lists && k < labels_.size(); ++k) {
    const bool fit = std::ranges::equal((*lists)[k], labels_[k], [](const HostTensor& given, const Tensor& mine) {
      return given.dtype() == mine.dtype() && given.shape() == mine.shape();
    });
    if (!fit) return false;
  }
  return true;
}

const std::vector<std::vector<double>>& GroupMetric::Measure(const LabelLists& lists) {
  for (size_t k = 0; k < labels_.size(); ++k) {
    for (size_t i = 0; i < labels_[k].size(); ++i) labels_[k][i].CopyFrom(lists[k][i]);
  }
  Push(measured_, measure_done_);
  engine_->Wait(measure_done_);
  return measured_->partials;
}

std::shared_ptr<Measurement::Place> GroupMetric::MakePlace(const VarPtr& done, const Tensor& status) const {
  const auto place = std::make_shared<Measurement::Place>();
  place->done = done;
  place->status = status.var();
  std::vector<VarPtr> there;  // what the host reads
  StepParts parts = parts_;
  std::vector<const double*> values;
  std::vector<std::shared_ptr<Chunk>> memory;
  for (size_t k = 0; k < parts.size(); ++k) {
    Operation& part = parts[k];
    const std::shared_ptr<Share>& share = shares_[k];
    const bool fetches = !HostAddressable(part.device);
    const std::shared_ptr<Chunk> fetched =
        fetches ? DefaultStorage()->AllocateStaging(part.device, share->bytes) : nullptr;
    memory.push_back(fetched);
    values.push_back(static_cast<const double*>(fetched ? fetched->data() : share->output));
    there.push_back(fetches ? engine_->NewVar() : share->measured);
    if (fetches) part.writes.push_back(there.back());
    if (status.defined()) {
      part.reads.push_back(status.var());
      part.writes.push_back(status.var());
    }
    part.run = [share, fetched, status, size = partial_size_](const OpContext& context) {
      share->instance->Run(0);
      const Device device = context.stream.device();
      const auto* const refusals = reinterpret_cast<const Refusal*>(static_cast<const double*>(share->output) + size);
      if (status.defined()) {
        Backend::Of(device.kind)
            .flat()
            .Refuse(context.stream, refusals, std::ssize(share->checks), static_cast<StepStatus*>(status.address()));
      }
      if (fetched) CopyBetween(context.stream, device, share->output, Cpu(), fetched->data(), share->bytes);
    };
  }
  place->parts = StepRange(engine_, std::move(parts));
  // A device that measures alone also ends it, if it can: another one might be busy.
  const Device own = parts_[0].device, home = shares_.size() == 1 && HostAddressable(own) ? own : Cpu();
  place->end =
      engine_->Prepare({.name = "metric",
                        .device = home,
                        .reads = there,
                        .writes = {done},
                        .run = [shares = shares_, values, memory, size = partial_size_](const OpContext& context) {
                          const auto& measurement = *static_cast<const Measurement*>(context.payload);
                          for (size_t k = 0; k < shares.size(); ++k) {
                            const double* at = values[k];
                            measurement.partials[k].assign(at, at + size);
                            at += size;
                            for (const MetricGraph::Check& check : shares[k]->checks) {
                              if (at[0] >= 0) check.fail(static_cast<int64_t>(at[0]), at[1]);
                              at += 2;
                            }
                          }
                        }});
  return place;
}

std::shared_ptr<Measurement::Place> GroupMetric::TakePlace(const VarPtr& done, const Tensor& status) {
  // As PayloadPool::Take has it: the copy orders what the last holder did.
  const auto free = [](const auto& place) { return place.use_count() == 1; };
  const auto found = std::ranges::find_if(
      places_, [&](const auto& place) { return free(place) && place->done == done && place->status == status.var(); });
  if (found != places_.end()) return *found;
  if (places_.size() >= kMostPlaces) std::erase_if(places_, free);
  return places_.emplace_back(MakePlace(done, status));
}

void GroupMetric::Push(const std::shared_ptr<Measurement>& measurement, const VarPtr& done, const Tensor& status) {
  measurement->partials.resize(shares_.size());
  measurement->place = nullptr;
  measurement->place = TakePlace(done, status);
  measurement->place->parts.Push(measurement);
  engine_->Push(measurement->place->end, measurement);
}

}  // namespace bindery
