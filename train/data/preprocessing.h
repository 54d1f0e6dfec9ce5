// Preprocessing: what decides which numbers a model sees of a sample. It is kept with the model, as settings of a data
// set's text (train/data/open.h), so that whoever opens other data for the model gets these settings by default.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/shape.h"
#include "train/data/images/transform.h"
#include "train/data/settings.h"
#include "train/data/tables/csv.h"
#include "train/data/tables/scaling.h"

namespace bindery {

using SettingTexts = std::map<std::string, std::string>;  // by their names

// From and to NAME=VALUE&... Throws DataError for other text, and for settings that are no preprocessing: who leaves
// out what it does not know gives a model other numbers than it was trained on.
SettingTexts ParsePreprocessing(const std::string& text);
std::string ToText(const SettingTexts& settings);

// The whole image is scaled to `sample`, what the model takes, unless the settings say otherwise.
ImageOptions ReadImageOptions(DataSettings* settings, const Shape& sample);
// What of them counts outside of training.
SettingTexts PreprocessingOf(const ImageOptions& image);

// "missing", a number, if there is one. Throws DataError for what is none.
std::optional<float> ReadMissing(DataSettings* settings);
// "features", names of columns in the order of a model, with commas between; "," "&" "%" "=" and line ends in them are
// %2c and so on. Names of which one is there twice tell nothing: they are not added.
std::vector<std::string> ReadFeatures(DataSettings* settings);
void AddFeatures(const std::vector<std::string>& names, SettingTexts* settings);
// "scale", and its numbers by "mean" and "std" or "min" and "max": of the text, else of the model. In a training they
// may be missing: they come from what it is trained on, with "measure" even if the model has some. Throws DataError for
// damaged ones.
// Those of labels begin with kOfLabels.
inline constexpr const char* kOfLabels = "label_";
ColumnScaling ReadScaling(DataSettings* settings, bool training, const std::string& of = "");
ColumnScaling KnownScaling(const SettingTexts& known, const std::string& of);  // by the model alone
void AddScaling(const ColumnScaling& scaling, SettingTexts* settings, const std::string& of = "");
// Of what an iterator tells a Trainer, whose network is as it is: train/label_scaling.h.
std::string WithoutLabelScaling(const std::string& text);
// "categories", columns with commas between, as NAME:VALUE|VALUE; without values: they are those of the model, or
// measured. By the names or numbers of columns in a text; of a model by the names of its features, or by their places
// where these have none. "none": there are none. Throw DataError for damaged ones.
std::optional<std::vector<CsvCategories>> ReadCategories(DataSettings* settings);  // of the text alone
std::vector<ColumnCategories> KnownCategories(const SettingTexts& known);
void AddCategories(const std::vector<ColumnCategories>& categories, SettingTexts* settings);  // behind the features
// Of a training: logs that columns of the data set `text` are scaled, in `used`, by the numbers in `trained`, which the
// model has from another one.
void NoteScalingOfModel(const std::string& text, const SettingTexts& trained, const SettingTexts& used);
// Without the settings of the model that mean something else for data of this kind: "mean" of columns is none of
// images.
SettingTexts ForKind(const std::string& kind, SettingTexts settings);

// Logs where samples of the data set `text`, made by `used`, differ from those that the model was trained on, made by
// `trained` (empty: nobody knows): where its settings (nullptr: it has none) say so, or its kind has no such settings.
void NoteOtherPreprocessing(const std::string& text, const DataSettings* settings, const SettingTexts& trained,
                            const SettingTexts& used);

}  // namespace bindery
