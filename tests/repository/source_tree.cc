#include "tests/repository/source_tree.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <stdexcept>

namespace bindery {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> ReadLines(const fs::path& path) {
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Bazel lays out the files that a test declares as its data under $TEST_SRCDIR/<workspace>.
std::vector<SourceFile> ReadAll(const std::set<std::string>& extensions) {
  const char* sources = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  if (sources == nullptr || workspace == nullptr) throw std::runtime_error("run this test with bazel");
  const fs::path root = fs::path(sources) / workspace;
  std::vector<SourceFile> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (!extensions.contains(entry.path().extension()) || fs::is_directory(entry.path())) continue;
    // Lexically: the entries are links into the real tree.
    files.push_back({entry.path().lexically_relative(root), ReadLines(entry.path())});
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

}  // namespace

std::vector<SourceFile> ReadSourceTree() { return ReadAll({".h", ".cc", ".cu", ".cuh"}); }

std::vector<SourceFile> ReadDocs() { return ReadAll({".md"}); }

std::vector<Include> Includes(const SourceFile& file) {
  static const std::regex kInclude(R"rx(^\s*#\s*include\s*([<"])([^>"]+)[>"].*$)rx");
  std::vector<Include> includes;
  for (const std::string& line : file.lines) {
    std::smatch match;
    if (std::regex_match(line, match, kInclude)) includes.push_back({match[2], match[1] == "\""});
  }
  return includes;
}

}  // namespace bindery
