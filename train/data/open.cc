#include "train/data/open.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "train/data/open_tables.h"
#include "train/data/preprocessing.h"
#include "train/data/records/image_folder.h"
#include "train/data/records/tar.h"
#include "train/data/records/tf_record.h"
#include "train/data/samples/numbers.h"
#include "train/data/settings.h"
#include "train/data/tables/class_labels.h"

namespace bindery {
namespace {

const std::vector<std::string>& Kinds() {
  static const std::vector<std::string> kKinds = {"csv", "images", "npy", "npz", "tar", "tfrecord"};
  return kKinds;
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
                      : arrays                 ? OpenArrays(&settings, shard, options)
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
  SetPreprocessing(WithoutLabelScaling(opened.preprocessing), &trained);
  opened.samples = WithMetadata(std::move(opened.samples), std::move(trained.metadata));
  return opened;
}

}  // namespace bindery
