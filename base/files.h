// Files: whole-file reading with a limit, writing that never leaves a half-written file, and folders for them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace bindery {

// Reads a regular file. Throws DataError (path, reason) if absent, not regular, or larger than `limit` bytes.
std::string ReadFile(const std::string& path, int64_t limit = int64_t{1} << 40);

// Writes beside `path` (a temporary name in the same folder), fsyncs, renames over `path`, fsyncs the folder. On any
// failure the temporary is removed, an existing `path` is untouched, and DataError (path, errno text) is thrown; only
// when the last of these steps fails is the new content in place already. A link is followed, and an existing file that
// is not a regular one is refused. A killed process may leave a file ".bindery-*.tmp" behind.
void WriteFileAtomically(const std::string& path, std::string_view bytes);

// The same for content produced in pieces: `writer` receives a sink to call any number of times.
using ByteSink = std::function<void(const void* data, int64_t size)>;
void WriteFileAtomically(const std::string& path, const std::function<void(const ByteSink&)>& writer);

// Makes a folder and those above it, if they are not there. Throws DataError (path, errno text).
void MakeFolder(const std::string& path);
// The same of the folder that a file is to lie in.
void MakeFolderOf(const std::string& file);

// 64-bit checksum (XXH3) of bytes; `seed` chains pieces.
uint64_t Checksum(const void* data, int64_t size, uint64_t seed = 0);

}  // namespace bindery
