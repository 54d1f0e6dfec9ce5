// Updater, of tables whose gradients are kept by rows. Two parts of a step, on the first device's worker: before
// anything is updated the touched rows are summed, and looked at; when all else went well they are updated. What a step
// costs follows from the rows that its batch touches, not from the table.
#include "train/updater/rows.h"

#include "engine/kernels/flat.h"
#include "engine/team.h"

namespace bindery {
namespace {

const StoredParameter& TableOf(const ParameterStore& store, int block) {
  return store.parameters()[static_cast<size_t>(store.blocks()[static_cast<size_t>(block)].parameters[0])];
}

}  // namespace

Updater::Table::Table(Updater* updater, int block)
    : updater_(*updater), block_(block), sums_(updater->blocks_[static_cast<size_t>(block)].dtype,
                                               TableOf(updater->blocks_[static_cast<size_t>(block)].stage->store(),
                                                       updater->blocks_[static_cast<size_t>(block)].block)
                                                   .shape.CountFrom(1)) {
  if (updater_.optimizer_->measure() || updater_.average_) {
    Throw("parameter \"{}\": its gradient is kept by rows, but {}: bind without sparse_gradients", piece().name,
          updater_.average_ ? std::string("averages are of all of it")
                            : updater_.optimizer_->name() + " goes by the norm of all of it");
  }
  const BlockState& state = updater_.blocks_[static_cast<size_t>(block)];
  const ParameterStore::Block& stored = StoredBlock(state);
  sources_ = stored.row_gradients;
  now_.resize(sources_.size());
  for (const Tensor& value : EachOnce(stored.values)) {
    values_.push_back(value.var());
    weights_.push_back(value.data());
  }
  for (const Tensor& tensor : state.states[0].slots[0]) states_.push_back(tensor.data());
}

void Updater::Table::AppendSources(std::vector<VarPtr>* vars) const {
  for (const auto& source : sources_) vars->push_back(source->var);
}

void Updater::Table::AppendValues(std::vector<VarPtr>* vars) const {
  vars->insert(vars->end(), values_.begin(), values_.end());
}

void Updater::Table::CheckFinite() const {
  if (flat::AllFinite(sums_.dtype(), sums_.sums(), sums_.elements())) return;
  for (size_t r = 0; r < sums_.numbers().size(); ++r) {
    StepStatus status;
    flat::CheckFinite(sums_.dtype(),
                      static_cast<const char*>(sums_.sums()) + static_cast<int64_t>(r) * sums_.row_bytes(),
                      sums_.width(), 0, sums_.numbers()[r] * sums_.width(), &status);
    if (status.kind == StepStatus::kGood) continue;
    updater_.verdict_->overflowed = true;
    ThrowNotFinite(piece().name, status.element, status.value);
  }
}

void Updater::Table::Sum() {
  int64_t elements = 0;
  for (size_t d = 0; d < sources_.size(); ++d) {
    now_[d] = sources_[d]->now.At();
    elements += now_[d].count * sums_.width();
  }
  const TeamScope team(elements > kSerialElements ? updater_.group_->threads_per_device() : 1);
  sums_.Sum(now_);
  CheckFinite();
  if (updater_.optimizer_->options().clip_norm > 0) {
    const double squares = flat::SumOfSquares(sums_.dtype(), sums_.sums(), sums_.elements());
    updater_.gradients_.Set(block_, 0, {.direction = squares});
  }
}

void Updater::Table::Update() {
  const TeamScope team(sums_.elements() > kSerialElements ? updater_.group_->threads_per_device() : 1);
  update_.Run(*updater_.optimizer_, updater_.ArgsOf(piece(), updater_.Rescale()), sums_, weights_, states_);
}

void Updater::AppendSumsOfRows(std::vector<VarPtr>* gates, StepParts* parts) {
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (!blocks_[b].by_rows) continue;
    tables_.push_back(std::make_shared<Table>(this, static_cast<int>(b)));
    const VarPtr seen = group_->engine()->NewVar();
    Operation sum{.name = "sums of rows", .device = blocks_[b].stage->devices()[0], .reads = *gates, .writes = {seen}};
    tables_.back()->AppendSources(&sum.reads);
    sum.run = [table = tables_.back()](const OpContext&) { table->Sum(); };
    parts->push_back(std::move(sum));
    outcome_.push_back(seen);
    gates->push_back(seen);
  }
}

void Updater::AppendUpdatesOfRows(std::vector<VarPtr> gates, StepParts* parts) {
  gates.insert(gates.end(), outcome_.begin(), outcome_.end());
  for (const std::shared_ptr<Table>& table : tables_) {
    const VarPtr done = group_->engine()->NewVar();
    Operation update{.name = "update of rows", .device = table->device(), .reads = gates, .writes = {done}};
    table->AppendValues(&update.updates);
    update.run = [table](const OpContext&) { table->Update(); };
    parts->push_back(std::move(update));
    outcome_.push_back(done);
    table->AppendValues(&outcome_);
  }
}

}  // namespace bindery
