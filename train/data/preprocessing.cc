#include "train/data/preprocessing.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "train/data/open.h"
#include "train/data/tables/names.h"

namespace bindery {
namespace {

const std::vector<std::string>& Names() {
  static const std::vector<std::string> kNames = {"categories", "channels",  "columns",    "crop",      "features",
                                                  "label",      "label_max", "label_mean", "label_min", "label_scale",
                                                  "label_std",  "leave_out", "max",        "mean",      "min",
                                                  "missing",    "resize",    "rows",       "scale",     "std"};
  return kNames;
}

std::string Find(const SettingTexts& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

const std::vector<std::string>& Scales() {
  static const std::vector<std::string> kScales = {"none", "standard", "range"};  // as ColumnScale has them
  return kScales;
}

// What they and their numbers are called in a text; arrays have a scale, too, which is a number.
constexpr const char* kOfScales[] = {"max", "mean", "min", "scale", "std"};

// What is of columns alone; settings of these names of other kinds are something else.
constexpr const char* kOfColumns[] = {"categories", "features", "label", "leave_out"};

// What the numbers of a scale are called.
std::pair<const char*, const char*> NumbersOf(ColumnScale scale) {
  return scale == ColumnScale::kStandard ? std::pair("mean", "std") : std::pair("min", "max");
}

// That of arrays is a number. What is neither is an error where it is read.
bool ScalesColumns(const SettingTexts& settings) {
  const std::string scale = Find(settings, "scale");
  return !scale.empty() && !ParseNumber<double>(scale);
}

// As messages show it, however many columns it is of.
std::string Shown(const std::string& value) {
  constexpr size_t kMost = 60;
  return value.substr(0, kMost) + (value.size() > kMost ? "..." : "");
}

bool AreAll(const std::vector<float>& values, float value) {
  return std::ranges::all_of(values, [&](float v) { return v == value; });
}

}  // namespace

SettingTexts ParsePreprocessing(const std::string& text) {
  SettingTexts settings;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view setting = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(setting.size() + 1, rest.size()));
    const size_t equals = std::min(setting.find('='), setting.size());
    const std::string name(setting.substr(0, equals));
    if (equals == setting.size()) Throw<DataError>("the model's preprocessing \"{}\": expected NAME=VALUE", text);
    if (std::ranges::find(Names(), name) == Names().end()) {
      Throw<DataError>("the model's preprocessing \"{}\": unknown setting \"{}\"{}", text, name,
                       NameHint(name, Names()));
    }
    if (!settings.emplace(name, setting.substr(equals + 1)).second) {
      Throw<DataError>("the model's preprocessing \"{}\": \"{}\" is given twice", text, name);
    }
  }
  return settings;
}

std::string ToText(const SettingTexts& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  return text;
}

ImageOptions ReadImageOptions(DataSettings* settings, const Shape& sample) {
  constexpr int64_t kMostSide = 1 << 14;
  ImageOptions image;
  const bool fits = sample.rank() == 3 && sample.IsKnown();
  image.channels = settings->Integer("channels", fits ? sample[0] : 3, 1, 3);
  const int64_t size = settings->Integer("size", 0, 1, kMostSide);
  image.rows = settings->Integer("rows", size > 0 ? size : fits ? sample[1] : 224, 1, kMostSide);
  image.columns = settings->Integer("columns", size > 0 ? size : fits ? sample[2] : 224, 1, kMostSide);
  image.shorter_side = settings->Integer("resize", 0, 0, kMostSide);
  image.padding = settings->Integer("padding", 0, 0, kMostSide);
  const std::vector<std::string> crops = {"centre", "random", "resized"};
  const std::string crop = settings->Text("crop", "centre");
  const auto found = std::ranges::find(crops, crop);
  if (found == crops.end()) settings->Fail(fmt::format("unknown crop \"{}\"{}", crop, NameHint(crop, crops)));
  image.crop = static_cast<ImageCrop>(found - crops.begin());
  image.mirror = settings->Flag("mirror", false);
  image.brightness = static_cast<float>(settings->Number("brightness", 0, 0, 1));
  image.contrast = static_cast<float>(settings->Number("contrast", 0, 0, 1));
  image.saturation = static_cast<float>(settings->Number("saturation", 0, 0, 1));
  image.mean = settings->Numbers("mean");
  image.deviation = settings->Numbers("std");
  return image;
}

