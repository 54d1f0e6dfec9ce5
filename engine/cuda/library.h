// Where NVIDIA's libraries are found. Private to engine/cuda.
#pragma once

#include <string>

namespace bindery::cuda {

// By the loader's search path, else from the toolkit's folder: CUDA_HOME's, into which packages of PyPI are laid, too, or
// the usual one. Null if it is not there; never closed. `problem`: the loader's reason.
void* OpenLibrary(const std::string& file, std::string* problem = nullptr);

}  // namespace bindery::cuda
