#include "train/data/open_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "train/data/preprocessing.h"
#include "train/data/tables/class_labels.h"
#include "train/data/tables/csv.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

constexpr const char* kLabelName = "softmax_label";

// Rows as a model that takes images takes them.
HostTensor Fit(HostTensor values, const Shape& sample) {
  if (values.shape().rank() == 0) return values;
  const int rank = values.shape().rank() - 1;
  if (sample.rank() != 3 || rank < 1 || rank > 2) return values;
  const Shape image = values.shape().Insert(1, 1);
  return values.Reshape(rank == 2 ? image : image.Insert(1, 1));
}

SampleSourcePtr SamplesOf(HostTensor data, HostTensor labels, bool labelled, const OpenOptions& options) {
  const auto array = [](const char* name, HostTensor values) {
    return ArrayData{name, std::make_shared<const HostTensor>(std::move(values)), ""};
  };
  std::vector<ArrayData> label;
  if (labelled) label.push_back(array(kLabelName, std::move(labels)));
  return SamplesOf({array("data", Fit(std::move(data), options.sample))}, std::move(label));
}

CsvOptions ReadCsvOptions(DataSettings* settings, const OpenOptions& options) {
  CsvOptions csv{.label = settings->Text("label", "-1"), .classes = options.classes};
  csv.label_of_model = !settings->IsSaid("label") && settings->Has("label");
  // A model may be tuned to other columns, and what is predicted need not be known.
  if (csv.label_of_model && options.training) csv.label_otherwise = "-1";
  if (csv.label_of_model && options.predicting) csv.label_otherwise = "none";
  const std::string separator = settings->Text("separator", ","), missing = settings->Text("missing", "error");
  const std::string label_kind = settings->Text("label_kind", "classes");
  if (separator != "tab" && separator.size() != 1) settings->Fail("\"separator\": expected one character, or tab");
  csv.separator = separator == "tab" ? '\t' : separator[0];
  if (settings->Has("header")) csv.header = settings->Flag("header", true);
  if (label_kind != "classes" && label_kind != "numbers") settings->Fail("\"label_kind\": expected classes or numbers");
  csv.label_is_number = label_kind == "numbers";
  if (missing == "leave-out") {
    csv.missing = CsvMissing::kLeaveOut;
  } else if (missing != "error") {
    if (!ParseNumber<double>(missing)) {
      settings->Fail(fmt::format("\"missing\": expected error, leave-out or a number, got \"{}\"", missing));
    }
    csv.missing = CsvMissing::kValue;
    csv.missing_value = ReadMissing(settings).value();
  }
  // What a model's training left out may not be there at all in other files.
  csv.leave_out = settings->Text("leave_out", "none");
  csv.may_lack_left_out = !settings->IsSaid("leave_out");
  csv.features = ReadFeatures(settings);
  csv.may_have_others = options.training && !settings->IsSaid("features");  // a model may be tuned to other columns
  const SettingTexts known = ParsePreprocessing(options.preprocessing);
  csv.categories = ReadCategories(settings);
  csv.known_categories = KnownCategories(known);
  csv.measures_categories = options.training;
  csv.scaling = ReadScaling(settings, options.training);
  if (settings->Flag("measure", false)) {
    const bool has_categories = csv.categories ? !csv.categories->empty() : !csv.known_categories.empty();
    const bool scales = csv.scaling.scale != ColumnScale::kNone || settings->Text("label_scale", "none") != "none";
    if (!scales && !has_categories) {
      settings->Fail(
          "\"measure\": there is nothing to measure without scale=standard or scale=range, categories= or "
          "label_scale=");
    }
    if (options.training) {
      for (ColumnCategories& one : csv.known_categories) one.values.clear();
    }
  }
  csv.measure_others = std::ranges::none_of(std::vector{"mean", "std", "min", "max"},
                                            [&](const char* name) { return settings->IsSaid(name); });
  settings->CheckAllRead();
  return csv;
}

// Of the samples of a table, those that are trained on.
std::vector<int64_t> TrainedOn(const Shard& shard, const std::vector<double>& held_back, int64_t rows) {
  std::vector<int64_t> numbers = NumbersOf(shard, rows);
  for (const double part : held_back) {
    std::vector<int64_t> rest;
    for (const int64_t i : SplitByPart(std::ssize(numbers), part).rest) rest.push_back(numbers[static_cast<size_t>(i)]);
    numbers = std::move(rest);
  }
  return numbers;
}

// How labels that are numbers are scaled where a network learns them. Outside of a training it is as the model has it,
// whatever the text says: it is the network that gives numbers in their own unit again.
ColumnScaling ReadLabelScaling(DataSettings* settings, const OpenOptions& options) {
  const ColumnScaling said = ReadScaling(settings, /*training=*/true, kOfLabels);
  return options.training ? said : KnownScaling(ParsePreprocessing(options.preprocessing), kOfLabels);
}

