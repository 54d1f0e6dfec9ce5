// Text as data: its characters are classes, its windows are samples, and the label at each place is the next character.
//
//   const TextSet text = ReadTextSet("input.txt");                 // the last tenth is kept for validation
//   TextIter train(text.train, {.batch_size = 32, .length = 64, .random = true});
//   TextIter validation(text.validation, {.batch_size = 32, .length = 64});
//   Model model{.symbol = ModelByName("gpt", {.num_classes = text.vocabulary.size()})};
//   model.metadata[kVocabularyKey] = text.vocabulary.characters();   // so that GenerateText can read and write
//
// Characters are Unicode's, texts are UTF-8.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/array_iter.h"

namespace bindery {

inline constexpr const char* kVocabularyKey = "vocabulary";  // of Model::metadata: its characters

// Immutable: any thread may use one.
class Vocabulary {
 public:
  // `characters` one after another, class 0 first. Throws DataError if it is not UTF-8, or has none or one twice.
  explicit Vocabulary(std::string_view characters);
  // The characters of a text, in the order of their code points.
  static Vocabulary Of(std::string_view text, const std::string& source);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  std::string characters() const;
  // The classes of a text's characters. Throws DataError, with `source` and line, for one that is none of these and for
  // what is not UTF-8.
  std::vector<int32_t> Encode(std::string_view text, const std::string& source) const;
  const std::string& Decode(int64_t label) const { return characters_.at(static_cast<size_t>(label)); }

 private:
  std::vector<std::string> characters_;
  std::map<std::string, int32_t, std::less<>> classes_;
};

using TextPtr = std::shared_ptr<const std::vector<int32_t>>;  // classes of characters
struct TextSet {
  Vocabulary vocabulary;
  TextPtr train, validation;
};
// The last part of the file is for validation. Without a vocabulary: that of the whole file. Throws DataError.
TextSet ReadTextSet(const std::string& path, double validation = 0.1,
                    const std::optional<Vocabulary>& vocabulary = std::nullopt);

struct TextIterOptions {
  int64_t batch_size = 1;
  int64_t length = 64;  // characters of a window
  bool random = false;  // windows begin anywhere, drawn anew in each sweep by `seed`; else they follow each other
  uint64_t seed = 0;
  bool time_first = false;  // arrays are (length, N)
  LastBatch last_batch = LastBatch::kShort;
};

// Windows of a text: "data" and "softmax_label", int32 (N, length), the label one character further on. A sweep has as
// many windows as the text has room for side by side.
class TextIter : public DataIter {
 public:
  // Throws DataError for a text without a window, and as ArrayIter does of these.
  TextIter(TextPtr text, const TextIterOptions& options);

  std::vector<DataDesc> ProvideData() const override { return {Describe("data")}; }
  std::vector<DataDesc> ProvideLabel() const override { return {Describe("softmax_label")}; }
  int64_t batch_size() const override { return windows_.batch_size(); }
  int64_t samples() const override { return windows_.samples(); }

  std::shared_ptr<const Batch> Next() override;
  void Reset() override { windows_.Reset(); }

  int64_t epoch() const override { return windows_.epoch(); }
  double epoch_detail() const override { return windows_.epoch_detail(); }
  double previous_epoch_detail() const override { return windows_.previous_epoch_detail(); }
  bool is_new_epoch() const override { return windows_.is_new_epoch(); }
  bool repeats() const override { return windows_.repeats(); }

  IterState SaveState() const override;
  void LoadState(const IterState& state) override;

 private:
  DataDesc Describe(const std::string& name) const;
  // Characters `ahead` of each window's.
  HostTensor Gather(const std::vector<int64_t>& starts, int64_t ahead) const;

  const TextPtr text_;
  const TextIterOptions options_;
  const int64_t checksum_;  // of the text
  ArrayIter windows_;       // their numbers
};

}  // namespace bindery
