// Which class is taken for which: counts, and the answers that are the furthest from the truth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "train/data/data_iter.h"
#include "train/trainer.h"

namespace bindery {

class Confusion {
 public:
  explicit Confusion(int64_t classes);

  void Add(int64_t label, int64_t answer) { ++counts_[static_cast<size_t>(label * classes_ + answer)]; }
  int64_t classes() const { return classes_; }
  int64_t count(int64_t label, int64_t answer) const { return counts_[static_cast<size_t>(label * classes_ + answer)]; }
  int64_t OfLabel(int64_t label) const;    // samples of that class
  int64_t OfAnswer(int64_t answer) const;  // samples that were taken for that class
  int64_t samples() const;
  int64_t right() const;
  struct Pair {
    int64_t label = 0, answer = 0, count = 0;
  };
  std::vector<Pair> Mistakes() const;  // the most frequent first

 private:
  int64_t classes_;
  std::vector<int64_t> counts_;  // (label, answer)
};

// A sample that was answered.
struct Answer {
  int64_t sample = 0;  // its number in the order in which the data came
  int64_t label = 0, answer = 0;
  double of_label = 0, of_answer = 0;  // probabilities
  HostTensor data = {};                // of the sample, without its batch axis
};

struct Judgement {
  Confusion confusion;
  std::vector<Answer> worst = {};  // wrong answers, those first whose label had the least probability
  int64_t unjudged = 0;            // samples whose label is no class, or that have NaN as a score
};

// The probabilities of classes that the first output has, float32 (N, classes). One truth for each sample, as a
// LogisticRegressionOutput has it, tells two classes apart: no and yes, 1 - p and p. Throws ModelError for outputs that
// are not one class of several for each sample.
HostTensor ClassProbabilities(const Symbol& symbol, const HostTensor& output);

// One sweep over labelled data of one class per sample, with a model whose first output tells classes apart. Throws
// what ClassProbabilities does, and DataError for data without one label per sample.
Judgement Judge(Trainer* trainer, DataIter* data, int64_t worst);

// The name of a class, as far as `names` has it; else its number.
std::string NameOf(int64_t label, const std::vector<std::string>& names);

// The matrix, a row for each label and a column for each answer, with the share of each label that is right. Of more
// than 20 classes the most frequent mistakes alone. `names`: of the classes, as far as there are any.
std::string ToText(const Confusion& confusion, const std::vector<std::string>& names);

struct JudgementPageOptions {
  std::string title;
  std::vector<std::string> names = {};                      // of classes
  std::vector<std::pair<std::string, double>> values = {};  // metrics
};
// A page with the values, the matrix, how good each class is (class_scores.h), and the worst answers with their images,
// where data are (rows, columns) or (channels, rows, columns).
std::string JudgementPage(const Judgement& judgement, const JudgementPageOptions& options);

}  // namespace bindery