// The same with its numbers, of labels (N, ...). None of classes, and where there are no labels.
ColumnScaling MeasureLabels(ColumnScaling scaling, const HostTensor& labels, bool are_numbers, const Shard& shard,
                            DataSettings* settings, const OpenOptions& options) {
  if (scaling.scale == ColumnScale::kNone || !options.training) return scaling;
  if (!are_numbers) {
    if (!settings->IsSaid("label_scale")) return {};
    settings->Fail("\"label_scale\" is for labels that are numbers (label_kind=numbers)");
  }
  if (labels.shape().rank() == 0) settings->Fail("the labels are one number, not one for each sample");
  const int64_t rows = labels.shape()[0], columns = labels.shape().CountFrom(1);
  if (columns == 0) settings->Fail(fmt::format("labels {} are no numbers that could be scaled", labels.shape()));
  for (int64_t i = 0; i < labels.elements(); ++i) {
    if (!std::isinf(labels.At(i))) continue;
    settings->Fail(fmt::format("\"label_scale\": a label of sample {} is {}", i / columns, labels.At(i)));
  }
  if (!scaling.IsMeasured()) {
    try {
      return MeasureColumns(labels.Reshape({rows, columns}), scaling.scale, TrainedOn(shard, options.held_back, rows));
    } catch (const DataError& e) {
      settings->Fail(e.message());
    }
  }
  if (std::ssize(scaling.first) == columns) return scaling;
  settings->Fail(
      fmt::format("\"label_scale\" has numbers for {} labels, but a sample has {}; measure=1 takes numbers of these",
                  scaling.first.size(), columns));
}

// Who has prices in the last column gets a class for each price, unless they say otherwise.
void WarnOfNumbersAsClasses(const CsvTable& table, const std::string& path) {
  constexpr size_t kMany = 20;  // of whole numbers, which may well be names
  bool whole = true;
  for (const std::string& name : table.classes) {
    const std::optional<double> number = ParseNumber<double>(name);
    if (!number) return;
    whole = whole && std::floor(*number) == *number;
  }
  const size_t count = table.classes.size(), rows = static_cast<size_t>(table.data.shape()[0]);
  if (count == 0 || (whole && (count < kMany || 2 * count < rows))) return;
  LogLine(
      LogLevel::kWarning,
      fmt::format("\"{}\": the labels, numbers like {}, are taken for {} classes; label_kind=numbers takes them for "
                  "numbers, which a model with head=regression learns",
                  path, table.classes[count / 2], count));
}

const HostTensor& Find(const HostTensorMap& arrays, const std::string& name, const std::string& file) {
  const auto found = arrays.find(name);
  if (found != arrays.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, array] : arrays) names.push_back(known);
  Throw<DataError>("\"{}\": it has no array \"{}\"{}", file, name, NameHint(name, names));
}

// For an input of floats, divided by `scale`, if it is not 0: bytes are pixels. What others take stays as it is.
std::shared_ptr<const HostTensor> AsFloats(const HostTensor& values, const SampleArray& input, double scale,
                                           const std::string& file) {
  const bool scales = IsFloat(input.dtype), pixels = values.dtype() == DType::kUInt8;
  const double divisor = !scales ? 1 : scale > 0 ? scale : pixels ? 255 : 1;
  HostTensor floats = values.Cast(DType::kFloat32);
  const bool must_stay = !scales && !IsFloat(values.dtype());
  for (int64_t i = 0; must_stay && i < values.elements(); ++i) {
    const double value = values.At(i);
    if (value == floats.At(i) && std::abs(value) < 0x1p53) continue;
    Throw<DataError>("\"{}\": input \"{}\" takes {}, but samples are kept as float32, which has no {}", file,
                     input.name, input.dtype, value);
  }
  if (divisor != 1) {
    for (float& value : floats.data<float>()) value /= static_cast<float>(divisor);
  }
  return std::make_shared<const HostTensor>(std::move(floats));
}

}  // namespace

