// Updater, of gradients that a store of the user's sums, parameter by parameter: what it gives for them is put together
// as the gradients lie, and a step goes on with that as with the gradients of one device.
#include <algorithm>

#include "engine/backend.h"
#include "engine/kernels/flat.h"
#include "kvstore/exchanged_value.h"
#include "train/updater/updater.h"

namespace bindery {

void Updater::AppendSumsOfStore(BlockState* block, Device home, StepParts* parts) {
  const ParameterStore::Block& stored = StoredBlock(*block);
  if (block->by_rows) {
    Throw(
        "parameter \"{}\": its gradient is kept by rows, but a store of one's own sums whole gradients: bind without "
        "sparse_gradients",
        block->pieces[0].name);
  }
  if (block->exchanged.empty()) {  // otherwise those of the updater whose steps these are
    const std::vector<std::string>& names = group_->param_names();
    for (const Piece& piece : block->pieces) {
      // What the next forward needs first comes first.
      const auto place = std::ranges::find(names, piece.name) - names.begin();
      std::vector<Tensor> gradients;
      for (const Tensor& gradient : stored.gradients) gradients.push_back(gradient.Slice(piece.begin, piece.end));
      block->exchanged.push_back(std::make_shared<const ExchangedValue>(store_.get(), piece.name, std::move(gradients),
                                                                        home, -static_cast<int>(place)));
    }
  }
  block->sum = Tensor(group_->engine(), home, block->dtype, Shape{stored.elements});  // what no piece has stays zero
  // A failed part fails the sum, which fails the step.
  Operation join{.name = "sums of the store", .device = home, .writes = {block->sum.var()}};
  for (const auto& value : block->exchanged) join.reads.push_back(value->sum().var());
  join.run = [sum = block->sum, exchanged = block->exchanged, pieces = block->pieces](const OpContext&) {
    const int64_t width = SizeOf(sum.dtype());
    for (size_t i = 0; i < pieces.size(); ++i) {
      flat::Copy(exchanged[i]->sum().data(), static_cast<char*>(sum.data()) + pieces[i].begin * width,
                 exchanged[i]->sum().bytes());
    }
  };
  parts->push_back(std::move(join));
}

}  // namespace bindery