SettingTexts PreprocessingOf(const ImageOptions& image) {
  SettingTexts settings = {{"channels", fmt::format("{}", image.channels)},
                           {"rows", fmt::format("{}", image.rows)},
                           {"columns", fmt::format("{}", image.columns)}};
  if (image.shorter_side > 0) {
    settings["resize"] = fmt::format("{}", image.shorter_side);
  } else if (image.crop == ImageCrop::kRandom) {
    settings["crop"] = "random";  // the size is cut out of the image as it is, elsewhere from its middle
  }
  if (!AreAll(image.mean, 0)) settings["mean"] = fmt::format("{}", fmt::join(image.mean, ","));
  if (!AreAll(image.deviation, 1)) settings["std"] = fmt::format("{}", fmt::join(image.deviation, ","));
  return settings;
}

std::optional<float> ReadMissing(DataSettings* settings) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (!settings->Has("missing")) return std::nullopt;
  return static_cast<float>(settings->Number("missing", 0, -kMost, kMost));
}

std::vector<std::string> ReadFeatures(DataSettings* settings) {
  std::vector<std::string> names = DecodedNames(settings->Text("features"), ',');
  if (std::set(names.begin(), names.end()).size() < names.size()) settings->Fail("\"features\": a name is there twice");
  return names;
}

void AddFeatures(const std::vector<std::string>& names, SettingTexts* settings) {
  if (std::set(names.begin(), names.end()).size() < names.size()) return;
  if (std::string text = CodedNames(names, ','); !text.empty()) (*settings)["features"] = std::move(text);
}

ColumnScaling ReadScaling(DataSettings* settings, bool training, const std::string& of) {
  const std::string scale = settings->Text(of + "scale", "none");
  const auto found = std::ranges::find(Scales(), scale);
  if (found == Scales().end()) {
    settings->Fail(fmt::format("\"{}scale\": expected standard, range or none, got \"{}\"", of, scale));
  }
  ColumnScaling scaling{.scale = static_cast<ColumnScale>(found - Scales().begin())};
  const bool measure = settings->Flag("measure", false);
  if (scaling.scale == ColumnScale::kNone) return scaling;
  const std::string first = of + NumbersOf(scaling.scale).first, second = of + NumbersOf(scaling.scale).second;
  for (const std::string& name : {first, second}) {
    if (!settings->IsSaid(name)) continue;
    if (measure) settings->Fail(fmt::format("\"measure\" is for numbers of the data, but \"{}\" gives others", name));
    if (settings->Text(name).empty()) {
      settings->Fail(fmt::format("\"{}\": expected a number for each column; measure=1 takes those of the data", name));
    }
  }
  if (training && measure) return scaling;
  scaling.first = settings->Numbers<double>(first);
  scaling.second = settings->Numbers<double>(second);
  try {
    CheckScaling(scaling);
  } catch (const DataError& e) {
    settings->Fail(e.message());
  }
  if (!training && !scaling.IsMeasured()) {
    settings->Fail(
        fmt::format("\"{}scale\": its numbers are those of the data that a model was trained on, and there are none; "
                    "{}= and {}= give them, one for each column",
                    of, first, second));
  }
  return scaling;
}

void AddScaling(const ColumnScaling& scaling, SettingTexts* settings, const std::string& of) {
  if (scaling.scale == ColumnScale::kNone) return;
  const auto& [first, second] = NumbersOf(scaling.scale);
  (*settings)[of + "scale"] = Scales()[static_cast<size_t>(scaling.scale)];
  (*settings)[of + first] = fmt::format("{}", fmt::join(scaling.first, ","));
  (*settings)[of + second] = fmt::format("{}", fmt::join(scaling.second, ","));
}

