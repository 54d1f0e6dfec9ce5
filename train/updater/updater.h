// Updater: one training step of a group, whatever its replicas are made of (executor/executor_group.h). In this order,
// always: forward and backward on every device -> gradients summed over the devices in one fixed order -> are the sums
// finite? -> norms, where the optimizer goes by them -> update -> new parameters on every device.
//
// Where the host can address all devices' memory, the sum, the update and the spreading are one pass over memory,
// shared out among the devices' workers (KVStore::MakeReduction). Where it cannot, each device sums and updates a range
// of the elements and keeps the optimizer's state of that range (train/updater/devices.cc); unless some kind of device
// has no kernel for the rule: then the host does it all, by copies.
//
// A step is committed or not, as a whole. If anything in it failed, if a gradient is not finite, or if what the caller
// hangs on `gate()` failed, then no parameter, no optimizer state and no running statistic changes, and neither do they
// in the steps after it, which may be in flight already, until Forgive(). So the host need not wait for a step before
// it pushes the next one; WaitFor(step) tells what became of it.
//
// Divisor. Loss heads with normalisation `null` give sums over samples, so the update divides once by the samples of
// the whole step: all devices, all micro-batches. Heads that normalise themselves (`batch`, `valid`), and those of
// means (IsMean), are not divided again. An explicit rescale of the optimizer wins. What several micro-batches give
// that divide by their own counts (`valid`, means) is divided by their number, whoever rescales, so that a step is as
// long as on one batch: a mean of their means, which is that of all where their counts are equal.
//
// Loss scale (train/loss_scale.h). The group's symbol is ScaleLosses(symbol); the update divides by the scale first of
// all. A step that overflows a dynamic one is not committed; whoever waits for it by Finish goes on at a lower scale.
// Steps that were pushed meanwhile did nothing, as after any failure, and are to be done again.
//
// Blocks (train/updater/blocks.h): the same bits on any number of devices. The batch is cut into blocks of so many
// samples, and their gradients are summed in the order of a tree, before the update.
//
// Gradients that are kept by rows (docs/sparse.md): only rows that a batch touched are updated, with their states: what
// a rule does where the gradient is zero (decay, momentum) waits until a row is touched.
//
// Processes (kvstore/processes.h). A step is one of all processes: of the samples of all of them, and committed by all
// or by none. Whoever has failed says so in the exchange, and an exchange that does not come about fails the step. Each
// process updates ranges of the elements of its own (train/updater/process_update.cc).
//
// One optimizer state, not one per device or process: each element's is on one of them. Nor one per group, where groups
// share their parameters (UpdaterOptions::steps_of). Thread safety: one thread at a time, of updaters that share steps,
// too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/data_parallel_executor_group.h"
#include "executor/executor_group.h"
#include "kvstore/kvstore.h"
#include "kvstore/process_exchange.h"
#include "train/loss_scale.h"
#include "train/optimizers/averaging.h"
#include "train/optimizers/multipliers.h"
#include "train/optimizers/optimizer.h"
#include "train/optimizers/schedule.h"
#include "train/updater/blocks.h"
#include "train/updater/range_squares.h"

namespace bindery {

class ExchangedValue;
class StepMeasurement;
class Updater;

struct UpdaterOptions {
  std::shared_ptr<const Optimizer> optimizer = nullptr;  // default: Sgd()
  SchedulePtr schedule = nullptr;                        // default: the optimizer's learning rate, constant
  KVStoreType kvstore = KVStoreType::kDevice;
  // A store of one's own, which sums the gradients, parameter by parameter, and before the update, which is the host's
  // then, by copies where it cannot address the devices' memory. Throws Error where gradients are kept by rows.
  StoreFactory store = {};
  // Whose steps are one: each makes the gradients of its own samples, and updates by the sum over all, in the host's
  // memory. All have a group of the same graph with equal parameters, laid out alike. Throws Error where they are not,
  // where nothing is trained, with a store, with blocks, with steps_of, for gradients by rows, and for parameters of
  // other types than float32 and float64; ModelError where heads disagree on who divides.
  ProcessesPtr processes = nullptr;
  std::optional<LossScaling> loss_scale = {};
  std::optional<Averaging> average = {};
  MultiplierList multipliers = {};  // in place of what the graph says
  // Not 0: batches are computed in blocks of that many samples, of a group that was bound by ForBlocks; devices get
  // blocks by `workload`, empty: equally many. Norms are computed by the first device alone, as with KVStoreType::kLocal.
  int64_t block = 0;
  std::vector<double> workload = {};
  // Goes on with this updater's steps, whose group's parameters the group shares (GroupOptions::shared_group): there is
  // one count of steps, one optimizer and one state of it, whoever's step it is. A step updates what its own group
  // trains, which the other's must too; all else stays as it is, with its state. All other options are the other's.
  // Throws Error unless that is `for_several_groups`.
  Updater* steps_of = nullptr;
  bool for_several_groups = false;  // the host updates, by copies where it cannot address the devices' memory
};

class Updater {
 public:
  static constexpr size_t kMaxDevices = 64;

