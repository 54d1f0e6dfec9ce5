// Private to train/extensions.
#pragma once

#include <string>

namespace bindery {

// Makes the folder that a file is to lie in, and those above it. Throws DataError.
void MakeFolderOf(const std::string& path);

}  // namespace bindery
