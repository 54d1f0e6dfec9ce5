// Files that processes of one user keep for each other: what takes long to make and may be made again at any time.
//
// A folder that cannot be written is no error. One that is not the user's own, or that others may write to, is left
// alone: nobody else is to say what runs here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bindery {

// bindery/NAME in XDG_CACHE_HOME, or else in .cache of HOME; "": nowhere, for there is neither.
std::string CacheFolder(std::string_view name);

// Is it there, and may only this user write to it?
bool IsOwnFolder(const std::string& folder);

// "" if there is no such file, none of at most `limit` bytes, or the folder is not the user's own.
std::string ReadCached(const std::string& folder, const std::string& name, int64_t limit);
// Whole or not at all: false. What cannot be written is logged: "WHAT is not kept for other processes: ...".
bool WriteCached(const std::string& folder, const std::string& name, std::string_view content, std::string_view what);

}  // namespace bindery
