// Categories of columns, as settings have them.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "base/split_text.h"
#include "train/data/open.h"
#include "train/data/preprocessing.h"
#include "train/data/tables/names.h"

namespace bindery {
namespace {

constexpr const char* kCategories = "categories";

std::vector<CsvCategories> ParseCategories(const DataSettings& settings, const std::string& text) {
  std::vector<CsvCategories> categories;
  if (text.empty() || text == "none") return categories;
  for (const std::string_view written : SplitText(text, ',')) {
    const size_t colon = std::min(written.find(':'), written.size());
    CsvCategories& one = categories.emplace_back(CsvCategories{.column = DecodedName(written.substr(0, colon))});
    if (colon == written.size()) continue;
    one.values = DecodedNames(written.substr(colon + 1), '|');
    const std::set<std::string> different(one.values.begin(), one.values.end());
    if (one.values.empty() || different.contains("")) {
      settings.Fail(fmt::format("\"{}\": column \"{}\" has a category without a name", kCategories, one.column));
    }
    if (different.size() < one.values.size()) {
      settings.Fail(fmt::format("\"{}\": column \"{}\" has a category twice", kCategories, one.column));
    }
    if (std::ssize(one.values) > kMostCategories) {
      settings.Fail(fmt::format("\"{}\": column \"{}\" has more than {}", kCategories, one.column, kMostCategories));
    }
  }
  return categories;
}

}  // namespace

std::optional<std::vector<CsvCategories>> ReadCategories(DataSettings* settings) {
  const std::string text = settings->Text(kCategories);
  if (!settings->IsSaid(kCategories)) return std::nullopt;
  return ParseCategories(*settings, text);
}

std::vector<ColumnCategories> KnownCategories(const SettingTexts& known) {
  const auto found = known.find(kCategories);
  std::vector<ColumnCategories> categories;
  if (found == known.end()) return categories;
  DataSettings settings("csv:the model's");
  settings.SetDefaults(known);
  const std::vector<std::string> features = ReadFeatures(&settings);
  for (CsvCategories& one : ParseCategories(settings, found->second)) {
    const auto named = std::ranges::find(features, one.column);
    const std::optional<int64_t> number = ParseNumber<int64_t>(one.column);
    if (named == features.end() && !(features.empty() && number && *number >= 0)) {
      settings.Fail(fmt::format("\"{}\": there is no feature \"{}\"{}", kCategories, one.column,
                                features.empty() ? "" : NameHint(one.column, features)));
    }
    const int64_t place = named == features.end() ? *number : named - features.begin();
    if (one.values.empty()) {
      settings.Fail(fmt::format("\"{}\": feature \"{}\" has none", kCategories, one.column));
    }
    if (std::ranges::find(categories, place, &ColumnCategories::place) != categories.end()) {
      settings.Fail(fmt::format("\"{}\": feature \"{}\" has them twice", kCategories, one.column));
    }
    categories.push_back({.place = place, .values = std::move(one.values)});
  }
  std::ranges::sort(categories, {}, &ColumnCategories::place);
  return categories;
}

void AddCategories(const std::vector<ColumnCategories>& categories, SettingTexts* settings) {
  const auto found = settings->find("features");
  const std::vector<std::string> features =
      found == settings->end() ? std::vector<std::string>() : DecodedNames(found->second, ',');
  std::string text;
  for (const auto& [place, values] : categories) {
    const std::string name = features.empty() ? std::to_string(place) : CodedName(features[static_cast<size_t>(place)]);
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", name, CodedNames(values, '|'));
  }
  if (!text.empty()) (*settings)[kCategories] = std::move(text);
}

std::vector<ColumnCategories> CategoriesOfColumns(const Model& model) {
  return KnownCategories(ParsePreprocessing(Preprocessing(model)));
}

}  // namespace bindery