OpenedData OpenCsv(DataSettings* settings, const Shard& shard, const OpenOptions& options) {
  const ColumnScaling label_scaling = ReadLabelScaling(settings, options);
  CsvOptions csv = ReadCsvOptions(settings, options);
  csv.measured = [&](int64_t rows) { return TrainedOn(shard, options.held_back, rows); };
  CsvTable table = ReadCsv(settings->path(), csv);
  if (csv.scaling.IsMeasured() && table.scaling != csv.scaling) {
    LogLine(LogLevel::kInfo, fmt::format("\"{}\": its columns are not those that the model was trained on: they are "
                                         "scaled by numbers of these rows",
                                         settings->path()));
  }
  if (options.training && options.classes.empty()) WarnOfNumbersAsClasses(table, settings->path());
  const auto classes = static_cast<int64_t>(table.classes.size());
  SettingTexts used;
  if (csv.missing == CsvMissing::kValue) used["missing"] = fmt::format("{}", csv.missing_value);
  const std::string leave_out = csv.may_lack_left_out ? csv.leave_out : table.leave_out;
  if (leave_out != "none") used["leave_out"] = leave_out;
  if (table.has_header) csv.features = table.columns;
  if (csv.features.size() != table.columns.size()) csv.features.clear();  // the model's, and these are others
  AddFeatures(csv.features, &used);
  AddCategories(table.categories, &used);
  AddScaling(table.scaling, &used);
  const bool labelled = table.label != "none";
  if (labelled && table.label != "-1") used["label"] = table.label;
  AddScaling(MeasureLabels(label_scaling, table.labels, labelled && csv.label_is_number, shard, settings, options),
             &used, kOfLabels);
  return {SamplesOf(std::move(table.data), std::move(table.labels), labelled, options), std::move(table.classes),
          classes, ToText(used), std::move(table.label_names)};
}

OpenedData OpenArrays(DataSettings* settings, const Shard& shard, const OpenOptions& options) {
  const bool zipped = settings->kind() == "npz";
  const std::string kind = settings->Text("label_kind", "classes");
  const bool says_data = settings->IsSaid("data"), says_label = settings->IsSaid("label");
  const std::string data_name = zipped ? settings->Text("data", "x") : "";
  std::string label_name = settings->Text(zipped ? "label" : "labels", zipped ? "y" : "none");
  const double scale = settings->Number("scale", 0, 1e-30, 1e30);
  const ColumnScaling label_scaling = ReadLabelScaling(settings, options);
  if (settings->Flag("measure", false) && settings->Text("label_scale", "none") == "none") {
    settings->Fail("\"measure\": there is nothing to measure without label_scale=");
  }
  settings->CheckAllRead();
  if (kind != "classes" && kind != "numbers") settings->Fail("\"label_kind\": expected classes or numbers");
  const HostTensorMap arrays = zipped ? ReadNpz(settings->path()) : HostTensorMap();
  std::vector<ArrayData> data;
  const auto add = [&](const SampleArray& input, const HostTensor& values) {
    const Shape sample = input.name == "data" ? options.sample : Shape();
    data.push_back({input.name, AsFloats(Fit(values, sample), input, scale, settings->path()), ""});
  };
  for (const SampleArray& input : options.inputs) {
    if (!says_data && arrays.contains(input.name)) add(input, arrays.at(input.name));
  }
  if (data.empty()) {
    const auto known = std::ranges::find(options.inputs, "data", &SampleArray::name);
    add(known != options.inputs.end() ? *known : SampleArray{"data", {}},
        zipped ? Find(arrays, data_name, settings->path()) : ReadNpy(settings->path()));
  }
  if (!says_label && arrays.contains(kLabelName)) label_name = kLabelName;
  if (zipped && !says_label && options.predicting && !arrays.contains(label_name)) label_name = "none";
  const bool labelled = label_name != "none";
  HostTensor labels;
  if (labelled) labels = zipped ? Find(arrays, label_name, settings->path()) : ReadNpy(label_name);
  int64_t classes = 0;
  if (labelled && kind == "classes") {
    const std::string name = fmt::format("\"{}\"", zipped ? settings->path() + ":" + label_name : label_name);
    const Shape shape = labels.shape();
    const std::optional<HostTensor> numbers = options.one_class ? FromOneHot(labels) : std::nullopt;
    if (numbers) labels = *numbers;
    if (options.one_class && shape.rank() == 2 && shape[1] == 1) labels = labels.Reshape(shape.Erase(1));
    const int64_t found = CheckClasses(labels, static_cast<int64_t>(options.classes.size()), name);
    classes = numbers ? shape[1] : found;
  }
  // What bytes are divided by is a matter of the file, unless the settings say so.
  SettingTexts used;
  if (scale > 0) used["scale"] = fmt::format("{}", scale);
  AddScaling(MeasureLabels(label_scaling, labels, labelled && kind == "numbers", shard, settings, options), &used,
             kOfLabels);
  std::vector<ArrayData> label;
  if (labelled) label.push_back({kLabelName, std::make_shared<const HostTensor>(labels.Cast(DType::kFloat32)), ""});
  return {SamplesOf(std::move(data), std::move(label)), options.classes, classes, ToText(used)};
}

}  // namespace bindery