  // The group must be bound for training and outlive the updater. Throws Error if heads disagree on who divides, or one
  // is a Mean over samples, and the optimizer has no explicit rescale, if a parameter's dtype has no update rule, for
  // too many devices, for a loss scale where no loss is scaled, and for gradients by rows where the optimizer goes by
  // norms of whole parameters or averages are kept.
  Updater(ExecutorGroup* group, const UpdaterOptions& options = {});
  ~Updater();  // waits for what it pushed, so not from inside an operation, where nobody can

  // One step on one batch: Forgive, Compute, then Apply. Asynchronous; but with a dynamic loss scale it first Finishes
  // the step before, whose error it throws. An error travels to whoever reads the outputs,
  // and to WaitFor; parameters and state stay as they were, and step() counts on. In a group bound with GradReq::kAdd
  // gradients are zeroed first.
  void Update(const BatchPtr& batch);
  // One step on several micro-batches, one after the other: as one batch of all their samples would be. The group must
  // be bound with GradReq::kAdd; gradients are zeroed first. Throws DataError or ShapeError if one does not fit, and
  // Error for more than StepBlock::kPrediction, and for several where the updater computes in blocks, or where some
  // heads divide by what a micro-batch has and others do not; nothing has changed then.
  void Update(std::span<const BatchPtr> micro_batches);
  // The halves alone: forward and backward of the next step; then reduces the gradients that are there, of `samples`
  // samples in all (throws Error unless >= 1), and updates. Those that were not made by Compute count as of one batch.
  void Compute(const BatchPtr& batch);
  void Apply(int64_t samples);
  // The first half of a step on several micro-batches; returns their samples. `measure(i)`, where given, is called when
  // micro-batch i has been pushed, whose outputs then are the group's, and before the next one. `checked`: the values
  // of all have been looked at (ExecutorGroup::CheckBatch). Throws what Update does.
  int64_t Compute(std::span<const BatchPtr> micro_batches, const std::function<void(size_t)>& measure = {},
                  bool checked = false);
  // Measures the outputs of the last micro-batch, in `measure` (Compute) or before Apply: a step with labels or outputs
  // that the metric refuses is not committed.
  void Measure(const Metric& metric, StepMeasurement* measurement);
  // Written, once, by whoever else wants a say in whether the next step is committed, before Apply: if it carries an
  // error, it is not. Whole otherwise. A device that trains alone waits for it, and else for nothing of the host's.
  const VarPtr& gate() const { return gate_; }
  // While it lives, what is pushed of a step becomes one launch, where one GPU trains alone (Engine::Join). Update does
  // so by itself.
  Joining Together() const;
  // Steps are committed again after one that failed.
  void Forgive();
  // Waits for step `step` as WaitFor does. If it overflowed a dynamic loss scale: goes back before it, lowers the scale
  // and returns false.
  bool Finish(int64_t step);
  // After step `step` failed: waits for those behind it, which did nothing, and goes on as if none of them had been.
  void GoBack(int64_t step);
  // With processes: asks all of them to stop after one of the next steps, which is told by the step itself.
  void AskToStop() { asks_to_stop_ = true; }
  void ForgetStop() {  // while no step is in flight
    asks_to_stop_ = false;
    if (shared_) shared_->asked_at = kNever;
  }
  // The step in which one of them did so first, once that is over; else kNever.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t StopAskedAt() const { return shared_ ? shared_->asked_at.load() : kNever; }
  // After a step that failed on a device: what it lost comes from those that have it (ParameterStore::Mend). Waits.
  void Mend();
  // Until step `step` (one of the last kInFlight, step() after its Apply) is over; rethrows its error, or that of the
  // failed step before it.
  static constexpr int64_t kInFlight = 2;
  void WaitFor(int64_t step) const;

