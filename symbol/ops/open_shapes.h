// What is known of a shape where extents, or the numbers that it is made by, are open: its rank at least, and the
// extents that follow from nothing else. Nothing is assumed: an extent that is not known may be any. For the `infer`
// rules of operators that are made of others, and are made only when everything is known.
#pragma once

#include <optional>
#include <vector>

#include "symbol/infer_context.h"

namespace bindery::rule {

// Numbers, as far as they are known; how many there are, is.
using OpenNumbers = std::vector<std::optional<int64_t>>;
OpenNumbers Known(const std::vector<int64_t>& numbers);
// Extents, as they are with this batch.
OpenNumbers Known(const std::vector<int64_t>& fixed, const std::vector<int64_t>& batches, std::optional<int64_t> batch);
// Of an input with at most one axis; no value if it is not known how many there are, or they are more than a few.
std::optional<OpenNumbers> NumbersIn(const InferContext::Value& input);

// Each of data's shape; no value where not even the rank is known.
using OpenShape = std::optional<Shape>;
OpenShape OpenExpandDims(const Shape& data, const OpenNumbers& axes);
OpenShape OpenSqueeze(const Shape& data, const OpenNumbers& axes);
OpenShape OpenExpand(const Shape& data, const OpenNumbers& shape);
OpenShape OpenTile(const Shape& data, const OpenNumbers& repeats);
// Alike but for these axes; where one is open, any may be it.
OpenShape OpenAxes(const Shape& data, const OpenNumbers& axes);
// Of whatever data there is.
OpenShape OpenReshape(const OpenShape& data, const OpenNumbers& shape, bool allow_zero);

}  // namespace bindery::rule
