// Checkpoints that a run does not go on from any more, and that nobody should lose.
#pragma once

#include <string>
#include <system_error>

namespace bindery {

// Renames `path` to "<path>.old", or ".old2", ".old3" ...: the first that is not there, for what was set aside before is
// kept. Returns the new name; where the file cannot be renamed, `error` is set and it stays.
std::string SetAside(const std::string& path, std::error_code* error);

}  // namespace bindery
