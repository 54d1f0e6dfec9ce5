// A training described in a file of text (.prototxt): proto/solver.proto.
#pragma once

#include <map>
#include <string>

namespace bindery::cli {

// The options that the file gives, as they would stand on the command line: "--batch-size": "64"; flags are "true" or
// "false". Throws DataError for a file that cannot be read, UsageError with line and column for one that is no solver.
std::map<std::string, std::string> ReadSolver(const std::string& path);

}  // namespace bindery::cli
