#include "executor/kernels/cpu/tuning.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/cache_files.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/split_text.h"
#include "engine/cpu/pages.h"
#include "engine/team.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/tuning.h"
#include "symbol/attrs.h"

namespace bindery::cpu {
namespace {

// Of the candidates: with others, or where one becomes faster, earlier choices say nothing.
constexpr int kVersion = 8;
constexpr int64_t kLargest = 4 << 20;  // bytes of a file

// What the times depend on and the key of a choice does not have.
std::string Machine() {
  std::string processor = "unknown", line;
  std::ifstream file("/proc/cpuinfo");
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    processor = line.substr(std::min(line.find(':'), line.size() - 2) + 2);
    break;
  }
  Allows(dnnl::cpu_isa::sse41);  // before oneDNN is asked: its limit is set
  const dnnl_version_t& dnnl = *dnnl::version();
  return fmt::format("candidates {}, {}, {}, oneDNN {}.{}.{} with instructions {:x}", kVersion, processor,
                     BestLoops().name, dnnl.major, dnnl.minor, dnnl.patch,
                     static_cast<int>(dnnl::get_effective_cpu_isa()));
}

using Choices = std::map<std::string, std::string>;  // by key: a candidate's name

constexpr std::string_view kTitle = "bindery tuning";

// "bindery tuning CHECKSUM", the machine, and a line "key = choice" for each.
std::string ToText(const std::string& machine, const Choices& choices) {
  std::string text = machine + "\n";
  for (const auto& [key, choice] : choices) text += fmt::format("{} = {}\n", key, choice);
  return fmt::format("{} {:016x}\n{}", kTitle, Checksum(text.data(), static_cast<int64_t>(text.size())), text);
}
// Empty for what is damaged, or another machine's.
Choices FromText(const std::string& machine, const std::string& text) {
  Choices choices;
  for (const std::string_view line : SplitText(text, '\n')) {
    constexpr std::string_view kIs = " = ";
    const size_t at = line.rfind(kIs);
    if (at != std::string_view::npos) choices[std::string(line.substr(0, at))] = line.substr(at + kIs.size());
  }
  return ToText(machine, choices) == text ? choices : Choices();
}

struct Tuned {
  std::mutex mutex = {};
  std::optional<std::string> folder = {};
  std::optional<Choices> choices = {};
  std::set<std::string> asked = {};  // the keys of those that count for what was made here
  bool keeps = true;                 // the file; until it cannot be written, which is logged once
  int64_t measurements = 0;
  std::string machine = Machine();

  std::string Folder() {
    if (!folder) folder = CacheFolder("tuning");
    return *folder;
  }
  std::string FileName() const {
    return fmt::format("{:016x}", Checksum(machine.data(), static_cast<int64_t>(machine.size())));
  }
  Choices Read() { return FromText(machine, ReadCached(Folder(), FileName(), kLargest)); }
  Choices& All() {
    if (!choices) choices = Read();
    return *choices;
  }
  void Add(const std::string& key, const std::string& choice) {
    All()[key] = choice;
    if (!keeps) return;
    Choices all = Read();  // what other processes have added meanwhile; this one takes it over, too
    all.insert(All().begin(), All().end());
    all[key] = choice;
    All().insert(all.begin(), all.end());
    keeps = WriteCached(Folder(), FileName(), ToText(machine, all), "what kernels were chosen");
  }
};
Tuned& Process() {
  static auto& tuned = *new Tuned;
  return tuned;
}

std::string KeyOf(const KernelSpec& spec) {
  std::string key = spec.op->name;
  for (const auto& [name, value] : spec.attrs.ToMap()) key += fmt::format(" {}={}", name, ToString(value));
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    key += fmt::format("; {} {} {}", spec.inputs[i].dtype, spec.inputs[i].shape,
                       spec.input_is_open[i] ? "open" : ToString(spec.input_formats[i]));
    if (spec.IsKept(i)) key += " kept";
  }
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    key += fmt::format("; {} {}", spec.outputs[o].dtype, spec.outputs[o].shape);
    if (!spec.output_used[o]) key += " unused";
    if (spec.output_wishes[o]) key.append(" as ").append(ToString(*spec.output_wishes[o]));
  }
  key += fmt::format("; {} threads, {}", spec.threads, ToString(spec.tuning));
  std::ranges::replace(key, '\n', ' ');
  return key;
}

