#include "executor/group/bindings.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/backend.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

constexpr size_t kKept = 64;

int64_t BucketBytes(const GroupOptions& options) {
  const std::vector<Device>& devices = options.devices;
  const bool pays = devices.size() > 1 && !std::ranges::all_of(devices, HostAddressable);
  return options.bucket_bytes.value_or(pays ? GroupOptions::kBucketBytes : 0);
}

// Of fewer samples than the batch that is described, of which a mirror's limit is. Kernels may want more for them, such as
// those of one sample, which pack weights: then as little as can be.
std::shared_ptr<const Program> CompileSmaller(const Symbol& symbol, CompileOptions options) {
  try {
    return Compile(symbol, options);
  } catch (const DeviceError&) {
    if (!options.mirror.IsOn()) throw;
  }
  options.mirror = {.least = true};
  return Compile(symbol, options);
}

// Programs of one set of shapes.
class Compiler {
 public:
  Compiler(const GroupSpec& spec, const std::vector<Shape>& shapes, const std::vector<SampleRange>& ranges, Mode mode,
           const std::string& watch = {})
      : spec_(spec), shapes_(shapes), ranges_(ranges), mode_(mode), watch_(watch) {}

  CompileOptions OptionsFor(DeviceKind device, int64_t share) const;
  // Throws unless the outputs of a share's program can be merged and its parameters are those of the whole batch. That
  // a program was a share of another batch before says nothing about this one; devices with equal shares have one.
  void CheckShare(const std::shared_ptr<const Program>& program);

 private:
  struct Types {
    Graph graph;
    NodeTypes types;
  };
  const Types& Whole();  // of the symbol on the whole batch
  void CheckMergeable(const Plan& plan, const Types& whole) const;

  const GroupSpec& spec_;
  const std::vector<Shape>& shapes_;
  const std::vector<SampleRange>& ranges_;
  const Mode mode_;
  const std::string watch_;
  std::optional<Types> whole_;              // when it is wanted
  std::shared_ptr<const Program> checked_;  // last
};

CompileOptions Compiler::OptionsFor(DeviceKind device, int64_t share) const {
  const GroupOptions& options = spec_.options;
  CompileOptions o{.signature = spec_.signature};
  std::vector<Argument>& arguments = o.signature.arguments;
  for (size_t i = 0; i < shapes_.size(); ++i) arguments[spec_.inputs[i]].shape = shapes_[i];
  for (Argument& a : arguments) {
    if (a.shape && *a.batch_axis >= 0) a.shape->Set(*a.batch_axis, share);
  }
  o.device = device;
  o.plain_parameters = std::any_of(options.devices.begin(), options.devices.end(),
                                   [&](const Device& d) { return d.kind != options.devices[0].kind; });
  o.mode = mode_;
  o.with_backward = options.for_training && mode_ == Mode::kTrain;
  o.threads = device == DeviceKind::kCpu ? spec_.threads : 1;
  o.devices = options.independent ? 1 : static_cast<int>(NumBusy(ranges_));
  if (o.with_backward && watch_.empty()) o.mirror = options.mirror;  // what is watched is kept
  o.switches = options.switches;
  o.observe = watch_;
  return o;
}

const Compiler::Types& Compiler::Whole() {
  if (!whole_) {
    const GivenTypes given = OptionsFor(DeviceKind::kCpu, ranges_.back().end).signature.Given();
    whole_ = {.graph = Graph::Of(ExpandComposites(spec_.symbol)), .types = {}};
    whole_->types = InferTypes(whole_->graph, given.shapes, given.dtypes, given.batch_axes);
  }
  return *whole_;
}

void Compiler::CheckShare(const std::shared_ptr<const Program>& program) {
  if (spec_.options.devices.size() == 1 || program == checked_) return;
  const Plan& plan = program->plan;
  const auto& [graph, types] = Whole();
  CheckMergeable(plan, Whole());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const int position = graph.nodes[n]->is_variable() ? spec_.Find(graph.nodes[n]->name()) : -1;
    if (position < 0) continue;
    const PlanArgument& a = plan.arguments[position];
    const Shape& expected = types[n][0].shape;
    if (!a.is_parameter() || a.type.shape == expected) continue;
    Throw<ShapeError>(
        "parameter \"{}\" takes its shape from the batch: {} for all of it, {} for a device's share; "
        "declare the shape of its variable",
        a.name, expected, a.type.shape);
  }
  checked_ = program;
}