  int64_t step() const { return run_->step; }                             // updates so far
  void SetStep(int64_t step) { run_->step = run_->finished = step; }      // of a resumed run
  double LearningRate() const { return LearningRateOf(run_->step + 1); }  // of the next update
  double LearningRateOf(int64_t step) const { return schedule_->LearningRate(step, run_->schedule); }
  // Tells the schedule what an epoch's value is.
  void Judge(double value, bool larger_is_better) {
    run_->schedule = schedule_->Judge(value, larger_is_better, run_->schedule);
  }
  // What was best so far says nothing of what is to come: another value is shown to the schedule from now on.
  void JudgeAnew() {
    run_->schedule.best.reset();
    run_->schedule.waited = 0;
  }
  void NewEpoch() { ++run_->schedule.epoch; }  // tells the schedule that one is completed
  const std::optional<LossScaling>& loss_scaling() const { return loss_scaling_; }
  const LossScaleState& loss_scale() const { return run_->loss_scale; }  // of the next step
  // Later batches are shared out by these numbers, one per device (ExecutorGroup::SetWorkload; in blocks, whole blocks
  // are). Throws Error for what is no workload, and with placements; nothing has changed then.
  void SetWorkload(const std::vector<double>& workload);
  const std::vector<double>& workload() const;  // by which batches are shared out now
  int64_t block() const;                        // samples of a block; 0: none
  const Optimizer& optimizer() const { return *optimizer_; }
  const Schedule& schedule() const { return *schedule_; }

  // Optimizer state as plain tensors, named "<parameter>:<state>"; waits. Throws DeviceError if it lies on a device
  // that is lost. Of several processes any may want it, while the others train, or go on to: they give theirs when they
  // next exchange something. Throws what Processes::Ask does. KeepState: until the next step none has to be asked.
  // Check and Set throw CheckpointError for missing, unknown or misshapen ones; nothing has changed then.
  HostTensorMap State() const;
  void KeepState() const;
  void CheckState(const HostTensorMap& state) const;
  void SetState(const HostTensorMap& state);
  // The averages of all that is trained, by parameter; waits. Empty without UpdaterOptions::average, and before the
  // first step that was committed.
  HostTensorMap Averages() const;
  static HostTensorMap AveragesIn(HostTensorMap state);  // in a State of some updater
  // What else a run's future depends on: of the schedule and the loss scale, by name. Set takes what it needs, begins
  // anew where it is not there, and throws CheckpointError for numbers that make no sense; nothing has changed then.
  using Numbers = std::map<std::string, double>;
  Numbers ToNumbers() const;
  void SetNumbers(const Numbers& numbers);
  void CheckNumbers(const Numbers& numbers) const { Parse(numbers); }  // throws what SetNumbers would

