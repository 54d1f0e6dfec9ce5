#include "tools/cli/data.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/log.h"
#include "symbol/infer.h"
#include "tools/cli/heads.h"
#include "tools/cli/image_data.h"
#include "tools/cli/noted.h"
#include "train/data/part_iter.h"
#include "train/data/prefetch_iter.h"
#include "train/data/preprocessing.h"
#include "train/data/samples/numbers.h"
#include "train/data/samples/sample_iter.h"
#include "train/data/settings.h"
#include "train/zoo.h"

namespace bindery::cli {
namespace {

constexpr std::string_view kText = "text:";

struct TextParts {
  Vocabulary vocabulary;
  TextPtr train, validation, test;  // of --data, in this order
};

TextPtr Stretch(const TextPtr& text, int64_t begin, int64_t end) {
  return std::make_shared<const std::vector<int32_t>>(text->begin() + begin, text->begin() + end);
}

// Takes a part of a text, its end, away from it.
TextPtr TakeEnd(double part, TextPtr* text) {
  const auto size = static_cast<int64_t>((*text)->size());
  const int64_t middle = size - std::llround(part * static_cast<double>(size));
  TextPtr end = Stretch(*text, middle, size);
  *text = Stretch(*text, 0, middle);
  return end;
}

TextParts ReadText(const DataOptions& options, const Model* known) {
  if (!options.write_digits.empty()) throw UsageError("--write-digits is for images");
  const auto& [data, shard] = CutShard(options.data);
  std::optional<Vocabulary> vocabulary;
  if (known != nullptr && VocabularySize(*known) > 0) vocabulary.emplace(known->metadata.at(kVocabularyKey));
  // Characters are those of the whole, so that all shards number them alike.
  TextSet whole = ReadTextSet(data.substr(kText.size()), /*validation=*/0, vocabulary);
  TextParts parts{std::move(whole.vocabulary), std::move(whole.train), nullptr, nullptr};
  if (shard) {
    const auto size = static_cast<int64_t>(parts.train->size());
    parts.train = Stretch(parts.train, size * shard->first / shard->count, size * (shard->first + 1) / shard->count);
  }
  parts.test = TakeEnd(options.test_part, &parts.train);
  parts.validation = TakeEnd(options.validation_part, &parts.train);
  return parts;
}

LastBatch LastBatchOf(const DataOptions& options, bool training) {
  return training ? options.LastBatchKind() : LastBatch::kShort;
}

// Windows as long as the model takes them, in training anywhere.
std::unique_ptr<TextIter> MakeWindows(const TextPtr& text, const DataOptions& options, const Model& model,
                                      const std::string& model_name, bool training, uint64_t seed) {
  const auto sample = SampleShape(model);
  if (!sample || sample->rank() != 1) {
    throw UsageError(fmt::format("--data: {} takes {}, not windows of text as gpt and lstm do", model_name,
                                 sample ? ToString(*sample) : "samples of no declared shape"));
  }
  try {
    return std::make_unique<TextIter>(text, TextIterOptions{.batch_size = options.batch_size,
                                                            .length = (*sample)[0],
                                                            .random = training,
                                                            .seed = seed,
                                                            .time_first = BatchAxis(model) == 1,
                                                            .last_batch = LastBatchOf(options, training)});
  } catch (const DataError& e) {
    const bool is_short = std::ssize(*text) <= (*sample)[0];
    Throw<DataError>("--data: \"{}\", the part to {}: {}{}", options.data, training ? "train on" : "test on",
                     e.message(),
                     is_short ? "; --test-part says how large that is, \"gpt(context=16)\" takes shorter windows" : "");
  }
}

std::unique_ptr<DataIter> IterOf(SampleSourcePtr samples, const DataOptions& options, bool training, uint64_t seed) {
  if (samples->samples() == 0) {
    Throw<DataError>("--data: no samples are left to {}; --test-part, --test-data and --validation-part say which are",
                     training ? "train on" : "test on");
  }
  return std::make_unique<SampleIter>(std::move(samples),
                                      SampleIterOptions{.batch_size = options.batch_size,
                                                        .shuffle = training,
                                                        .seed = seed,
                                                        .last_batch = LastBatchOf(options, training),
                                                        .workers = options.workers,
                                                        .part = options.part,
                                                        .parts = options.parts,
                                                        .skip_damaged = options.skip_damaged});
}

// The samples to test with: those of --test-data, else the part of --data that is kept for that.
OpenedData OpenToTest(const DataOptions& options, OpenOptions open) {
  open.training = false;
  OpenedData opened = OpenData(options.Tested(), open);
  if (options.test_data.empty()) opened.samples = SplitSource(opened.samples, options.test_part).part;
  return opened;
}

// Samples of --data without those to test with.
SampleSourcePtr NotToTest(const DataOptions& options, const SampleSourcePtr& samples) {
  return options.test_data.empty() ? SplitSource(samples, options.test_part).rest : samples;
}

OpenedData OpenToValidate(const DataOptions& options, OpenOptions open) {
  open.training = false;
  OpenedData opened = OpenData(options.data, open);
  opened.samples = SplitSource(NotToTest(options, opened.samples), options.validation_part).part;
  return opened;
}

void CheckSampleShape(const SampleSource& samples, const Model& model, const std::string& name) {
  const bool one = samples.data().size() == 1;
  for (const SampleArray& have : samples.data()) {
    const auto wanted = SampleShape(model, have.name);
    if (!wanted || *wanted == have.shape) continue;
    Throw<DataError>("--data: samples {}of {} do not fit {}, which takes {}",
                     one ? "" : fmt::format("\"{}\" ", have.name), have.shape, name, *wanted);
  }
}

// Only arrays of an archive have names.
bool GivesByName(const std::string& data) { return data.starts_with("npz:"); }

void CheckGiven(const SampleSource& samples, const Model& model, bool labelled) {
  std::vector<std::string> names;
  for (const SampleArray& array : samples.data()) names.push_back(array.name);
  CheckInputs(model, labelled, names);
}

// What another training called its classes, they are called here. But a model that is tuned, with weights of another,
// takes their names from data that call them otherwise.
OpenedData OpenToTrain(const DataOptions& options, const ModelOptions& model, const OpenOptions& open) {
  const bool has_names = options.data.starts_with("csv:") || options.data.starts_with("images:");
  if (has_names && model.IsTuned() && !open.classes.empty()) {
    OpenOptions unnamed = open;
    unnamed.classes.clear();
    OpenedData opened = OpenData(options.data, unnamed);
    unnamed.preprocessing = opened.preprocessing;  // what differs is said once
    const auto is_known = [&](const std::string& name) {
      return std::ranges::find(open.classes, name) != open.classes.end();
    };
    if (!std::ranges::all_of(opened.classes, is_known)) return opened;
    unnamed.classes = open.classes;
    return OpenData(options.data, unnamed);
  }
  return OpenData(options.data, open);
}

// As a model that gives numbers takes them.
DataOptions WithNumbers(DataOptions options) {
  options.data = WithNumbersAsLabels(options.data);
  options.test_data = WithNumbersAsLabels(options.test_data);
  return options;
}

// Rows of a file are no text; arrays may hold sequences.
void CheckTakesRows(const DataOptions& options, const ModelOptions& model, const Model& made) {
  const bool is_sequence = SampleShape(made).value_or(Shape()).rank() == 1;
  const bool takes_text = VocabularySize(made) > 0 || (model.IsByName() && is_sequence);
  if (!takes_text || options.data.starts_with("npy:") || options.data.starts_with("npz:")) return;
  Throw<DataError>("--data: {} takes text: give --data text:FILE", NamedModel(model));
}

// How many numbers a model by name is to give for such labels.
int64_t CountNumbers(const SampleSource& samples, const ModelOptions& model) {
  const int64_t labels = samples.labels()[0].shape.Elements();
  const bool says = model.Name().find("outputs") != std::string::npos;
  if (const int64_t own = ModelClasses(model.Name()); says && own != labels) {
    throw UsageError(
        fmt::format("--data: {} gives {} numbers, but a sample has {} as labels", NamedModel(model), own, labels));
  }
  return labels;
}

// How many numbers a sample has as labels. Throws DataError unless the model gives as many.
int64_t CountLabels(const SampleSource& samples, const Model& trained, const std::string& name) {
  const int64_t labels = samples.labels()[0].shape.Elements();
  ShapeMap inputs;
  for (const SampleArray& array : samples.data()) inputs[array.name] = array.shape.Insert(0, 1);
  const InferredShapes shapes = InferShapesPartial(trained.symbol, inputs);
  const int64_t numbers = shapes.outputs[0] ? shapes.outputs[0]->Elements() : labels;
  if (labels == numbers) return labels;
  Throw<DataError>(
      "--data: samples have {} as labels, but {} gives {} numbers: the setting \"label\" names the columns of as many, "
      "label=none says that there are none",
      labels, name, numbers);
}

// A model by name, for such samples.
Model LoadFor(const Shape& sample, int64_t answers, const ModelOptions& model) {
  Model made = LoadForData(model, sample, answers);
  try {
    InferShapesPartial(made.symbol, {{"data", sample.Insert(0, 1)}});
    return made;
  } catch (const ShapeError& e) {
    Throw<DataError>("--data: samples of {} do not fit {}: {}; --model mlp takes samples of any shape", sample,
                     NamedModel(model), e.message());
  }
}

TrainingData MakeSamples(const DataOptions& given, const ModelOptions& model, uint64_t seed) {
  if (!given.write_digits.empty()) throw UsageError("--write-digits is for images");
  TrainingData made{.model = model.Load()};
  if (!GivesByName(given.data)) CheckInputs(made.model, /*labelled=*/true);
  CheckTakesRows(given, model, made.model);
  const bool numbers = GivesNumbers(made.model);
  const DataOptions options = numbers ? WithNumbers(given) : given;
  OpenOptions open{.sample = SampleShape(made.model).value_or(Shape()),
                   .inputs = MayBeInputs(made.model),
                   .classes = ClassNames(made.model),
                   .training = true,
                   .one_class = TakesOneClass(made.model),
                   .seed = seed,
                   .held_back = {options.test_data.empty() ? options.test_part : 0, options.validation_part},
                   .preprocessing = Preprocessing(made.model)};
  const OpenedData opened = OpenToTrain(options, model, open);
  if (opened.samples->labels().empty()) {
    throw UsageError(fmt::format("--data: a training needs labels{}",
                                 options.data.starts_with("npy:") ? "; labels=FILE names the .npy file of them" : ""));
  }
  CheckGiven(*opened.samples, made.model, /*labelled=*/true);
  NoteScalingOfModel(options.data, ParsePreprocessing(open.preprocessing), ParsePreprocessing(opened.preprocessing));
  if (model.IsByName()) {
    if (numbers && opened.num_classes > 0) {
      throw UsageError(fmt::format(
          "--data: {} gives numbers, but the labels are classes; those of csv:, npy: and npz: may be numbers",
          NamedModel(model)));
    }
    if (!numbers && opened.num_classes == 0) {
      throw UsageError(fmt::format(
          "--data: {} tells classes apart, but the labels are numbers; with the setting head=regression, as in "
          "\"mlp(head=regression)\", it gives numbers",
          NamedModel(model)));
    }
    const int64_t answers = numbers ? CountNumbers(*opened.samples, model) : std::max<int64_t>(2, opened.num_classes);
    const Shape& shape = opened.samples->data()[0].shape;
    if (shape.rank() != open.sample.rank()) CheckSampleShape(*opened.samples, made.model, NamedModel(model));
    made.model = LoadFor(shape, answers, model);
  }
  made.num_classes = opened.num_classes;
  CheckSampleShape(*opened.samples, made.model, NamedModel(model));
  for (const SampleArray& array : opened.samples->data()) SetSampleShape(&made.model, array.shape, array.name);
  const bool as_it_is = !model.IsByName() || (model.IsTuned() && model.StatedClasses() == 0);
  if (as_it_is) {
    WarnOfMoreClasses(made.model, opened.num_classes, NamedModel(model));
  }
  if (!opened.classes.empty()) SetClassNames(opened.classes, &made.model);
  if (GivesNumbers(made.model)) SetNamesOfNumbers(opened.label_names, &made.model);
  // The model is applied to samples that are made as those of its test, which are those of its training unless said;
  // also where nothing is left of these, as by scale=none.
  open.sample = opened.samples->data()[0].shape;
  open.classes = opened.classes;
  open.preprocessing = opened.preprocessing;
  const bool validates = options.validation_part > 0;
  OpenedData judged = validates ? OpenToValidate(options, open) : OpenToTest(options, open);
  CheckGiven(*judged.samples, made.model, /*labelled=*/true);
  const bool has_others = validates && !options.test_data.empty();
  // Others to test on are opened for their preprocessing alone, a table with all that it has; nothing else tells it.
  SettingTexts kept = ParsePreprocessing(has_others ? OpenToTest(options, open).preprocessing : judged.preprocessing);
  // But labels are those that it learns, whatever it is tested on.
  AddScaling(KnownScaling(ParsePreprocessing(opened.preprocessing), kOfLabels), &kept, kOfLabels);
  SetPreprocessing(bindery::ToText(kept), &made.model);
  ScaleLabelsOf(&made.model, NamedModel(model));
  SampleSourcePtr trained = NotToTest(options, opened.samples);
  if (validates) trained = SplitSource(trained, options.validation_part).rest;
  made.count_labels = [trained, skips = options.skip_damaged] { return LabelsOf(*trained, skips); };
  trained = WithMetadata(std::move(trained), {});  // the model has them: those of the test
  made.train = std::make_unique<PrefetchIter>(IterOf(std::move(trained), options, /*training=*/true, seed));
  made.test = IterOf(std::move(judged.samples), options, /*training=*/false, 0);
  return made;
}

// What is given to test on is all tested on, and need not be of the kind that was trained on.
DataOptions ToTestAlone(DataOptions options) {
  if (options.on_validation || options.test_data.empty()) return options;
  options.data = std::exchange(options.test_data, "");
  options.test_part = 1;
  return options;
}

TrainingData MakeText(const DataOptions& options, const ModelOptions& model, uint64_t seed) {
  TrainingData made;
  // A model by name without weights has as many classes as the text has characters: each class is one.
  const bool fresh = model.IsByName() && model.weights.empty();
  if (!fresh) made.model = model.Load();
  const TextParts text = ReadText(options, fresh ? nullptr : &made.model);
  made.num_classes = text.vocabulary.size();
  if (const int64_t stated = model.StatedClasses(); fresh && stated > 0 && stated != made.num_classes) {
    throw UsageError(fmt::format("--model: \"{}\" tells {} classes apart, but the text has {} characters, each a class",
                                 model.Name(), stated, made.num_classes));
  }
  if (fresh) made.model = model.Load({}, made.num_classes);
  CheckInputs(made.model, /*labelled=*/true);
  made.model.metadata[kVocabularyKey] = text.vocabulary.characters();
  made.train = std::make_unique<PrefetchIter>(
      PartOf(MakeWindows(text.train, options, made.model, NamedModel(model), /*training=*/true, seed), options));
  made.test = PartOf(MakeWindows(options.validation_part > 0 ? text.validation : text.test, options, made.model,
                                 NamedModel(model), /*training=*/false, 0),
                     options);
  return made;
}

}  // namespace

std::string NamedModel(const ModelOptions& model) { return fmt::format("model \"{}\"", model.Name()); }

std::unique_ptr<DataIter> PartOf(std::unique_ptr<DataIter> iter, const DataOptions& options) {
  if (options.parts == 1) return iter;
  return std::make_unique<PartIter>(std::move(iter), options.part, options.parts);
}

int64_t SkippedBy(const DataIter& iter) {
  const IterState state = iter.SaveState();
  const auto skipped = state.find("skipped");
  return skipped == state.end() ? 0 : skipped->second;
}

TrainingData MakeTrainingData(const DataOptions& options, const ModelOptions& model, uint64_t seed) {
  if (!options.IsSamples() && !options.test_data.empty()) {
    throw UsageError(fmt::format("--test-data: \"{}\" has its own", options.data));
  }
  const DataOptions sharded = options.WithShards();
  TrainingData made = options.IsSamples() ? MakeSamples(sharded, model, seed)
                      : options.IsText()  ? MakeText(sharded, model, seed)
                                          : MakeImageData(sharded, model, seed);
  if (!GivesNumbers(made.model)) ForgetNamesOfNumbers(&made.model);
  model.CheckWeightsFit(made.model);
  CheckClasses(made.model, made.num_classes, model);
  if (made.num_classes > 0) made.train = Counted(std::move(made.train), made.label_counts);
  return made;
}

TestData MakeTestData(const DataOptions& given, const Model& trained, const std::string& name, bool predicting) {
  const bool numbers = GivesNumbers(trained);
  if (!given.IsSamples()) CheckInputs(trained, /*labelled=*/!predicting);
  const DataOptions options = ToTestAlone((numbers ? WithNumbers(given) : given).WithShards());
  if (options.on_validation && options.validation_part == 0) {
    throw UsageError("--validation: there is no --validation-part");
  }
  if (options.IsText()) {
    const TextParts text = ReadText(options, &trained);
    return {.iter = MakeWindows(options.on_validation ? text.validation : text.test, options, trained, name,
                                /*training=*/false, 0)};
  }
  if (options.IsSamples()) {
    const std::vector<std::string> classes = ClassNames(trained);
    if (!GivesByName(options.Tested())) CheckInputs(trained, /*labelled=*/!predicting);
    const OpenOptions open{.sample = SampleShape(trained).value_or(Shape()),
                           .inputs = MayBeInputs(trained),
                           .classes = classes,
                           .predicting = predicting,
                           .one_class = TakesOneClass(trained),
                           .preprocessing = Preprocessing(trained)};
    const SampleSourcePtr samples =
        (options.on_validation ? OpenToValidate(options, open) : OpenToTest(options, open)).samples;
    CheckGiven(*samples, trained, /*labelled=*/!predicting);
    CheckSampleShape(*samples, trained, name);
    const int64_t labels = numbers && !samples->labels().empty() ? CountLabels(*samples, trained, name) : 1;
    TestData made = Noted(IterOf(samples, options, /*training=*/false, 0), TakesLabels(trained), samples, labels);
    made.classes = classes;
    return made;
  }
  if (VocabularySize(trained) > 0) throw UsageError(fmt::format("--data: {} takes text, text:FILE, not images", name));
  ImageSet images = ImagesToTest(options, trained, name);
  return Noted(std::make_unique<ArrayIter>(std::move(images.images), std::move(images.labels),
                                           ArrayIterOptions{.batch_size = options.batch_size}),
               TakesLabels(trained));
}

}  // namespace bindery::cli
