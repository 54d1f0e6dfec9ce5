#include "train/data/open.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "train/data/preprocessing.h"
#include "train/data/records/image_folder.h"
#include "train/data/records/tar.h"
#include "train/data/records/tf_record.h"
#include "train/data/samples/numbers.h"
#include "train/data/settings.h"
#include "train/data/tables/class_labels.h"
#include "train/data/tables/csv.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

const std::vector<std::string>& Kinds() {
  static const std::vector<std::string> kKinds = {"csv", "images", "npy", "npz", "tar", "tfrecord"};
  return kKinds;
}

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
  if (labelled) label.push_back(array("softmax_label", std::move(labels)));
  return SamplesOf({array("data", Fit(std::move(data), options.sample))}, std::move(label));
}

CsvOptions ReadCsvOptions(DataSettings* settings, const OpenOptions& options) {
  CsvOptions csv{.label = settings->Text("label", "-1"), .classes = options.classes};
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
  csv.scaling = ReadScaling(settings, options.training);
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

OpenedData OpenCsv(DataSettings* settings, const Shard& shard, const OpenOptions& options) {
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
  AddFeatures(csv.features, &used);
  AddScaling(table.scaling, &used);
  return {SamplesOf(std::move(table.data), std::move(table.labels), csv.label != "none", options),
          std::move(table.classes), classes, ToText(used), std::move(table.label_names)};
}

const HostTensor& Find(const HostTensorMap& arrays, const std::string& name, const std::string& file) {
  const auto found = arrays.find(name);
  if (found != arrays.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, array] : arrays) names.push_back(known);
  Throw<DataError>("\"{}\": it has no array \"{}\"{}", file, name, NameHint(name, names));
}

OpenedData OpenArrays(DataSettings* settings, const OpenOptions& options) {
  const bool zipped = settings->kind() == "npz";
  const std::string kind = settings->Text("label_kind", "classes");
  const std::string data_name = zipped ? settings->Text("data", "x") : "";
  const std::string label_name = settings->Text(zipped ? "label" : "labels", zipped ? "y" : "none");
  const double scale = settings->Number("scale", 0, 1e-30, 1e30);
  settings->CheckAllRead();
  if (kind != "classes" && kind != "numbers") settings->Fail("\"label_kind\": expected classes or numbers");
  HostTensor data, labels;
  const bool labelled = label_name != "none";
  if (zipped) {
    const HostTensorMap arrays = ReadNpz(settings->path());
    data = Find(arrays, data_name, settings->path());
    if (labelled) labels = Find(arrays, label_name, settings->path());
  } else {
    data = ReadNpy(settings->path());
    if (labelled) labels = ReadNpy(label_name);
  }
  // Bytes are pixels.
  const double divisor = scale > 0 ? scale : data.dtype() == DType::kUInt8 ? 255 : 1;
  HostTensor values = data.Cast(DType::kFloat32);
  if (divisor != 1) {
    for (float& value : values.data<float>()) value /= static_cast<float>(divisor);
  }
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
  return {SamplesOf(std::move(values), labels.Cast(DType::kFloat32), labelled, options), options.classes, classes,
          ToText(used)};
}

Shard ReadShard(DataSettings* settings) {
  try {
    return ParseShard(settings->Text("shard", "0/1"));
  } catch (const DataError& e) {
    settings->Fail("\"shard\": " + e.message());
  }
}

// In the order of their names.
std::vector<std::string> FilesOf(const DataSettings& settings) {
  std::vector<std::string> files;
  for (size_t begin = 0; begin <= settings.path().size();) {
    const size_t end = std::min(settings.path().find(',', begin), settings.path().size());
    const std::string pattern = settings.path().substr(begin, end - begin);
    begin = end + 1;
    if (pattern.find_first_of("*[") == std::string::npos) {
      files.push_back(pattern);
      continue;
    }
    glob_t found{};
    const int result = ::glob(pattern.c_str(), 0, nullptr, &found);
    for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (result != 0) settings.Fail(fmt::format("no file has a name like \"{}\"", pattern));
  }
  return files;
}

