// The kernels' code for GPUs, as nvcc makes it: one file within the program, for all architectures.
#pragma once

extern "C" const unsigned long long bindery_cuda_image[];