void Compiler::CheckMergeable(const Plan& plan, const Types& all) const {
  const auto& [graph, types] = all;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const ValueType& share = plan.values[plan.outputs[i].value].type;
    const Entry& entry = graph.outputs[i];
    const ValueType& whole = types[graph.IndexOf(entry.node)][entry.output];
    if (share.batch_axis != whole.batch_axis || share.batch_fold != whole.batch_fold) {
      Throw<ModelError>(
          "head \"{}\" has its samples elsewhere in a device's share, {}, than in the whole batch, {}: "
          "a Reshape before it names extents that are the batch's by chance; let it say -1 where the batch is",
          plan.outputs[i].name, share.shape, whole.shape);
    }
    if (share.batch_axis >= 0) continue;
    if (spec_.merge_rules[i].empty()) {
      // A Reshape that puts parts of several samples side by side is rarely meant.
      const Node* node = LosesBatch(graph, types, entry);
      const auto type_of = [&types, &graph](const Entry& e) -> const ValueType& {
        return types[graph.IndexOf(e.node)][e.output];
      };
      const bool reshapes =
          node != nullptr && node->op().is_view &&
          node->op().is_view(
              {.attrs = node->attrs(), .input = type_of(node->inputs()[0]), .output = types[graph.index.at(node)][0]});
      std::string reason;
      if (reshapes) {
        reason = fmt::format(
            ", for {} gives no axis whole samples (let an axis hold the batch alone, or with axes next to it); if that "
            "is meant",
            Describe(*node));
      } else if (node != nullptr) {
        reason = fmt::format(", which {} does not hand on; if that is meant", Describe(*node));
      }
      Throw<ModelError>(
          "head \"{}\" of shape {} has no batch axis{}: annotate it with how it is merged over devices, sum, mean or "
          "first: .WithAnnotation(\"merge\", \"sum\")",
          plan.outputs[i].name, share.shape, reason);
    }
    const Node& head = *spec_.symbol.entries()[i].node;
    if (spec_.options.for_training && spec_.merge_rules[i] != "sum" && IsLoss(head) && !head.op().blocks_gradient) {
      Throw<ModelError>(
          "head \"{}\" is a loss without batch axis, and the devices' gradients add up: they would not be those of one "
          "device with merge = {}; make the loss one of single samples, or a sum over them with merge = sum",
          plan.outputs[i].name, spec_.merge_rules[i]);
    }
  }
}

}  // namespace

const ValueType& Binding::OutputType(int head) const {
  return step->plan().values[step->plan().outputs[head].value].type;
}

Shape Binding::OutputShape(int head) const {
  const ValueType& type = OutputType(head);
  if (type.batch_axis < 0) return type.shape;
  return type.shape.With(type.batch_axis, type.batch_fold.outer * type.batch_fold.inner * samples());
}

Bindings::Bindings(const GroupSpec& spec, std::shared_ptr<Engine> engine, const Bindings* shared)
    : spec_(spec), engine_(std::move(engine)) {
  const std::vector<Device>& devices = spec.options.devices;
  if (shared) {
    if (shared->store_->devices() != devices) Throw("a group can share only with a group on the same devices");
    if (shared->engine_ != engine_) Throw("a group can share only with a group of the same engine");
    store_ = shared->store_;
    arenas_ = shared->arenas_;
  } else if (const auto& weights = spec.options.weights) {
    if (spec.options.for_training)
      Throw("a group on the weights of another only predicts; bind it with for_training = false");
    if (weights->store->devices() != devices) Throw("a group can share only with a group on the same devices");
    store_ = ParameterStore::View(*weights->store, engine_);
    if (weights->symbol.entries() == spec.symbol.entries()) programs_ = weights->programs;
  } else {
    store_ = std::make_shared<ParameterStore>(engine_, devices, BucketBytes(spec.options));
  }
  if (!programs_) programs_ = std::make_shared<ProgramCache>(spec.options.program_bytes);
  for (size_t d = arenas_.size(); d < devices.size(); ++d) arenas_.push_back(Arena::Make(devices[d], engine_));
  for (size_t d = 0; d < devices.size(); ++d) {
    executors_.push_back(std::make_unique<DeviceExecutor>(engine_, store_, static_cast<int>(d), arenas_[d]));
  }
}

