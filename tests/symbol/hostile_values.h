// What somebody who means harm writes into a file: attributes and shapes for walks over all operators.
#pragma once

#include <vector>

#include "base/shape.h"
#include "symbol/attrs.h"

namespace bindery {

// Odd values in the place of a usual one: of its type, at and beyond the ends of what makes sense, and of other types.
std::vector<AttrValue> HostileValues(const AttrValue& usual);
// Extents of 0, of 1 and of all that an int64 holds, in shapes of every rank; some are not known.
const std::vector<Shape>& HostileShapes();

}  // namespace bindery