// Of data that come as a folder to train on and one to test on, the former may be meant.
void WarnOfPartsAsClasses(const std::vector<std::string>& classes, const std::string& folder) {
  const auto is_part = [](const std::string& name) {
    return std::ranges::any_of(std::vector{"train", "training", "test", "testing", "val", "valid", "validation"},
                               [&](const char* part) { return name == part; });
  };
  const auto train = std::ranges::find_if(classes, [](const std::string& name) { return name.starts_with("train"); });
  if (train == classes.end() || !std::ranges::all_of(classes, is_part)) return;
  LogLine(LogLevel::kWarning,
          fmt::format("folder \"{0}\": the classes are {1}; if those are parts of the data, train on images:{0}/{2}",
                      folder, fmt::join(classes, " and "), *train));
}

// Where the model takes grey ones, and nobody said so.
void WarnOfGrey(const RecordSource& folder, const std::string& path) {
  constexpr int64_t kMost = 16;
  const ColourCount count = CountColours(folder, kMost);
  if (count.coloured == 0) return;
  LogLine(
      LogLevel::kWarning,
      fmt::format("folder \"{}\": of {} images that were looked at, {} are in colour, but the model takes grey ones; "
                  "channels=3 keeps the colours for a model by name, channels=1 says that grey is meant",
                  path, count.seen, count.coloured));
}

OpenedData OpenRecords(DataSettings* settings, const OpenOptions& options) {
  RecordOptions record{
      .image = ReadImageOptions(settings, options.sample), .augment = options.training, .seed = options.seed};
  if (settings->kind() == "images") {
    settings->CheckAllRead();
    const bool anew = options.training && options.classes.empty();  // a model that has classes was trained before
    const RecordSourcePtr folder = OpenImageFolder(
        settings->path(),
        {.classes = options.classes, .unlabelled = options.predicting, .warns = anew || options.predicting});
    record.unlabelled = !folder->Read(0).contains("label");
    if (anew) WarnOfPartsAsClasses(folder->classes(), settings->path());
    if (anew && record.image.channels == 1 && !settings->IsSaid("channels")) WarnOfGrey(*folder, settings->path());
    record.num_classes = record.unlabelled ? 0 : static_cast<int64_t>(folder->classes().size());
    return {SamplesOf(folder, record), folder->classes(), record.num_classes, ToText(PreprocessingOf(record.image))};
  }
  if (options.sample.rank() == 3) record.min_rank = 3;
  record.data = settings->Text("data");
  record.label = settings->Text("label");
  record.unlabelled = record.label == "none";
  record.num_classes = settings->Integer("classes", static_cast<int64_t>(options.classes.size()), 1, kMostClasses);
  record.classes = options.classes;
  settings->CheckAllRead();
  const std::vector<std::string> files = FilesOf(*settings);
  const RecordSourcePtr records = settings->kind() == "tar" ? OpenTars(files) : OpenTfRecords(files);
  if (records->records() == 0) Throw<DataError>("\"{}\": it has no records", settings->path());
  if (record.num_classes == 0 && !record.unlabelled) record.num_classes = CountClasses(*records, record);
  const std::string used = AreImages(*records, record) ? ToText(PreprocessingOf(record.image)) : "";
  return {SamplesOf(records, record), options.classes, record.unlabelled ? 0 : record.num_classes, used};
}

// Whatever a model is trained to answer then, it is right.
void WarnOfOneClass(const OpenedData& opened, const std::string& path) {
  if (opened.num_classes != 1) return;
  LogLine(LogLevel::kWarning,
          fmt::format("\"{}\": all samples are of one class{}: there is nothing to learn from them", path,
                      opened.classes.empty() ? "" : fmt::format(", \"{}\"", opened.classes[0])));
}

// The model's preprocessing, as far as the text and what the model takes leave it open.
SettingTexts Defaults(const DataSettings& settings, const OpenOptions& options) {
  SettingTexts defaults = ForKind(settings.kind(), ParsePreprocessing(options.preprocessing));
  const bool fits = options.sample.rank() == 3 && options.sample.IsKnown();
  for (const char* side : {"rows", "columns"}) {
    if (fits || settings.IsSaid("size")) defaults.erase(side);
  }
  if (fits) defaults.erase("channels");
  if (options.training) defaults.erase("crop");  // which would be a random one, that nobody asked for
  return defaults;
}

}  // namespace

