// A model for programs to read: what the page about it says, in the form of docs/model.schema.json.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/pages/model_page.h"

namespace bindery {

inline constexpr int kModelSchema = 1;  // another number when what is there changes its meaning

// `shapes` as of ModelPage. The counts of all parameters are those of CountParameters. Throws ShapeError for a
// parameter of unknown shape.
nlohmann::json ModelJson(const Symbol& symbol, const ShapeMap& shapes, const ModelPageOptions& options);

}  // namespace bindery
