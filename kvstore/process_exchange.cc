#include "kvstore/process_exchange.h"

#include <utility>

#include "base/error.h"

namespace bindery {

VarPtr ProcessExchange::Append(Options options, StepParts* parts) const {
  // An operation that reads what has failed is not run, but this one has to be. So another one looks, and leaves a note.
  const auto is_there = std::make_shared<bool>(false);
  const VarPtr seen = engine_->NewVar();
  // It looks at what keeps the exchange from being done, too: a note is taken by the exchange that it is for.
  Operation look{.name = options.name, .device = options.device, .reads = options.together, .writes = {seen}};
  look.reads.insert(look.reads.end(), options.own.begin(), options.own.end());
  for (const Tensor& value : options.values) look.reads.push_back(value.var());
  look.run = [is_there](const OpContext&) { *is_there = true; };
  parts->push_back(std::move(look));

  Operation exchange{.name = options.name,
                     .device = options.device,
                     .reads = std::move(options.together),
                     .updates = {order_},  // and so a part by itself (engine/step.h)
                     .at = [] { return std::string("waiting for the other processes"); }};
  std::vector<Processes::Values> values;
  for (const Tensor& value : options.values) {
    exchange.writes.push_back(value.var());
    values.push_back({value.dtype(), value.data(), value.elements()});
  }
  for (const Tensor& result : options.results) exchange.writes.push_back(result.var());
  if (!options.run) {
    options.run = [values = std::move(values)](Processes* processes, std::span<const Word>) {
      processes->AllReduceSum(values);
    };
  }
  exchange.run = [processes = processes_, tensors = std::move(options.values), results = std::move(options.results),
                  is_there, say = std::move(options.say), run = std::move(options.run)](const OpContext& context) {
    Word mine = context.payload ? *static_cast<const Word*>(context.payload) : Word{};
    mine.good = std::exchange(*is_there, false);
    if (say) say(&mine);
    std::vector<Word> words(static_cast<size_t>(processes->size()));
    processes->AllGather(&mine, words.data(), sizeof(Word));
    for (const Word& word : words) {
      const auto process = &word - words.data();
      if (!word.good) Throw("process {} of {} failed at this step", process, words.size());
      if (word.step != mine.step) {
        Throw("the processes are not at the same step: process {} is at {}, process {} at {}", processes->rank(),
              mine.step, process, word.step);
      }
    }
    run(processes.get(), words);
  };
  parts->push_back(std::move(exchange));
  return seen;
}

}  // namespace bindery
