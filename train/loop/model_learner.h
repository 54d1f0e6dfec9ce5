// ModelLearner: updates of models by batches, each known by name. As it is, an update is a step of the model "main" on
// the next batch of the iterator "main". A training of another kind overrides UpdateCore:
//
//   class Gan : public ModelLearner {
//     void UpdateCore() override {
//       const BatchPtr real = NextBatch("main", model("critic"));
//       ...
//       model("critic").Step(batch);
//     }
//   };
//
// Epochs are those of the iterator "main". What it points to must outlive it.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/data/data_iter.h"
#include "train/data/feed.h"
#include "train/loop/learner.h"
#include "train/loop/trained_model.h"

namespace bindery {

struct ModelLearnerOptions {
  std::map<std::string, DataIter*> iterators = {};   // with one called "main"
  std::map<std::string, TrainedModel*> models = {};  // at least one
  Converter converter = {};                          // of what NextBatch gives, for each device; none: as it is
  SampleOrder order = SampleOrder::kContiguous;      // of what NextBatch gives, among devices
  // Where an update has ended a sweep of "main", the models' schedules are told (Updater::NewEpoch). Otherwise that is
  // for the program to do.
  bool auto_new_epoch = true;
};

class ModelLearner : public Learner {
 public:
  explicit ModelLearner(ModelLearnerOptions options);  // throws Error unless there are such

  // UpdateCore, then what follows of it: one more iteration, perhaps a new epoch.
  void Update() override;
  Moment now() const override;
  void Observe(Observation* observation) override;  // what models report, as "<model>/...", and Report
  Checkpoint ToCheckpoint() override;
  void Restore(const Checkpoint& checkpoint) override;
  std::vector<std::string> model_names() const override;
  Model ToModel(const std::string& name) const override { return model(name).ToModel(); }
  Updater& updater(const std::string& name) override { return model(name).updater(); }
  void Finalize() override;  // waits for what is in flight

  int64_t iteration() const { return iteration_; }  // updates so far
  int64_t epoch() const { return iterator("main").epoch(); }
  double epoch_detail() const { return iterator("main").epoch_detail(); }
  double previous_epoch_detail() const { return iterator("main").previous_epoch_detail(); }  // before the last batch
  bool is_new_epoch() const { return ended_ || iterator("main").is_new_epoch(); }

  DataIter& iterator(const std::string& name) const;  // throw Error for another name
  TrainedModel& model(const std::string& name) const;

 protected:
  virtual void UpdateCore();
  // At these places of the archive: "iterator:<name>", "model:<name>", "optimizer:<name>"; and "iteration". Whoever has
  // more that its future depends on adds to it.
  virtual void Serialize(Archive* archive);

  // The next batch of an iterator, in the order of the model's arrays, shared out and converted. Where a sweep is over,
  // of the next one. Throws DataError if there is none at all.
  BatchPtr NextBatch(const std::string& iterator, TrainedModel& model);
  // The same in the micro-batches that the model steps on (TrainedModelOptions), each shared out and converted.
  std::vector<BatchPtr> NextMicroBatches(const std::string& iterator, TrainedModel& model);
  // To be observed after this update. `weight`: Observation::Report.
  void Report(const std::string& name, double value, double weight = 0) { reported_.Report(name, value, weight); }

 private:
  BatchPtr Arranged(const std::string& iterator, TrainedModel& model);  // the next batch, as it is
  BatchPtr SharedOut(const BatchPtr& batch, TrainedModel& model) const;

  ModelLearnerOptions options_;
  int64_t iteration_ = 0;
  bool ended_ = false;  // a sweep, in the last update: also one whose last batches were passed over
  Observation reported_;
};

}  // namespace bindery
