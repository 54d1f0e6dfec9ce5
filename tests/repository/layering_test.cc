// Which folder may include which, where the headers of big libraries may appear, and how long a file may be.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/repository/source_tree.h"

namespace bindery {
namespace {

using Folders = std::set<std::string>;

// A folder may include itself and what stands here. Tools, examples and tests may include every library; tools measure
// examples, too.
const std::map<std::string, Folders>& AllowedIncludes() {
  static const Folders kLibraries = {"base", "engine", "executor", "kvstore", "proto", "symbol", "train"};
  static const Folders kAll = {"base", "bindery", "engine", "executor", "kvstore", "proto", "symbol", "train"};
  static const std::map<std::string, Folders> kAllowed = {
      {"base", {}},
      {"proto", {}},
      {"engine", {"base"}},
      {"symbol", {"base", "proto"}},
      {"executor", {"base", "engine", "symbol"}},
      {"kvstore", {"base", "engine"}},
      {"train", kLibraries},
      {"bindery", kLibraries},
      {"tools", {"base", "bindery", "engine", "examples", "executor", "kvstore", "proto", "symbol", "train"}},
      {"examples", kAll},
      {"tests", {"base", "bindery", "engine", "examples", "executor", "kvstore", "proto", "symbol", "tools", "train"}},
  };
  return kAllowed;
}

// Text that only files whose path matches may contain in a preprocessor line.
struct Restricted {
  const char* what;
  std::regex directive;
  std::regex allowed_path;
};

const std::vector<Restricted>& RestrictedDirectives() {
  static const std::vector<Restricted> kRestricted = {
      {"oneDNN", std::regex(R"(^\s*#\s*include\s*<(oneapi/)?dnnl.*)"),
       std::regex(R"((tests/)?executor/kernels/cpu/.*|tools/bench/.*)")},
      {"OpenMP", std::regex(R"(^\s*#\s*(include\s*<omp\.h>|pragma\s+omp\b).*)"),
       std::regex(R"(engine/team/[a-z]+\.cc|executor/kernels/cpu/.*)")},
      {"CUDA", std::regex(R"(^\s*#\s*include\s*<(cuda|cublas|cudnn|curand|cub/|thrust/|nvtx|nvml).*)"),
       std::regex(R"(.*/cuda/.*)")},
      {"NCCL", std::regex(R"(^\s*#\s*include\s*<nccl.*)"), std::regex(R"(.*/nccl/.*)")},
      {"MPI", std::regex(R"(^\s*#\s*include\s*<mpi.*)"), std::regex(R"(.*/mpi/.*)")},
      {"protobuf", std::regex(R"(^\s*#\s*include\s*<google/protobuf/.*)"),
       std::regex(R"((proto|symbol|train|tools|tests)/.*)")},
      {"image libraries", std::regex(R"(^\s*#\s*include\s*<(turbojpeg|jpeglib|png)\.h>.*)"),
       std::regex(R"(train/data/images/.*)")},
      {"command line, JSON and log libraries", std::regex(R"(^\s*#\s*include\s*<(CLI|nlohmann|spdlog)/.*)"),
       std::regex(R"((tools|examples|tests|symbol/mxnet|train/weights)/.*)")},
  };
  return kRestricted;
}

constexpr size_t kMaxLines = 400;

std::string TopFolder(const std::string& path) { return path.substr(0, path.find('/')); }

const std::vector<SourceFile>& Tree() {
  static const std::vector<SourceFile> kTree = ReadSourceTree();
  return kTree;
}

TEST(LayeringTest, SeesTheSources) {
  Folders seen;
  for (const SourceFile& file : Tree()) seen.insert(TopFolder(file.path));
  for (const char* folder : {"base", "tests"}) EXPECT_TRUE(seen.contains(folder)) << folder;
  for (const std::string& folder : seen) EXPECT_TRUE(AllowedIncludes().contains(folder)) << folder;
}

TEST(LayeringTest, FoldersIncludeOnlyWhatStandsBelowThem) {
  for (const SourceFile& file : Tree()) {
    const std::string from = TopFolder(file.path);
    const auto allowed = AllowedIncludes().find(from);
    if (allowed == AllowedIncludes().end()) continue;
    for (const Include& include : Includes(file)) {
      const std::string to = TopFolder(include.path);
      if (!include.quoted) {
        if (file.path.starts_with("examples/outside/")) continue;  // as programs outside the tree do
        EXPECT_FALSE(AllowedIncludes().contains(to)) << file.path << ": write \"" << include.path << "\" with quotes";
        continue;
      }
      EXPECT_TRUE(AllowedIncludes().contains(to))
          << file.path << ": \"" << include.path << "\" is not a path from the root of the repository";
      EXPECT_TRUE(to == from || allowed->second.contains(to))
          << file.path << " must not include \"" << include.path << "\": " << from << "/ may not include " << to << "/";
    }
  }
}

TEST(LayeringTest, LibrariesAppearOnlyInTheirFolders) {
  for (const SourceFile& file : Tree()) {
    for (const std::string& line : file.lines) {
      if (line.find('#') == std::string::npos) continue;
      for (const Restricted& restricted : RestrictedDirectives()) {
        if (!std::regex_match(line, restricted.directive)) continue;
        EXPECT_TRUE(std::regex_match(file.path, restricted.allowed_path))
            << file.path << ": " << restricted.what << " does not belong here: " << line;
      }
    }
  }
}

// What is special about an operator stands in its definition, as a fact that anybody may ask for. What reads and writes
// files of other systems (symbol/onnx, symbol/mxnet) maps their operators to ours, so it names them. docs/structure.md
// has the same in a command.
TEST(LayeringTest, OperatorsAreToldApartOnlyWhereTheyAreDefined) {
  static const std::regex kDefinition(R"(.*&[A-Za-z]*Op\(\).*)"),
      kAllowed(R"((symbol/ops|symbol/onnx|symbol/mxnet|tests)/.*)");
  for (const SourceFile& file : Tree()) {
    if (std::regex_match(file.path, kAllowed)) continue;
    for (const std::string& line : file.lines) {
      if (line.find("Op()") == std::string::npos) continue;
      EXPECT_FALSE(std::regex_match(line, kDefinition)) << file.path << " asks which operator it has: " << line;
    }
  }
}

TEST(LayeringTest, FilesAreShort) {
  for (const SourceFile& file : Tree()) {
    EXPECT_LE(file.lines.size(), kMaxLines) << file.path << " has more than " << kMaxLines << " lines";
  }
}

// A header that is included several times on purpose is named *_body.h, or says that it has no include guard.
TEST(LayeringTest, HeadersAreGuarded) {
  for (const SourceFile& file : Tree()) {
    if (!file.path.ends_with(".h") || file.path.ends_with("_body.h")) continue;
    // Compiled by themselves, where a compiler warns of a guard.
    if (file.path.ends_with("precompiled.h") || file.path.starts_with("tests/precompiled/")) continue;
    bool guarded = false;
    for (const std::string& line : file.lines) {
      guarded |= line == "#pragma once" || line.find("no include guard") != std::string::npos;
    }
    EXPECT_TRUE(guarded) << file.path << " lacks #pragma once";
  }
}

// Two types of one name in one namespace are one type to the linker: it would keep the inline members of either. Types
// that a file has for itself, in .cc files in anonymous namespaces, may be called what others are.
TEST(LayeringTest, NoTwoHeadersDefineTypesOfOneName) {
  static const std::regex kNamespace(R"(namespace ([\w:]+) \{.*)"), kEnd(R"(\}  // namespace.*)"),
      kType(R"((?:class|struct|enum class) (\w+)(?: final)?(?: :.*)? \{.*)");
  std::map<std::string, std::string> known;  // type, header
  for (const SourceFile& file : Tree()) {
    if (!file.path.ends_with(".h") || file.path.ends_with("_body.h") || file.path.starts_with("tests/")) continue;
    std::string scope;
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (std::regex_match(line, match, kNamespace)) scope += match[1].str() + "::";
      if (std::regex_match(line, kEnd)) scope.clear();
      if (!std::regex_match(line, match, kType)) continue;
      const auto [place, is_new] = known.emplace(scope + match[1].str(), file.path);
      EXPECT_TRUE(is_new || place->second == file.path)
          << file.path << " and " << place->second << " both define " << place->first;
    }
  }
  EXPECT_GT(known.size(), 300u);
}

// The rules are only as good as the reader of the lines they are applied to.
TEST(LayeringTest, ReadsIncludeLines) {
  const SourceFile file = {"x.cc",
                           {"#include <vector>", "  # include \"base/shape.h\"  // why", "// #include \"no.h\"",
                            "#include\t<fmt/core.h>", "text #include \"no.h\""}};
  const std::vector<Include> includes = Includes(file);
  ASSERT_EQ(includes.size(), 3u);
  EXPECT_EQ(includes[0].path, "vector");
  EXPECT_FALSE(includes[0].quoted);
  EXPECT_EQ(includes[1].path, "base/shape.h");
  EXPECT_TRUE(includes[1].quoted);
  EXPECT_EQ(includes[2].path, "fmt/core.h");
}

}  // namespace
}  // namespace bindery
