// The graph of a symbol as TensorBoard draws it. Private to train/events.
#pragma once

#include "symbol/infer.h"
#include "symbol/symbol.h"
#include "train/events/events.pb.h"

namespace bindery {

// Nodes inputs first, with the shapes of their outputs as far as they follow from `shapes`. Two nodes of one name get
// numbers.
events::GraphDef ToGraphDef(const Symbol& symbol, const ShapeMap& shapes);

}  // namespace bindery