// Memory of a value, filled with small numbers of any type: zeros would all be one page. From the system, as an arena's
// is, and back to it: malloc would keep for the process what nothing asks for again. A system promises more than it has
// and then ends processes, so it is asked first: a plan may be of a batch that does not fit.
struct Unmap {
  size_t bytes;
  void operator()(void* memory) const { munmap(memory, bytes); }
};
using Memory = std::unique_ptr<void, Unmap>;
Memory Allocate(int64_t bytes) {
  constexpr int64_t kAskFirst = 16 << 20;
  if (bytes >= kAskFirst && bytes > AvailableMemory()) throw std::bad_alloc();
  const size_t size = static_cast<size_t>(bytes) + 1;  // nothing cannot be asked for
  void* const pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  madvise(pages, size, MADV_HUGEPAGE);  // advice, as an arena gives it
  std::memset(pages, 0x3c, size);
  return {pages, Unmap{size}};
}

// In a network other layers run between two runs of one, and what is a core's own holds their values: before each run
// that is measured, the second cache of each is filled with others. (A kernel that reads its weights twice would seem
// cheaper than it is.)
class OthersValues {
 public:
  explicit OthersValues(int threads) : memory_(Allocate(threads * kBytes)), bytes_(threads * kBytes) {}

  void TakeTheCaches() const {
    ParallelFor(bytes_, kBytes, 0, [&](int64_t begin, int64_t end, int) {
      std::memset(static_cast<char*>(memory_.get()) + begin, 0, static_cast<size_t>(end - begin));
    });
  }

 private:
  static constexpr int64_t kBytes = 2 << 20;  // of a thread: the second cache of most processors, or more

  Memory memory_;
  int64_t bytes_;
};

// Seconds of a run: the fewest of some.
double Measure(const KernelSpec& spec, const Kernel& kernel) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 7;
  constexpr double kLong = 0.3;  // seconds
  std::vector<Memory> memory;
  const auto addresses = [&](const std::vector<ValueType>& values, const std::vector<Format>& formats,
                             const std::vector<bool>& used) {
    std::vector<void*> all;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!used.empty() && !used[i]) {
        all.push_back(nullptr);
        continue;
      }
      memory.push_back(Allocate(StorageBytes(formats[i], values[i].dtype, values[i].shape)));
      all.push_back(memory.back().get());
    }
    return all;
  };
  std::vector<void*> inputs = addresses(spec.inputs, kernel.input_formats, {});
  const std::vector<void*> outputs = addresses(spec.outputs, kernel.output_formats, spec.output_used);
  for (const InplacePair& pair : kernel.inplace) {
    inputs[static_cast<size_t>(pair.input)] = outputs[static_cast<size_t>(pair.output)];
  }
  memory.push_back(Allocate(kernel.scratch_bytes));
  const StepBlock step;
  const TeamScope team(kernel.threads);
  const OthersValues others(kernel.threads);
  const Call run = kernel.bind({.inputs = inputs, .outputs = outputs, .scratch = memory.back().get(), .step = &step});
  run();
  double least = std::numeric_limits<double>::infinity(), all = 0;
  for (int i = 0; i < kRuns && all < kLong; ++i) {
    others.TakeTheCaches();
    const auto begin = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    least = std::min(least, seconds);
    all += seconds;
  }
  return least;
}

double MeasureReorder(const KernelSpec& spec, const ValueType& value, const Format& from, const Format& to) {
  if (from == to) return 0;
  const Kernel kernel =
      MakeReorder(value.dtype, value.shape, from, to, spec.threads, KernelPolicy::kFast, DeviceKind::kCpu);
  const KernelSpec reorder{.inputs = {value}, .outputs = {value}, .output_used = {true}, .threads = spec.threads};
  return Measure(reorder, kernel);
}

struct Measured {
  const TuningCandidate* candidate;
  Kernel kernel;
  double seconds = 0;
};

double CostOf(const KernelSpec& spec, const Kernel& kernel, const Kernel& by_rules) {
  double seconds = Measure(spec, kernel);
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.input_is_open[i] || spec.IsKept(i)) continue;
    seconds += MeasureReorder(spec, spec.inputs[i], spec.input_formats[i], kernel.input_formats[i]);
  }
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    if (!spec.output_used[o]) continue;
    const Format wanted = spec.output_wishes[o].value_or(by_rules.output_formats[o]);
    seconds += MeasureReorder(spec, spec.outputs[o], kernel.output_formats[o], wanted);
  }
  return seconds;
}

