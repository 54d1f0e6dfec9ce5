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

#include "engine/cuda/cpu_block.h"  // before the kernels
#include "executor/kernels/cuda/elementwise_body.h"
#include "executor/kernels/cuda/fused_body.h"
#include "executor/kernels/cuda/fused_image.h"
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

struct Statement {
  enum Kind { kRead, kAs, kCall, kTimesSlope, kWrite } kind;
  std::string type = {};     // that is read, rounded to or written
  int input = 0;             // kRead
  std::string place = {};    // kRead: "i", "0" or "PlaceOf..."
  std::string list = {};     // of functions
  int function = 0;          // its place there
  std::vector<int> of = {};  // values
  std::vector<double> numbers = {};
};
struct Source {
  bool in_double = false;
  std::vector<Statement> statements = {};
};

std::optional<Statement> ParseStatement(const std::string& text, size_t values) {
  static const std::regex read(R"(const T v(\d+) = Read<(\w+)>\(args, (\d+), (i|0|PlaceOf\(args, (\d+), i\))\);)"),
      as(R"(const T v(\d+) = As<(\w+)>\(v(\d+)\);)"),
      call(R"(const T v(\d+) = As<(\w+)>\((Call|TimesSlope)<(\w+), (\d+)>\((.*)\)\);)"),
      write(R"(Write<(\w+)>\(args, i, v(\d+)\);)"), operand(R"(v(\d+)|T\((\S+)\))");
  const auto is_next = [&](const std::string& number) { return std::stoul(number) == values; };
  std::smatch m;
  if (std::regex_match(text, m, read) && is_next(m[1]) && (m[5].length() == 0 || m[5] == m[3])) {
    return Statement{.kind = Statement::kRead, .type = m[2], .input = std::stoi(m[3]), .place = m[4]};
  }
  if (std::regex_match(text, m, as) && is_next(m[1])) {
    return Statement{.kind = Statement::kAs, .type = m[2], .of = {std::stoi(m[3])}};
  }
  if (std::regex_match(text, m, write)) {
    return Statement{.kind = Statement::kWrite, .type = m[1], .of = {std::stoi(m[2])}};
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
  return statement;
}

// Between the loop's first line and its last, indented by four.
std::optional<Source> Parse(const std::string& text) {
  Source source{.in_double = text.find("using T = double;") != std::string::npos};
  std::istringstream lines(text);
  size_t values = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("    ")) continue;
    std::optional<Statement> statement = ParseStatement(line.substr(4), values);
    if (!statement) return std::nullopt;
    for (const int of : statement->of) {
      if (of < 0 || static_cast<size_t>(of) >= values) return std::nullopt;
    }
    values += statement->kind != Statement::kWrite;
    source.statements.push_back(*std::move(statement));
  }
  if (source.statements.empty() || source.statements.back().kind != Statement::kWrite) return std::nullopt;
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

// Elements first..first+n-1, each statement of all of them.
template <class T>
void RunTile(const Source& source, const FusedArgs& args, int64_t first, int64_t n) {
  std::vector<std::vector<T>> values;
  for (const Statement& s : source.statements) {
    std::vector<const T*> operands;
    for (const int of : s.of) operands.push_back(values[static_cast<size_t>(of)].data());
    std::vector<T> result(static_cast<size_t>(n));
    if (s.kind == Statement::kCall || s.kind == Statement::kTimesSlope) CallAll(s, operands, n, result.data());
    ForTypeNamed(s.type, [&]<class Type>() {
      using Value = flat::Arithmetic<Type>;
      for (int64_t k = 0; k < n; ++k) {
        const int64_t i = first + k;
        T& y = result[static_cast<size_t>(k)];
        switch (s.kind) {
          case Statement::kRead:
            y = static_cast<T>(Read<Type>(args, s.input,
                                          s.place == "i"   ? i
                                          : s.place == "0" ? 0
                                                           : PlaceOf(args, s.input, i)));
            break;
          case Statement::kWrite: Write<Type>(args, i, static_cast<Value>(operands[0][k])); break;
          case Statement::kAs: y = operands[0][k]; [[fallthrough]];
          default: y = static_cast<T>(As<Type>(static_cast<Value>(y)));
        }
      }
    });
    if (s.kind != Statement::kWrite) values.push_back(std::move(result));
  }
}

template <class T>
void RunSource(const Source& source, const FusedArgs& args) {
  constexpr int64_t kTile = 1024;
  for (int64_t first = 0; first < args.n; first += kTile) {
    RunTile<T>(source, args, first, std::min(kTile, args.n - first));
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
      source->in_double ? RunSource<double>(*source, args) : RunSource<float>(*source, args);
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
  static const auto api = std::make_shared<const NvrtcApi>(
      NvrtcApi{&GetErrorString, &Version, &CreateProgram, &DestroyProgram, &CompileProgram, &GetProgramLogSize,
               &GetProgramLog, &GetCubinSize, &GetCubin});
  return api;
}

int64_t FusedCompiled() { return compiled; }
int64_t FusedLaunched() { return launched; }
int64_t FusedAsked() { return asked; }
void RefuseSources(bool yes) { refuses = yes; }
void RefuseCapability(int of) { refused_capability = of; }
void SetNvrtcVersion(int minor) { minor_version = minor; }

}  // namespace fake
}  // namespace bindery::cuda
