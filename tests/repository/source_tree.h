// The repository's sources as text, for tests of rules that the compiler does not know.
#pragma once

#include <string>
#include <vector>

namespace bindery {

struct SourceFile {
  std::string path;  // from the root: "engine/engine.h"
  std::vector<std::string> lines;
};

// All C++ sources and headers, sorted by path, without generated ones.
std::vector<SourceFile> ReadSourceTree();

// README.md and the pages of docs/.
std::vector<SourceFile> ReadDocs();

struct Include {
  std::string path;
  bool quoted = false;  // "path" and not <path>
};

// The #include lines of `file`.
std::vector<Include> Includes(const SourceFile& file);

}  // namespace bindery