 private:
  struct Piece {  // a parameter within its block
    int64_t begin = 0, end = 0;
    Multipliers multipliers = {};
    std::string name = {};
    bool joins = false;  // nothing but padding between it and the piece before
    // Do norms decide how far it goes? Not of what is not decayed: biases, and the like.
    bool measured() const { return multipliers.wd != 0; }
  };
  // The optimizer's states of elements begin..end-1, where these are updated.
  struct StateRange {
    int64_t begin = 0, end = 0;
    std::vector<Tensor> slots[2] = {};  // each flat; of the second, see DeviceUpdate: none where states are in place
    Tensor committed = {};              // on devices: int64, how often the slots have changed places
  };
  struct BlockState {
    DataParallelExecutorGroup* stage = nullptr;  // whose it is
    int block = -1;                              // of its store
    DType dtype = DType::kFloat32;               // kept here: the store may grow while a step runs
    bool by_rows = false;                        // a table; those come after all others
    std::vector<Piece> pieces = {};              // in order
    std::vector<StateRange> states = {};         // in order, together the whole block; with processes, this one's
    // With a store of the user's: what it sums, by piece; and these sums, one behind the other as the gradients are.
    std::vector<std::shared_ptr<const ExchangedValue>> exchanged = {};
    // With processes, too: sums over the devices of this one, if it has several, and then all new values.
    Tensor sum = {};
    // With processes: of this one's ranges, one behind the other. What `states` has are slices of the last.
    Tensor own_sum = {}, own_values = {};
    std::vector<Tensor> own_states[2] = {};
    int64_t first_place = 0;  // of its pieces, among those of all blocks
  };
  // What the steps of updaters that go on with each other's have in common.
  struct Run {
    int64_t step = 0, finished = 0;  // the latter: up to which Finish was called
    ScheduleState schedule = {};
    LossScaleState loss_scale = {};
    LossScaleState scale_before[kInFlight] = {};  // a step, by its number
    bool resumed = false;                         // the optimizer's state was set
  };
  // What became of a step, as the host sees it when it is over.
  struct Verdict {
    std::vector<Tensor> statuses[kInFlight] = {};  // of the devices that update, as the host reads them; by done_
    std::vector<std::string> names = {};           // of their places
    int64_t committed = 0;                         // steps since the states were set
    std::atomic<bool> overflowed{false};           // the last one that failed, by its gradients
    void Reach(size_t slot);                       // of statuses; throws NumericError or DataError unless all are good
  };
  // Of processes: what the last exchange has said, for the update behind it.
  struct Shared {
    bool means = false;   // do heads give them?
    bool divides = true;  // does the update, by samples, without a rescale of its own?
    double rescale = 1;   // of the sums
    std::atomic<int64_t> asked_at{kNever};
    std::mutex mutex = {};                             // guards, while ranges are looked at:
    StepStatus status = {};                            // of this process's own
    double squares = 0;                                // of all gradients
    std::vector<UpdateSquares> measured = {};          // by place, of all
    std::vector<std::vector<HostTensor>> states = {};  // of all, by block, as they are kept; none: to be asked for
    int64_t offer = 0;                                 // of its states
    void Note(int64_t place, StepStatus bad);
    std::vector<double> Hear(std::span<const ProcessExchange::Word> words);  // the processes' weights; empty: 1
  };
  class OnDevices;    // devices.cc
  class InProcesses;  // process_update.cc
  class Table;        // rows.cc
  int64_t CheckMicroBatches(std::span<const BatchPtr> micro_batches,
                            bool values = true) const;  // returns their samples
  // Forward and backward of a step of `samples`: one micro-batch after the other, or its only batch in blocks.
  void ForwardBackward(std::span<const BatchPtr> micro_batches, int64_t samples,
                       const std::function<void(size_t)>& measure);
  // run(i) of each of so many pieces, where piece i is of measure's row lane(i): those of a row wait for each other.
  template <class Lane, class Function>
  void RunPieces(size_t pieces, int64_t samples, const std::function<void(size_t)>& measure, const Lane& lane,
                 const Function& run);
  // Of gates that several pieces write, one after the other: what the first that failed said. By row of pieces.
  struct KeptGate {
    VarPtr gate = nullptr, kept = nullptr;
    PreparedPtr begin = nullptr, keep = nullptr;
  };
  void PrepareKeptGates();
  void FinishLast();
  std::pair<ScheduleState, LossScaleState> Parse(const Numbers& numbers) const;
  void GoOnWith(const Updater& other);
  void Prepare();
  void AppendPublish(const std::vector<VarPtr>& gates, StepParts* parts) const;  // of all stages
  static const ParameterStore::Block& StoredBlock(const BlockState& block) {
    return block.stage->store().blocks()[static_cast<size_t>(block.block)];
  }
  StepRates RatesOf(int64_t step, int64_t samples) const;
  bool IsNearOneCore() const;
  int ThreadsOfHost() const { return IsNearOneCore() ? 1 : group_->threads_per_device(); }
  Device Home() const;  // where the host updates
  // `reads`: what it comes after, besides; `firsts`: of each block, what updates change. Returns what it waits for.
  VarPtr AppendRates(std::vector<VarPtr> reads, std::vector<VarPtr> firsts, StepParts* parts);
  StepParts HostParts(std::vector<VarPtr> gates);
  void AppendSumsOfStore(BlockState* block, Device home, StepParts* parts);  // store_sums.cc
  void CheckProcesses() const;                                               // process_sums.cc
  void CheckSameLayout() const;
  StepParts ProcessParts(const std::vector<VarPtr>& gates);          // process_update.cc
  void CheckStatuses(std::span<const ProcessExchange::Word> words);  // throws NumericError for what is not finite
  void ShareSquares(Processes* processes);
  void ShareMeasures(Processes* processes);
  Processes::Given OwnStates() const;                                          // that hold
  std::shared_ptr<const ProcessExchange::Word> WordOf(int64_t samples) const;  // of the present step
  // Around the parts of whole gradients: sums of rows, which become a gate of these; and, after `outcome`, the update.
  void AppendSumsOfRows(std::vector<VarPtr>* gates, StepParts* parts);
  void AppendUpdatesOfRows(std::vector<VarPtr> gates, StepParts* parts);
  StepParts DeviceParts(const std::vector<VarPtr>& gates);
  bool on_devices() const { return forgive_on_devices_.num_operations() > 0; }
  std::vector<Tensor> NewStates(Device device, DType dtype, int64_t elements) const;
  struct Range;  // updater.cc
  static int64_t PlaceOf(const BlockState& block, const Piece& piece) {
    return block.first_place + (&piece - block.pieces.data());
  }
  void LookAtGradients(const Range& range);
  void Measure(const Range& range);
  void UpdateRange(const Range& range);
  UpdateSquares SquaresOf(const Range& range, const Piece& piece) const;
  // Of an update on the host; `rescale` is Rescale(), of all gradients.
  UpdateArgs ArgsOf(const Piece& piece, double rescale) const;
  double Rescale() const;
  // visit(parameter, its piece) for all that are updated of a block.
  template <class Visit>
  void ForEachParameter(const BlockState& block, const Visit& visit) const;
  UpdateArgs AverageArgs(int64_t step) const { return {.step = step, .settings = average_->settings}; }
  std::vector<std::string> StateNames() const;  // the optimizer's, then the average
  void Wait() const;
  void Recount() const;  // the devices' counts of committed steps become the host's; waits
  std::vector<HostTensor> Gather(const BlockState& block) const;  // each state, of the whole block

