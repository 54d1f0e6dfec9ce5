#include "train/data/text.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "tests/message_of.h"
#include "train/data/prefetch_iter.h"
#include "train/generate.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

TextPtr Numbers(int count) {
  std::vector<int32_t> text;
  for (int i = 0; i < count; ++i) text.push_back(i);
  return std::make_shared<const std::vector<int32_t>>(std::move(text));
}

std::vector<double> Values(const HostTensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.At(i));
  return values;
}

std::string WriteText(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  WriteFileAtomically(path, text);
  return path;
}

TEST(Vocabulary, CharactersAreClassesInTheirOrder) {
  const Vocabulary words = Vocabulary::Of("b\u00e4a\nb\U0001F642", "text");
  EXPECT_EQ(words.characters(), "\nab\u00e4\U0001F642");
  EXPECT_EQ(words.size(), 5);
  EXPECT_EQ(words.Encode("ab\u00e4", "text"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(words.Decode(4), "\U0001F642");
  EXPECT_EQ(Vocabulary(words.characters()).Encode("\U0001F642b", "text"), (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(Vocabulary::Of(std::string("a\0b", 3), "text").size(), 3);
}

TEST(Vocabulary, Errors) {
  const Vocabulary words("ab\n");
  EXPECT_EQ(MessageOf<DataError>([&] { words.Encode("ab\nac", "\"f\""); }),
            "DataError: \"f\", line 2: \"c\" is none of the 3 characters of the vocabulary");
  EXPECT_EQ(MessageOf<DataError>([] { Vocabulary("aba"); }), "DataError: vocabulary: \"a\" is there twice");
  EXPECT_EQ(MessageOf<DataError>([] { Vocabulary(""); }), "DataError: vocabulary: it has no characters");
  EXPECT_EQ(MessageOf<DataError>([] { Vocabulary::Of("", "\"f\""); }), "DataError: \"f\": it has no characters");
  // A byte that continues nothing, one that nothing continues, forms too long, a surrogate, beyond the last.
  for (const std::string bad : {"\x80", "\xC3", "\xC3(", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                "\xF8\x80\x80\x80", "\xE2\x82", "\xF0\x80\x80\x80", "\xE2\x82(", "\xFF"}) {
    EXPECT_EQ(MessageOf<DataError>([&] { Vocabulary::Of("a\n" + bad, "\"f\""); }),
              "DataError: \"f\", line 2: byte 2 is not UTF-8");
  }
}

TEST(TextSet, TheLastPartIsForValidation) {
  const std::string path = WriteText("text", "abcabcabcd");
  const TextSet text = ReadTextSet(path, 0.2);
  EXPECT_EQ(text.vocabulary.characters(), "abcd");
  EXPECT_EQ(*text.train, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(*text.validation, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(*ReadTextSet(path, 0, Vocabulary("dcba")).train, (std::vector<int32_t>{3, 2, 1, 3, 2, 1, 3, 2, 1, 0}));
  EXPECT_THROW(ReadTextSet(path, 0.1, Vocabulary("abc")), DataError);
  EXPECT_THROW(ReadTextSet(path, -0.1), DataError);
  EXPECT_THROW(ReadTextSet(path + "none"), DataError);
  EXPECT_THROW(ReadTextSet(WriteText("empty", "")), DataError);
}

TEST(TextIter, WindowsFollowEachOther) {
  for (const bool time_first : {false, true}) {
    TextIter iter(Numbers(12), {.batch_size = 2, .length = 3, .time_first = time_first});
    EXPECT_EQ(iter.samples(), 3);  // a fourth would have no next character
    const DataDesc data = iter.ProvideData()[0], label = iter.ProvideLabel()[0];
    EXPECT_EQ(data,
              (DataDesc{"data", time_first ? Shape{3, 2} : Shape{2, 3}, DType::kInt32, time_first ? "TN" : "NT"}));
    EXPECT_EQ(label.name, "softmax_label");
    for (int sweep = 0; sweep < 2; ++sweep) {
      const BatchPtr first = iter.Next(), second = iter.Next();
      ASSERT_TRUE(first && second);
      const std::vector<double> rows =
          time_first ? std::vector<double>{0, 3, 1, 4, 2, 5} : std::vector<double>{0, 1, 2, 3, 4, 5};
      EXPECT_EQ(Values(first->data[0]), rows);
      EXPECT_EQ(first->data[0].shape(), data.shape);
      EXPECT_EQ(Values(second->data[0]), (std::vector<double>{6, 7, 8}));
      EXPECT_EQ(Values(second->label[0]), (std::vector<double>{7, 8, 9}));
      EXPECT_EQ(second->samples, 1);
      EXPECT_TRUE(iter.is_new_epoch());
      EXPECT_EQ(iter.Next(), nullptr);
      iter.Reset();
      EXPECT_EQ(iter.epoch(), sweep + 1);
    }
  }
}

TEST(TextIter, RandomWindowsAreDrawnAnewInEachSweep) {
  const TextIterOptions options{.batch_size = 4, .length = 5, .random = true, .seed = 7};
  TextIter iter(Numbers(101), options), again(Numbers(101), options);
  TextIter other(Numbers(101), {.batch_size = 4, .length = 5, .random = true, .seed = 8});
  std::set<double> starts;
  std::vector<std::vector<double>> sweeps;
  for (int sweep = 0; sweep < 20; ++sweep) {
    sweeps.emplace_back();
    while (const BatchPtr batch = iter.Next()) {
      EXPECT_EQ(batch->data, again.Next()->data);
      EXPECT_NE(batch->data, other.Next()->data);
      for (int64_t row = 0; row < batch->samples; ++row) {
        const double start = batch->data[0].At(5 * row);
        starts.insert(start);
        sweeps.back().push_back(start);
        for (int64_t t = 0; t < 5; ++t) {
          EXPECT_EQ(batch->data[0].At(5 * row + t), start + static_cast<double>(t));
          EXPECT_EQ(batch->label[0].At(5 * row + t), start + static_cast<double>(t) + 1);
        }
      }
    }
    for (TextIter* each : {&iter, &again, &other}) each->Reset();
    EXPECT_EQ(sweeps.back().size(), 20u);
    EXPECT_TRUE(sweep == 0 || sweeps[sweep] != sweeps[sweep - 1]);
  }
  EXPECT_EQ(*starts.begin(), 0);
  EXPECT_EQ(*starts.rbegin(), 95);  // the last window's label is the last character
  EXPECT_GT(starts.size(), 90u);
}

// Whatever becomes of what does not fill a batch, each window of each sweep comes as often as it should, in its place.
TEST(TextIter, LastBatches) {
  const auto starts = [](LastBatch last_batch, int batches) {
    TextIter iter(Numbers(51), {.batch_size = 4, .length = 5, .random = true, .seed = 7, .last_batch = last_batch});
    EXPECT_EQ(iter.repeats(), last_batch == LastBatch::kRepeat);
    std::vector<double> all;
    for (int taken = 0; taken < batches;) {
      const BatchPtr batch = iter.Next();
      if (!batch) {
        iter.Reset();
        continue;
      }
      ++taken;
      EXPECT_EQ(batch->data[0].shape()[0], batch->samples + batch->pad);
      for (int64_t row = 0; row < batch->samples; ++row) all.push_back(batch->data[0].At(5 * row));
    }
    return all;
  };
  const std::vector<double> all = starts(LastBatch::kShort, 6);  // 10 of the first sweep, 10 of the second
  ASSERT_EQ(all.size(), 20u);
  EXPECT_EQ(starts(LastBatch::kPad, 6), all);
  EXPECT_EQ(starts(LastBatch::kRollOver, 5), all);
  EXPECT_EQ(starts(LastBatch::kRepeat, 5), all);
  std::vector<double> whole(all.begin(), all.begin() + 8);
  whole.insert(whole.end(), all.begin() + 10, all.begin() + 18);
  EXPECT_EQ(starts(LastBatch::kDiscard, 4), whole);
}

TEST(TextIter, GoesOnFromItsState) {
  const TextIterOptions options{.batch_size = 3, .length = 2, .random = true, .seed = 1};
  TextIter iter(Numbers(20), options);
  for (int i = 0; i < 9; ++i) {
    const IterState state = iter.SaveState();
    TextIter resumed(Numbers(20), options);
    resumed.LoadState(state);
    const BatchPtr expected = iter.Next(), batch = resumed.Next();
    ASSERT_EQ(batch == nullptr, expected == nullptr);
    if (expected == nullptr) {
      iter.Reset();
      continue;
    }
    EXPECT_EQ(batch->data, expected->data);
    EXPECT_EQ(resumed.SaveState(), iter.SaveState());
  }
  const auto refused = [&](const TextPtr& text, const TextIterOptions& of) {
    TextIter other(text, of);
    return MessageOf<CheckpointError>([&] { other.LoadState(iter.SaveState()); });
  };
  EXPECT_NE(refused(Numbers(21), options).find("another \"text\""), std::string::npos);
  EXPECT_NE(refused(Numbers(20), {.batch_size = 3, .length = 4, .random = true, .seed = 1}).find("another \"length\""),
            std::string::npos);
  EXPECT_NE(refused(Numbers(20), {.batch_size = 3, .length = 2, .seed = 1}).find("another \"random\""),
            std::string::npos);
  EXPECT_NE(refused(Numbers(20), {.batch_size = 3, .length = 2, .random = true}).find("another \"seed\""),
            std::string::npos);
  EXPECT_NE(refused(Numbers(20), {.batch_size = 4, .length = 2, .random = true, .seed = 1}).find("\"batch_size\""),
            std::string::npos);
  EXPECT_THROW(iter.LoadState({}), CheckpointError);
}

TEST(TextIter, TextsWithoutAWindow) {
  EXPECT_EQ(MessageOf<DataError>([] { TextIter(Numbers(3), {.length = 3}); }),
            "DataError: a text of 3 characters has no window of 3 and a next character");
  EXPECT_THROW(TextIter(Numbers(0), {.length = 1}), DataError);
  EXPECT_THROW(TextIter(Numbers(5), {.length = 0}), DataError);
  EXPECT_EQ(TextIter(Numbers(4), {.length = 3}).samples(), 1);
}

// A text whose next character is certain, given the last two: models learn it, and write it.
std::string Rounds(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "abcab\n";
  return text;
}

class TextModels : public testing::TestWithParam<const char*> {};

TEST_P(TextModels, LearnAndWriteARound) {
  const TextSet text = ReadTextSet(WriteText(std::string("round-") + GetParam()[0], Rounds(100)), 0.1);
  const std::string name = GetParam();
  const bool time_first = name.find("time_first") != std::string::npos;
  Model model{.symbol = ModelByName(name, {.input = {8}, .num_classes = text.vocabulary.size(), .layers = 1}),
              .metadata = {{kVocabularyKey, text.vocabulary.characters()}}};
  const std::string loss = "cross-entropy(axis=2)";
  Trainer trainer(
      model,
      {.devices = {Cpu(0), Cpu(1)}, .workload = {2, 1}, .optimizer = "adam(lr=0.01)", .metrics = loss, .seed = 1});
  PrefetchIter train(std::make_unique<TextIter>(
      text.train, TextIterOptions{.batch_size = 8, .length = 8, .random = true, .time_first = time_first}));
  TextIter validation(text.validation, {.batch_size = 8, .length = 8, .time_first = time_first});
  const FitResult result = trainer.Fit(train, {.epochs = 15, .validation = &validation});
  // Only the first two characters of a window are open.
  EXPECT_LT(result.validation[0].second, 0.35) << "nats per character";
  const Model trained = trainer.ToModel();
  const std::string line = "abcab\n";
  EXPECT_EQ(GenerateText(trained, {.prompt = line, .characters = 24, .temperature = 0}), line + line + line + line);
  const GenerateOptions hot{.prompt = "a", .characters = 40, .temperature = 5, .seed = 3};
  EXPECT_EQ(GenerateText(trained, hot), GenerateText(trained, hot));
  EXPECT_NE(GenerateText(trained, hot), GenerateText(trained, {.prompt = "a", .characters = 40, .temperature = 5}));
  EXPECT_EQ(GenerateText(trained, {.characters = 0}), "");
}

INSTANTIATE_TEST_SUITE_P(All, TextModels,
                         testing::Values("gpt(width=16, heads=2)", "lstm(width=16)", "lstm(width=16, time_first=1)"));

TEST(GenerateText, Errors) {
  Model model{.symbol = ModelByName("lstm", {.input = {4}, .num_classes = 3, .layers = 1, .width = 4})};
  EXPECT_EQ(MessageOf<ModelError>([&] { GenerateText(model); }),
            "ModelError: the model has no \"vocabulary\" in its metadata: it was not trained on text");
  model.metadata[kVocabularyKey] = "ab\n";
  EXPECT_EQ(MessageOf<DataError>([&] { GenerateText(model, {.prompt = "ax"}); }),
            "DataError: prompt, line 1: \"x\" is none of the 3 characters of the vocabulary");
  EXPECT_THROW(GenerateText(model, {.prompt = ""}), DataError);
  EXPECT_THROW(GenerateText(model, {.temperature = -1}), DataError);
  model.symbol = ModelByName("mlp", {.num_classes = 3});
  EXPECT_EQ(MessageOf<ModelError>([&] { GenerateText(model); }),
            "ModelError: the model has no input \"data\" of windows of text, (N, characters)");
}

}  // namespace
}  // namespace bindery