// The number of the candidate that is faster than the first by more than chance, or of that.
size_t Fastest(const KernelSpec& spec, std::vector<Measured>* all) {
  constexpr double kClearly = 0.95;
  size_t best = 0;
  for (Measured& one : *all) one.seconds = CostOf(spec, one.kernel, all->front().kernel);
  for (size_t i = 1; i < all->size(); ++i) {
    const double bound = best == 0 ? all->front().seconds * kClearly : (*all)[best].seconds;
    if ((*all)[i].seconds < bound) best = i;
  }
  return best;
}

// In a thread of its own, whose team ends with it.
size_t FastestApart(const KernelSpec& spec, std::vector<Measured>* all) {
  size_t best = 0;
  std::exception_ptr error;
  std::thread([&] {
    try {
      best = Fastest(spec, all);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return best;
}

Kernel Noted(Kernel kernel) {
  kernel.implementation += ", tuned";
  return kernel;
}

bool SameWork(const Kernel& a, const Kernel& b) {
  return a.implementation == b.implementation && a.input_formats == b.input_formats &&
         a.output_formats == b.output_formats;
}

// The first is there; of the others those that can do it, each once.
void AddOthers(const std::vector<TuningCandidate>& candidates, std::vector<Measured>* all) {
  for (const TuningCandidate& candidate : std::span(candidates).subspan(1)) {
    MaybeKernel kernel = candidate.make();
    if (!kernel) continue;
    if (std::ranges::any_of(*all, [&](const Measured& m) { return SameWork(m.kernel, *kernel); })) continue;
    all->push_back({&candidate, *std::move(kernel)});
  }
}

}  // namespace

MaybeKernel ChooseMeasured(const KernelSpec& spec, const std::vector<TuningCandidate>& candidates) {
  Tuned& tuned = Process();
  const std::string key = KeyOf(spec);
  const std::lock_guard lock(tuned.mutex);
  tuned.asked.insert(key);
  if (const auto found = tuned.All().find(key); found != tuned.All().end()) {
    for (const TuningCandidate& candidate : candidates) {
      if (candidate.name != found->second) continue;
      if (MaybeKernel kernel = candidate.make()) return Noted(*std::move(kernel));
    }
  }
  MaybeKernel first = candidates.front().make();
  if (!first) return std::nullopt;
  std::vector<Measured> all;
  all.push_back({&candidates.front(), *std::move(first)});
  size_t best = 0;
  // Whatever another one fails with, the first can do the work.
  const auto untuned = [&](const std::string& reason) {
    LogLine(LogLevel::kWarning, fmt::format("{} is not tuned: {}", spec.Who(), reason));
    return std::move(all.front().kernel);
  };
  try {
    AddOthers(candidates, &all);
    ++tuned.measurements;
    if (all.size() > 1) best = FastestApart(spec, &all);
  } catch (const std::bad_alloc&) {
    return untuned("no memory is left to measure its kernels in");
  } catch (const std::system_error& e) {
    return untuned(fmt::format("no thread to measure its kernels in: {}", e.what()));
  } catch (const std::exception& e) {
    return untuned(fmt::format("a kernel failed when it was measured: {}", e.what()));
  }
  tuned.Add(key, all[best].candidate->name);
  return Noted(std::move(all[best].kernel));
}

void UseTuningFolder(const std::string& folder) {
  Tuned& tuned = Process();
  const std::lock_guard lock(tuned.mutex);
  tuned.folder = folder;
  tuned.choices.reset();
  tuned.asked.clear();
  tuned.keeps = true;
}

int64_t NumTuningMeasurements() {
  const std::lock_guard lock(Process().mutex);
  return Process().measurements;
}

std::string TuningFile() {
  Tuned& tuned = Process();
  const std::lock_guard lock(tuned.mutex);
  return tuned.Folder().empty() ? "" : tuned.Folder() + "/" + tuned.FileName();
}

}  // namespace bindery::cpu

namespace bindery {

std::string TuningChoices() {
  cpu::Tuned& tuned = cpu::Process();
  const std::lock_guard lock(tuned.mutex);
  cpu::Choices mine;
  for (const std::string& key : tuned.asked) {
    if (const auto found = tuned.All().find(key); found != tuned.All().end()) mine.insert(*found);
  }
  return mine.empty() ? "" : cpu::ToText(tuned.machine, mine);
}

void AdoptTuningChoices(const std::string& choices) {
  if (choices.empty()) return;
  cpu::Tuned& tuned = cpu::Process();
  const std::lock_guard lock(tuned.mutex);
  for (const auto& [key, choice] : cpu::FromText(tuned.machine, choices)) {
    if (!tuned.asked.contains(key)) tuned.All()[key] = choice;
  }
}

}  // namespace bindery