  ExecutorGroup* group_;
  std::vector<DataParallelExecutorGroup*> stages_;
  std::shared_ptr<const Optimizer> optimizer_;
  SchedulePtr schedule_;
  std::optional<LossScaling> loss_scaling_;
  std::optional<Averaging> average_;
  MultiplierList multipliers_;
  std::unique_ptr<KVStore> kvstore_;
  std::shared_ptr<KVStore> store_;  // the user's; null: none
  ProcessesPtr processes_;          // null: this one alone; and of several, what they have said
  std::shared_ptr<Shared> shared_;
  bool asks_to_stop_ = false;
  bool divide_by_samples_ = true;
  std::optional<bool> means_of_pieces_;  // heads divide by what a micro-batch has; no value: some do, and some do not
  size_t pieces_ = 1;                    // micro-batches whose gradients are there
  bool adds_up_ = false;                 // some gradient is bound with kAdd
  std::vector<BlockState> blocks_;
  StepRange update_;                      // of no parts if nothing is trained
  std::vector<VarPtr> outcome_;           // tells how it went
  std::optional<Device> alone_;           // updates by itself, and waits for nothing of the host's
  Tensor status_;                         // its StepStatus
  StepRange forgive_on_devices_;          // of parts, and so the next, where devices update
  StepRange finish_[kInFlight];           // by done_
  std::vector<VarPtr> heard_[kInFlight];  // by done_: what the host waits for
  const Updater* const steps_of_;
  const bool for_several_groups_;
  VarPtr gate_, refused_, committed_;  // the second is the metric's; the last carries the first failed step's error
  std::vector<KeptGate> kept_gates_;   // none until they are needed
  PreparedPtr end_of_gates_;
  const VarPtr* measured_gate_ = nullptr;
  VarPtr done_[kInFlight];
  PreparedPtr forgive_;
  std::vector<StepRange> commit_;  // by done_
  StepRange recount_;
  std::shared_ptr<Run> run_ = std::make_shared<Run>();
  std::shared_ptr<Verdict> verdict_ = std::make_shared<Verdict>();
  // Of the update on the host: set by an operation before it, never captured by value; and what it looked at.
  StepRates rates_;
  RangeSquares gradients_, measured_;
  std::vector<std::shared_ptr<Table>> tables_;
  std::unique_ptr<BlockStep> blocks_of_step_;  // null: none
};

}  // namespace bindery