std::shared_ptr<Binding> Bindings::Find(const std::vector<Shape>& shapes, Mode mode, const std::string& watch,
                                        const std::vector<SampleRange>* ranges) {
  const int addresses = AddressesVersion();
  const auto found = std::find_if(bindings_.begin(), bindings_.end(), [&](const auto& b) {
    return b->addresses == addresses && b->mode == mode && b->watch == watch && b->shapes == shapes &&
           (ranges ? b->ranges == *ranges : !b->cut_beforehand && b->split == split_);
  });
  if (found != bindings_.end()) {
    if (found != bindings_.begin()) {
      bindings_.splice(bindings_.begin(), bindings_, found);
      for (const GroupStep::Participant& p : (*found)->participants()) programs_->Touch(p.bound->program.get());
    }
    return bindings_.front();
  }
  bindings_.push_front(Make(shapes, mode, watch, ranges ? *ranges : spec_.Split(spec_.SamplesOf(shapes))));
  const std::shared_ptr<Binding> made = bindings_.front();
  made->cut_beforehand = ranges != nullptr;
  made->split = split_;
  // Bindings go with the addresses they hold, and with their programs: what is bound is not kept beyond the cache's
  // budget.
  std::erase_if(bindings_, [&](const auto& b) {
    return b != made && (b->addresses != made->addresses ||
                         !std::ranges::all_of(b->participants(), [&](const GroupStep::Participant& p) {
                           return programs_->Holds(p.bound->program.get());
                         }));
  });
  if (bindings_.size() > kKept) bindings_.pop_back();
  return made;
}

std::unique_ptr<Binding> Bindings::Make(const std::vector<Shape>& shapes, Mode mode, const std::string& watch,
                                        const std::vector<SampleRange>& ranges) {
  Compiler compiler(spec_, shapes, ranges, mode, watch);
  const bool is_smaller = spec_.SamplesOf(shapes) < spec_.SamplesOf(spec_.InputShapes());
  std::vector<GroupStep::Participant> participants;
  std::vector<DeviceExecutor*> idle;
  for (size_t d = 0; d < executors_.size(); ++d) {
    if (ranges[d].size() == 0) {
      idle.push_back(executors_[d].get());
      continue;
    }
    CompileOptions options = compiler.OptionsFor(executors_[d]->device().kind, ranges[d].size());
    store_->FillFormats(&options.signature);
    const auto program = programs_->Get(ProgramKey(options), [&] {
      std::shared_ptr<const Program> made =
          is_smaller ? CompileSmaller(spec_.symbol, options) : Compile(spec_.symbol, options);
      compiler.CheckShare(made);  // before its parameters stay
      store_->Adopt(made->plan);
      return made;
    });
    compiler.CheckShare(program);
    if (mode == Mode::kTrain) updated_blocks_ = store_->UpdatedBlocks(program->plan);
    participants.push_back({executors_[d].get(), executors_[d]->Bind(program)});
  }
  auto binding = std::make_unique<Binding>(
      Binding{.mode = mode, .watch = watch, .shapes = shapes, .ranges = ranges, .addresses = AddressesVersion()});
  binding->step =
      std::make_unique<GroupStep>(engine_, *store_, std::move(participants), idle, ranges, spec_.options.independent);
  return binding;
}

std::vector<DevicePlan> Bindings::MakePlans(const GroupSpec& spec) {
  const std::vector<Shape> shapes = spec.InputShapes();
  const std::vector<SampleRange> ranges = spec.Split(spec.SamplesOf(shapes));
  Compiler compiler(spec, shapes, ranges, spec.mode());
  ProgramCache programs;
  std::vector<DevicePlan> plans;
  std::vector<PlanArgument> first;  // the first device chooses the formats of parameters
  for (size_t d = 0; d < ranges.size(); ++d) {
    if (ranges[d].size() == 0) continue;
    const Device device = spec.options.devices[d];
    CompileOptions options = compiler.OptionsFor(device.kind, ranges[d].size());
    for (size_t a = 0; !first.empty() && a < options.signature.arguments.size(); ++a) {
      options.signature.arguments[a].format = first[a].format;
    }
    const auto program = programs.Get(ProgramKey(options), [&] { return Compile(spec.symbol, options); });
    compiler.CheckShare(program);
    if (first.empty()) first = program->plan.arguments;
    plans.push_back({.device = device, .samples = ranges[d], .plan = program->plan});
  }
  return plans;
}

int Bindings::AddressesVersion() const {
  int version = 0;
  for (const auto& executor : executors_) version += executor->addresses_version();
  return version;
}

}  // namespace bindery