void NoteScalingOfModel(const std::string& text, const SettingTexts& trained, const SettingTexts& used) {
  if (DataSettings settings(text); settings.Flag("measure", false)) return;
  const std::string scale = Find(used, "scale");
  if (!ScalesColumns(used) || scale == Scales()[0]) return;
  for (const char* const name : kOfScales) {
    if (Find(used, name) != Find(trained, name)) return;
  }
  LogLine(LogLevel::kInfo, fmt::format("data \"{}\": scaled by the numbers of the rows that the model was trained on "
                                       "before; measure=1 takes those of these rows",
                                       text));
}

std::string WithoutLabelScaling(const std::string& text) {
  SettingTexts settings = ParsePreprocessing(text);
  std::erase_if(settings, [](const auto& setting) { return setting.first.starts_with(kOfLabels); });
  return ToText(settings);
}

ColumnScaling KnownScaling(const SettingTexts& known, const std::string& of) {
  DataSettings settings("csv:the model's");
  settings.SetDefaults(known);
  return ReadScaling(&settings, /*training=*/false, of);
}

SettingTexts ForKind(const std::string& kind, SettingTexts settings) {
  const bool is_table = kind == "csv";
  for (const char* const name : kOfColumns) {
    if (!is_table) settings.erase(name);
  }
  if (ScalesColumns(settings) == is_table) return settings;
  for (const char* const name : kOfScales) settings.erase(name);
  return settings;
}

ColumnScaling ScalingOfColumns(const Model& model) {
  const SettingTexts known = ParsePreprocessing(Preprocessing(model));
  return ScalesColumns(known) ? KnownScaling(known, "") : ColumnScaling();
}

ColumnScaling ScalingOfLabels(const Model& model) {
  return KnownScaling(ParsePreprocessing(Preprocessing(model)), kOfLabels);
}

std::optional<float> MissingOfColumns(const Model& model) {
  DataSettings settings("csv:the model's");
  settings.SetDefaults(ParsePreprocessing(Preprocessing(model)));
  return ReadMissing(&settings);
}

void NoteOtherPreprocessing(const std::string& text, const DataSettings* settings, const SettingTexts& trained,
                            const SettingTexts& used) {
  if (trained.empty()) return;
  std::vector<std::string> here, there;
  for (const std::string& name : Names()) {
    const std::string now = Find(used, name), then = Find(trained, name);
    const bool is_side = name == "rows" || name == "columns";
    const bool of_label = name.starts_with("label");  // which is nothing that the model sees
    const bool said =
        settings != nullptr && !of_label && (settings->IsSaid(name) || (is_side && settings->IsSaid("size")));
    const bool lost =
        now.empty() && (std::ranges::find(kOfScales, name) != std::end(kOfScales) || name == "categories");
    const bool renamed = (name == "features" || name == "label") && !now.empty() && !then.empty();
    if (now == then || !(said || lost || renamed)) continue;
    const auto describe = [&](const std::string& value) {
      return value.empty() ? "no " + name : fmt::format("{}={}", name, Shown(value));
    };
    here.push_back(describe(now));
    there.push_back(describe(then));
  }
  if (here.empty()) return;
  LogLine(LogLevel::kInfo, fmt::format("data \"{}\": {}, but the model was trained with {}", text,
                                       fmt::join(here, ", "), fmt::join(there, ", ")));
}

std::string Preprocessing(const Model& model) {
  const auto found = model.metadata.find(kPreprocessingKey);
  return found == model.metadata.end() ? "" : found->second;
}

void SetPreprocessing(const std::string& settings, Model* model) {
  if (settings.empty()) {
    model->metadata.erase(kPreprocessingKey);
  } else {
    model->metadata[kPreprocessingKey] = settings;
  }
}

ImageOptions PreprocessingOfImages(const Model& model) {
  const SettingTexts known = ParsePreprocessing(Preprocessing(model));
  if (!known.contains("rows") || !known.contains("columns") || !known.contains("channels")) {
    Throw<DataError>("the model does not say how the images that it was trained on were made (\"{}\" in its metadata)",
                     kPreprocessingKey);
  }
  DataSettings settings("images:the model's");
  settings.SetDefaults(known);
  return ReadImageOptions(&settings, {});
}

}  // namespace bindery
