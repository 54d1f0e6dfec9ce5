// Graphs in messages.
#pragma once

#include <functional>

#include "proto/model.pb.h"
#include "symbol/model.h"
#include "symbol/model/source.h"
#include "symbol/model/tensor.h"
#include "symbol/symbol.h"

namespace bindery {

// Writes every input, and the attributes that differ from their default.
void WriteGraph(const Symbol& symbol, TensorWriter* tensors, proto::Graph* message);

// Makes the symbol of a message that nobody has checked; throws ModelError. Tensors of attributes come from
// `read_tensor`, called in the message's order.
using ReadTensorFn = std::function<TensorPtr(const proto::Tensor&)>;
Symbol ReadGraph(const proto::Graph& message, const ModelLimits& limits, const ModelSource& source,
                 const ReadTensorFn& read_tensor);

}  // namespace bindery