bool IsDataText(std::string_view text) {
  const size_t colon = text.find(':');
  return colon != std::string_view::npos && std::ranges::find(Kinds(), text.substr(0, colon)) != Kinds().end();
}

std::string WithAbsolutePaths(const std::string& text) {
  if (!IsDataText(text)) return text;
  const auto absolute = [](const std::string& path) { return std::filesystem::absolute(path).string(); };
  const size_t colon = text.find(':'), question = std::min(text.find('?'), text.size());
  const std::string kind = text.substr(0, colon), path = text.substr(colon + 1, question - colon - 1);
  std::string result = kind + ":";
  if (kind == "tar" || kind == "tfrecord") {  // several, as FilesOf takes them
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find(',', begin), path.size());
      result += (begin == 0 ? "" : ",") + absolute(path.substr(begin, end - begin));
      begin = end + 1;
    }
  } else {
    result += absolute(path);
  }
  std::string settings = text.substr(question);
  constexpr std::string_view kLabels = "labels=";  // of npy, a file
  for (size_t at = settings.find(kLabels); kind == "npy" && at != std::string::npos; at = settings.find(kLabels, at)) {
    const size_t begin = at + kLabels.size(), end = std::min(settings.find('&', begin), settings.size());
    const std::string file = settings.substr(begin, end - begin);
    const bool is_setting = settings[at - 1] == '?' || settings[at - 1] == '&';
    if (is_setting && file != "none" && !file.empty()) settings.replace(begin, end - begin, absolute(file));
    at = begin;
  }
  return result + settings;
}

std::string WithNumbersAsLabels(const std::string& text) {
  if (!IsDataText(text)) return text;
  const DataSettings settings(text);
  const bool may_be = settings.kind() == "csv" || settings.kind() == "npy" || settings.kind() == "npz";
  if (!may_be || settings.IsSaid("label_kind")) return text;
  return text + (text.find('?') == std::string::npos ? "?" : "&") + "label_kind=numbers";
}

std::vector<std::string> ClassNames(const Model& model) {
  std::vector<std::string> names;
  const auto found = model.metadata.find(kClassesKey);
  if (found == model.metadata.end()) return names;
  std::istringstream lines(found->second);
  for (std::string line; std::getline(lines, line);) names.push_back(line);
  return names;
}

void SetClassNames(const std::vector<std::string>& names, Model* model) {
  std::string& lines = model->metadata[kClassesKey];
  lines.clear();
  for (const std::string& name : names) lines += name + "\n";
}

OpenedData OpenData(const std::string& text, const OpenOptions& options) {
  DataSettings settings(text);
  if (!IsDataText(text)) {
    settings.Fail(fmt::format("unknown kind \"{}\"{}", settings.kind(), NameHint(settings.kind(), Kinds())));
  }
  settings.SetDefaults(Defaults(settings, options));
  const Shard shard = ReadShard(&settings);
  const bool arrays = settings.kind() == "npy" || settings.kind() == "npz";
  OpenedData opened = settings.kind() == "csv" ? OpenCsv(&settings, shard, options)
                      : arrays                 ? OpenArrays(&settings, options)
                                               : OpenRecords(&settings, options);
  if (options.training) WarnOfOneClass(opened, settings.path());
  NoteOtherPreprocessing(text, &settings, ParsePreprocessing(options.preprocessing),
                         ParsePreprocessing(opened.preprocessing));
  // Classes are those of all samples, so that all shards number them alike.
  if (shard.count > 1) {
    std::vector<int64_t> numbers = NumbersOf(shard, opened.samples->samples());
    opened.samples = ChooseSamples(std::move(opened.samples), std::move(numbers));
  }
  Model trained;
  if (!opened.classes.empty()) SetClassNames(opened.classes, &trained);
  SetPreprocessing(opened.preprocessing, &trained);
  opened.samples = WithMetadata(std::move(opened.samples), std::move(trained.metadata));
  return opened;
}

}  // namespace bindery
