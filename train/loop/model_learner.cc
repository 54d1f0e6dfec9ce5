#include "train/loop/model_learner.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/names.h"

namespace bindery {
namespace {

template <class T>
T& Find(const char* what, const std::map<std::string, T*>& known, const std::string& name) {
  const auto found = known.find(name);
  if (found != known.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [one, value] : known) names.push_back(one);
  Throw("there is no {} \"{}\"{}", what, name, NameHint(name, names));
}

}  // namespace

ModelLearner::ModelLearner(ModelLearnerOptions options) : options_(std::move(options)) {
  if (options_.models.empty()) Throw("a learner needs a model");
  iterator("main");
}

DataIter& ModelLearner::iterator(const std::string& name) const { return Find("iterator", options_.iterators, name); }
TrainedModel& ModelLearner::model(const std::string& name) const { return Find("model", options_.models, name); }

std::vector<std::string> ModelLearner::model_names() const {
  std::vector<std::string> names;
  for (const auto& [name, model] : options_.models) names.push_back(name);
  return names;
}

void ModelLearner::Update() {
  reported_ = Observation();
  const int64_t before = epoch();
  UpdateCore();
  ++iteration_;
  ended_ = epoch() > before;
  if (!is_new_epoch()) return;
  std::exception_ptr error;  // the first; the epoch is over for all, whatever became of its last steps
  for (const auto& [name, model] : options_.models) {
    try {
      model->Settle();  // what is observed now is all of the epoch
    } catch (...) {
      if (!error) error = std::current_exception();
    }
    if (options_.auto_new_epoch) model->updater().NewEpoch();
  }
  if (error) std::rethrow_exception(error);
}

void ModelLearner::UpdateCore() {
  TrainedModel& main = model("main");
  main.Step(NextMicroBatches("main", main));
}

BatchPtr ModelLearner::NextBatch(const std::string& name, TrainedModel& model) {
  return SharedOut(Arranged(name, model), model);
}

std::vector<BatchPtr> ModelLearner::NextMicroBatches(const std::string& name, TrainedModel& model) {
  std::vector<BatchPtr> batches = model.Cut(Arranged(name, model));
  for (BatchPtr& batch : batches) batch = SharedOut(batch, model);
  return batches;
}

BatchPtr ModelLearner::SharedOut(const BatchPtr& batch, TrainedModel& model) const {
  const ExecutorGroup& group = model.group();
  return ShareOut(batch, group.options(), group.engine(), options_.order, options_.converter);
}

BatchPtr ModelLearner::Arranged(const std::string& name, TrainedModel& model) {
  DataIter& data = iterator(name);
  BatchPtr batch = data.Next();
  if (!batch) {
    data.Reset();
    batch = data.Next();
  }
  if (!batch) Throw<DataError>("iterator \"{}\" has no batch", name);
  return Feed(model.group().options(), data).Arrange(batch);
}

Moment ModelLearner::now() const {
  return {.iteration = iteration_, .epoch = epoch(), .epoch_detail = epoch_detail(), .is_new_epoch = is_new_epoch()};
}

void ModelLearner::Observe(Observation* observation) {
  for (const auto& [name, model] : options_.models) model->Observe(name, observation);
  for (const auto& [name, value] : reported_.values()) observation->Report(name, value.value, value.weight);
}

void ModelLearner::Serialize(Archive* archive) {
  archive->Count("iteration", &iteration_, 0, INT64_MAX / 2);
  for (const auto& [name, data] : options_.iterators) {
    Archive place = archive->In("iterator:" + name);
    IterState state = data->SaveState();
    place.Counts(&state);
    if (archive->reading()) data->LoadState(state);
  }
  for (const auto& [name, model] : options_.models) model->Serialize(name, archive);
}

Checkpoint ModelLearner::ToCheckpoint() {
  Checkpoint checkpoint;
  Archive archive = Archive::To(&checkpoint);
  Serialize(&archive);
  checkpoint.step = iteration_;
  checkpoint.epoch = epoch();
  return checkpoint;
}

void ModelLearner::Restore(const Checkpoint& checkpoint) {
  for (const auto& [name, model] : options_.models) {
    try {
      model->Settle();
    } catch (const HangError&) {
      throw;
    } catch (const Error&) {  // what became of steps in flight does not matter any more
    }
  }
  const Checkpoint before = ToCheckpoint();
  try {
    Archive archive = Archive::From(checkpoint);
    Serialize(&archive);
  } catch (...) {
    Archive archive = Archive::From(before);
    Serialize(&archive);
    throw;
  }
  ended_ = false;
}

void ModelLearner::Finalize() {
  for (const auto& [name, model] : options_.models) model->Settle();
}

}  // namespace bindery
