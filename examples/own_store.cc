// A store of one's own in a training: it sums the devices' gradients in double precision and keeps the largest norm that
// each parameter's gradient has had.
//
//   tools/bazel run //examples:own_store
//
// Expected: a test accuracy above 0.9 after five epochs, the norms of six parameters, and parameters that differ from
// those of three devices' float32 sums, but by less than 0.05: roundings grow over five epochs, by how much depends on
// the processor's kernels (3e-7 and 9e-3 were seen).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kvstore/wrapped_store.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

using namespace bindery;

namespace {

// Written by the engine's workers, read by the program.
class Norms {
 public:
  void Add(const std::string& name, double norm) {
    const std::lock_guard lock(mutex_);
    double& largest = largest_[name];
    largest = std::max(largest, norm);
  }
  std::map<std::string, double> largest() const {
    const std::lock_guard lock(mutex_);
    return largest_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, double> largest_;
};

// All else is the wrapped store's.
class DoubleStore final : public WrappedStore {
 public:
  DoubleStore(const std::shared_ptr<Engine>& engine, std::shared_ptr<Norms> norms)
      : WrappedStore(KVStore::Create(KVStoreType::kDevice, engine)), engine_(engine), norms_(std::move(norms)) {}

  // Nothing here waits: copies and the sum are operations, which run when what they read is there.
  void PushPull(const Key& key, std::span<const Tensor> values, std::span<const Tensor> out, int priority) override {
    std::vector<Tensor>& copies = copies_[key];
    while (copies.size() <= values.size()) {  // the last is the sum
      copies.emplace_back(engine_, Cpu(), DType::kFloat64, values[0].shape());
    }
    const Tensor sum = copies[values.size()];
    Operation add{.name = "sum in double", .device = Cpu(), .writes = {sum.var()}, .priority = priority};
    for (size_t i = 0; i < values.size(); ++i) {
      copies[i].CopyFrom(values[i], priority);  // casts, from whatever device
      add.reads.push_back(copies[i].var());
    }
    add.run = [copies, sum, norms = norms_, name = ToString(key), count = values.size()](const OpContext&) {
      double* const total = static_cast<double*>(sum.data());
      double squares = 0;
      for (int64_t e = 0; e < sum.elements(); ++e) {
        total[e] = 0;
        for (size_t i = 0; i < count; ++i) total[e] += static_cast<const double*>(copies[i].data())[e];
        squares += total[e] * total[e];
      }
      norms->Add(name, std::sqrt(squares));
    };
    engine_->Push(std::move(add));
    for (const Tensor& tensor : out) tensor.CopyFrom(sum, priority);
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Norms> norms_;
  std::map<Key, std::vector<Tensor>> copies_;
};

Model Train(const StoreFactory& store, const ImageSet& digits, const ImageSet& unseen, double* accuracy) {
  ArrayIter train(digits.images, digits.labels, {.batch_size = 50, .shuffle = true});
  ArrayIter test(unseen.images, unseen.labels, {.batch_size = 100});
  Trainer trainer(ModelByName("mlp"),
                  {.devices = {Cpu(0), Cpu(1), Cpu(2)}, .optimizer = "sgd(lr=0.05, momentum=0.9)", .store = store});
  trainer.Fit(train, {.epochs = 5});
  *accuracy = trainer.Score(test, "accuracy")[0].second;
  return trainer.ToModel();
}

}  // namespace

int main() {
  const ImageSet digits = DrawDigits(2000, /*seed=*/1), unseen = DrawDigits(1000, /*seed=*/1, /*first=*/1 << 20);
  const auto norms = std::make_shared<Norms>();
  const auto make = [norms](const std::shared_ptr<Engine>& engine) {
    return std::make_unique<DoubleStore>(engine, norms);
  };
  double accuracy = 0, of_others = 0;
  const Model ours = Train(make, digits, unseen, &accuracy), others = Train({}, digits, unseen, &of_others);
  std::printf("test accuracy %.3f, of sums in float32 %.3f\n", accuracy, of_others);
  for (const auto& [name, norm] : norms->largest()) std::printf("largest gradient of %s: %.4f\n", name.c_str(), norm);
  double difference = 0;
  for (const auto& [name, value] : ours.params) {
    difference = std::max(difference, MaxAbsDiff(value, others.params.at(name)));
  }
  std::printf("parameters differ by %.2g\n", difference);
}
