// A test double of the CUDA driver: it knows which memory is "CUDA's" because the test said so, and has contexts that are
// numbers. A library of its own, libcuda.so.1, since that is how the driver is found.
#pragma once

#include <cstddef>

extern "C" {
/// Memory that the double calls device memory, or pinned host memory.
void* fake_cuda_allocate(size_t bytes, bool pinned);
void fake_cuda_free(void* memory);

// Of the driver itself.
int cuCtxGetCurrent(void** context);
int cuCtxSetCurrent(void* context);
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
}
