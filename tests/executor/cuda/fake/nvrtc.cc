#include "tests/executor/cuda/fake/nvrtc.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "executor/kernels/cuda/elementwise_body.h"
#include "executor/kernels/cuda/fused_body.h"
#include "executor/kernels/cuda/fused_image.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/engine/cuda/fake/kernels.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda {

struct NvrtcProgram {
  std::string source = {};
};

namespace fake {
namespace {

constexpr char kMagic[] = "image of the fake:\n";

constexpr NvrtcResult kInvalidOption = 5;

std::atomic<int64_t> asked = 0, compiled = 0, launched = 0;
std::atomic<bool> refuses = false;
std::atomic<int> refused_capability = 0;
std::atomic<int> minor_version = 1;

// ---- sources ----

// What one of the chain's operands is.
struct Operand {
  std::string read = {};  // "Read", "ReadOne" or "ReadStretched"
  std::string type = {};
};
// A step of the chain.
struct Statement {
  enum Kind { kAs, kCall, kTimesSlope } kind;
  std::string type = {};     // that is rounded to
  std::string list = {};     // of functions
  int function = 0;          // its place there
  std::vector<int> of = {};  // values: of operands, then of statements
  std::vector<double> numbers = {};
};
struct Source {
  bool in_double = false;
  std::vector<Operand> operands = {};
  std::vector<Statement> statements = {};
  std::string result = {};  // the type of what is written
};

std::optional<Statement> ParseStatement(const std::string& text, size_t values) {
  static const std::regex as(R"(const T v(\d+) = As<(\w+)>\(v(\d+)\);)"),
      call(R"(const T v(\d+) = As<(\w+)>\((Call|TimesSlope)<(\w+), (\d+)>\((.*)\)\);)"),
      operand(R"(v(\d+)|T\((\S+)\))");
  const auto is_next = [&](const std::string& number) { return std::stoul(number) == values; };
  std::smatch m;
  if (std::regex_match(text, m, as) && is_next(m[1])) {
    return Statement{.kind = Statement::kAs, .type = m[2], .of = {std::stoi(m[3])}};
  }
  if (!std::regex_match(text, m, call) || !is_next(m[1])) return std::nullopt;
  Statement statement{.kind = m[3] == "Call" ? Statement::kCall : Statement::kTimesSlope,
                      .type = m[2],
                      .list = m[4],
                      .function = std::stoi(m[5])};
  const std::string operands = m[6];
  for (std::sregex_iterator at(operands.begin(), operands.end(), operand), end; at != end; ++at) {
    if ((*at)[1].length() > 0) {
      statement.of.push_back(std::stoi((*at)[1]));
    } else {
      statement.numbers.push_back(std::strtod((*at)[2].str().c_str(), nullptr));
    }
  }
  for (const int of : statement.of) {
    if (of < 0 || static_cast<size_t>(of) >= values) return std::nullopt;
  }
  return statement;
}

// Line for line what FusedSource writes: the chain, of one element, and the loop over packs.
std::optional<Source> Parse(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  size_t at = 0;
  const auto take = [&](const std::string& line) { return at < lines.size() && lines[at] == line && ++at; };
  const auto match = [&](std::smatch* m, const std::regex& pattern) {
    return at < lines.size() && std::regex_match(lines[at], *m, pattern) && ++at;
  };
  Source source;
  std::smatch m;
  for (const char* const line : {"#include \"executor/kernels/cuda/fused_body.h\"", "", "using namespace bindery;",
                                 "using namespace bindery::cuda;", "using namespace bindery::native;"}) {
    if (!take(line)) return std::nullopt;
  }
  source.in_double = take("using T = double;");
  if (!source.in_double && !take("using T = float;")) return std::nullopt;
  static const std::regex head(R"(__device__ T Chain\((T v0(, T v\d+)*)\) \{)");
  if (!take("") || !match(&m, head)) return std::nullopt;
  const auto inputs = static_cast<size_t>(std::ranges::count(m[1].str(), 'v'));
  size_t values = inputs;
  for (; at < lines.size() && lines[at].starts_with("  const "); ++at, ++values) {
    std::optional<Statement> statement = ParseStatement(lines[at].substr(2), values);
    if (!statement) return std::nullopt;
    source.statements.push_back(*std::move(statement));
  }
  for (const std::string& line :
       {"  return v" + std::to_string(values - 1) + ";", std::string("}"), std::string(),
        std::string("extern \"C\" __global__ void bindery_fused(const __grid_constant__ FusedArgs args) {"),
        std::string("  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;"),
        std::string("  for (int64_t pack = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; "
                    "pack < args.packs(); pack += step) {"),
        std::string("    const int64_t i = pack * FusedArgs::kPack;")}) {
    if (!take(line)) return std::nullopt;
  }
  std::string operands;
  for (size_t k = 0; k < inputs; ++k) {
    static const std::regex read(
        R"(    const auto x(\d+) = (Read|ReadOne|ReadStretched)<(\w+)>\(args, (\d+)(, i)?\);)");
    const std::string number = std::to_string(k);
    if (!match(&m, read) || m[1] != number || m[4] != number) return std::nullopt;
    if ((m[2] == "ReadOne") == m[5].matched) return std::nullopt;
    source.operands.push_back({.read = m[2], .type = m[3]});
    operands += (k > 0 ? ", x" : "x") + number + ".v[e]";
  }
  static const std::regex write(R"(    Write<(\w+)>\(args, i, y\);)");
  if (!take("    Pack<T, FusedArgs::kPack> y;") || !take("#pragma unroll") ||
      !take("    for (int e = 0; e < FusedArgs::kPack; ++e) y.v[e] = Chain(" + operands + ");") || !match(&m, write)) {
    return std::nullopt;
  }
  source.result = m[1];
  if (!take("  }") || !take("}") || at != lines.size() || source.statements.empty()) return std::nullopt;
  return source;
}

// ---- what they say ----

template <class F>
void ForTypeNamed(const std::string& type, const F& f) {
  if (type == "double") return f.template operator()<double>();
  if (type == "bfloat16") return f.template operator()<bfloat16>();
  if (type == "float16") return f.template operator()<float16>();
  f.template operator()<float>();
}
// f of each of `n` elements of the operands.
template <class T>
void CallAll(const Statement& s, const std::vector<const T*>& x, int64_t n, T* y) {
  const auto with = [&]<class List>(std::type_identity<List> list, const auto& f) {
    WithFunction(list, s.function, [&]<class F>() {
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f.template operator()<F>(i));
    });
  };
  const auto of_one = [&]<class F>(int64_t i) { return F()(x[0][i]); };
  const auto of_two = [&]<class F>(int64_t i) { return F()(x[0][i], x[1][i]); };
  if (s.list == "UnaryFunctions") with(std::type_identity<native::UnaryFunctions>(), of_one);
  if (s.list == "BinaryFunctions") with(std::type_identity<native::BinaryFunctions>(), of_two);
  if (s.list == "ActivationFunctions") with(std::type_identity<native::ActivationFunctions>(), of_one);
  if (s.list == "ActivationGradFunctions") with(std::type_identity<native::ActivationGradFunctions>(), of_two);
  if (s.list != "CurveFunctions") return;
  const T a = static_cast<T>(s.numbers.at(0)), b = static_cast<T>(s.numbers.at(1));
  const auto curve = std::type_identity<native::CurveFunctions>();
  if (s.kind == Statement::kCall) {
    with(curve, [&]<class F>(int64_t i) { return F()(x[0][i], a, b); });
  } else {
    with(curve, [&]<class F>(int64_t i) { return x[0][i] * F().slope(x[1][i], a, b); });
  }
}

constexpr int64_t kPack = FusedArgs::kPack;

template <class Type>
Loaded<Type> ReadBy(const std::string& read, const FusedArgs& args, int input, int64_t i) {
  return read == "Read"      ? Read<Type>(args, input, i)
         : read == "ReadOne" ? ReadOne<Type>(args, input)
                             : ReadStretched<Type>(args, input, i);
}

// Packs first..first+count-1: all operands of them, then each statement of all elements.
template <class T>
void RunTile(const Source& source, const FusedArgs& args, int64_t first, int64_t count) {
  const int64_t n = count * kPack;
  std::vector<std::vector<T>> values;
  for (size_t k = 0; k < source.operands.size(); ++k) {
    const Operand& operand = source.operands[k];
    std::vector<T>& x = values.emplace_back(static_cast<size_t>(n));
    ForTypeNamed(operand.type, [&]<class Type>() {
      for (int64_t pack = 0; pack < count; ++pack) {
        std::ranges::copy(ReadBy<Type>(operand.read, args, static_cast<int>(k), (first + pack) * kPack).v,
                          x.begin() + pack * kPack);
      }
    });
  }
  for (const Statement& s : source.statements) {
    std::vector<const T*> operands;
    for (const int of : s.of) operands.push_back(values[static_cast<size_t>(of)].data());
    std::vector<T> result(static_cast<size_t>(n));
    s.kind == Statement::kAs ? static_cast<void>(std::copy_n(operands[0], n, result.begin()))
                             : CallAll(s, operands, n, result.data());
    ForTypeNamed(s.type, [&]<class Type>() {
      for (T& y : result) y = static_cast<T>(As<Type>(static_cast<flat::Arithmetic<Type>>(y)));
    });
    values.push_back(std::move(result));
  }
  ForTypeNamed(source.result, [&]<class Type>() {
    for (int64_t pack = 0; pack < count; ++pack) {
      Loaded<Type> y;
      std::copy_n(values.back().begin() + pack * kPack, kPack, y.v);
      Write<Type>(args, (first + pack) * kPack, y);
    }
  });
}

void RunSource(const Source& source, const FusedArgs& args) {
  constexpr int64_t kTile = 256;
  for (int64_t first = 0; first < args.packs(); first += kTile) {
    const int64_t count = std::min(kTile, args.packs() - first);
    source.in_double ? RunTile<double>(source, args, first, count) : RunTile<float>(source, args, first, count);
  }
}

std::vector<FakeKernel> Load(const void* image) {
  const auto* const text = static_cast<const char*>(image);
  if (std::strncmp(text, kMagic, sizeof kMagic - 1) != 0) return {};
  const auto source = std::make_shared<const Source>(Parse(text + sizeof kMagic - 1).value());
  const auto bind = [source](const FakeGpu& gpu, const void* arguments, Blocks) -> std::function<CUresult()> {
    return [&gpu, source, args = *static_cast<const FusedArgs*>(arguments)]() mutable {
      bool found = true;
      args.Addresses([&](auto& address) {
        if (!address) return;
        char* const view = Resolve(gpu, reinterpret_cast<CUdeviceptr>(address), 1, FusedArgs::kName);
        found = found && view;
        address = reinterpret_cast<std::remove_reference_t<decltype(address)>>(view);
      });
      if (!found) return CUDA_ERROR_ILLEGAL_ADDRESS;
      ++launched;
      RunSource(*source, args);
      return CUDA_SUCCESS;
    };
  };
  return {{FusedArgs::kName, bind, &AccessesOf<FusedArgs>, true}};
}

// ---- NVRTC's functions ----

const char* GetErrorString(NvrtcResult result) {
  return result == kNvrtcSuccess    ? "NVRTC_SUCCESS"
         : result == kInvalidOption ? "NVRTC_ERROR_INVALID_OPTION"
                                    : "NVRTC_ERROR_COMPILATION";
}
NvrtcResult Version(int* major, int* minor) {
  *major = 0;
  *minor = minor_version;
  return kNvrtcSuccess;
}
NvrtcResult CreateProgram(NvrtcProgram** program, const char* source, const char*, int, const char* const*,
                          const char* const*) {
  *program = new NvrtcProgram{source};
  return kNvrtcSuccess;
}
NvrtcResult DestroyProgram(NvrtcProgram** program) {
  delete *program;
  *program = nullptr;
  return kNvrtcSuccess;
}
NvrtcResult CompileProgram(NvrtcProgram* program, int num_options, const char* const* options) {
  ++asked;
  const std::string unknown = "--gpu-architecture=sm_" + std::to_string(refused_capability);
  if (std::find(options, options + num_options, unknown) != options + num_options) return kInvalidOption;
  if (refuses) return kNvrtcErrorCompilation;
  ++compiled;
  if (Parse(program->source)) return kNvrtcSuccess;
  Refuse("nvrtcCompileProgram", program->source.c_str());
  return kNvrtcErrorCompilation;
}
constexpr char kLog[] = "the fake refuses it";
NvrtcResult GetProgramLogSize(NvrtcProgram*, size_t* bytes) {
  *bytes = sizeof kLog;
  return kNvrtcSuccess;
}
NvrtcResult GetProgramLog(NvrtcProgram*, char* log) {
  std::memcpy(log, kLog, sizeof kLog);
  return kNvrtcSuccess;
}
NvrtcResult GetCubinSize(NvrtcProgram* program, size_t* bytes) {
  *bytes = sizeof kMagic + program->source.size();  // with the 0 at the end
  return kNvrtcSuccess;
}
NvrtcResult GetCubin(NvrtcProgram* program, char* cubin) {
  const std::string image = kMagic + program->source;
  std::memcpy(cubin, image.c_str(), image.size() + 1);
  return kNvrtcSuccess;
}

[[maybe_unused]] const bool kInstalled = [] {
  SetLoader(&Load);
  UseNvrtc(Nvrtc());
  UseFusedFolder("");  // nobody's own
  return true;
}();

}  // namespace

NvrtcPtr Nvrtc() {
  static const auto api = std::make_shared<const NvrtcApi>(NvrtcApi{{},
                                                                    &GetErrorString,
                                                                    &Version,
                                                                    &CreateProgram,
                                                                    &DestroyProgram,
                                                                    &CompileProgram,
                                                                    &GetProgramLogSize,
                                                                    &GetProgramLog,
                                                                    &GetCubinSize,
                                                                    &GetCubin});
  return api;
}

void RunFused(const std::string& source, const FusedArgs& args) { RunSource(Parse(source).value(), args); }

int64_t FusedCompiled() { return compiled; }
int64_t FusedLaunched() { return launched; }
int64_t FusedAsked() { return asked; }
void RefuseSources(bool yes) { refuses = yes; }
void RefuseCapability(int of) { refused_capability = of; }
void SetNvrtcVersion(int minor) { minor_version = minor; }

}  // namespace fake
}  // namespace bindery::cuda
