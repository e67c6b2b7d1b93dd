// The CUDA driver's functions, found at run time: nothing of CUDA is linked, so one binary runs with and without a driver.
#pragma once

#include <cuda.h>

#include <string>

#include "base/status.hpp"
#include "device/driver_call.hpp"

namespace epccl::device::cuda {

/// A function of the driver under the name of the ABI that its type is of.
template <typename Function>
struct Symbol {
  const char* name;
  Function* function = nullptr;
  explicit operator bool() const { return function != nullptr; }
  template <typename... Args>
  CUresult operator()(Args... args) const {
    const DriverCall call(name);
    return function(args...);
  }
};

// cuMemcpyBatchAsync lost an argument with CUDA 13; both are called, whatever the header at hand says.
using BatchCopyWithFailIndex = CUresult CUDAAPI(CUdeviceptr*, CUdeviceptr*, size_t*, size_t,
                                                CUmemcpyAttributes*, size_t*, size_t, size_t*, CUstream);
using BatchCopy = CUresult CUDAAPI(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*,
                                   size_t, CUstream);
// The header has it under other names; CUDA 11.3 and newer have this one.
using CaptureInfo = CUresult CUDAAPI(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                     const CUgraphNode**, size_t*);

// The header may call another one by this name; all drivers have this.
using ElapsedTime = CUresult CUDAAPI(float*, CUevent, CUevent);

struct Driver {
#define EPCCL_CUDA_SYMBOL(member, symbol) Symbol<decltype(::symbol)> member{#symbol};
#include "device/cuda/driver_symbols.inc"
#undef EPCCL_CUDA_SYMBOL
  Symbol<BatchCopyWithFailIndex> memcpy_batch_with_fail_index{"cuMemcpyBatchAsync"};
  Symbol<BatchCopy> memcpy_batch{"cuMemcpyBatchAsync_v2"};

  Symbol<CaptureInfo> capture_info{"cuStreamGetCaptureInfo_v2"};
  Symbol<ElapsedTime> elapsed_time{"cuEventElapsedTime"};

  int version = 0;  // 13000: CUDA 13.0
  bool has_vmm() const {
    return mem_create && mem_address_reserve && mem_map && mem_set_access && mem_export && mem_import &&
           mem_granularity && mem_unmap && mem_address_free && mem_release;
  }
  bool has_signals() const {
    return write_value && wait_value;
  }
  bool has_batch_copies() const {
    return memcpy_batch || memcpy_batch_with_fail_index;
  }
};

/// The driver of this machine, loaded and initialised at the first call. The error says what is missing.
const Result<const Driver*>& driver();

/// The driver, not initialised by this, where CUDA's pointers can appear in this process at all: the driver is loaded, or there
/// is a device and it can be. Else null, found out once.
const Driver* possible_driver();

/// What went wrong, of which function, where: "cuMemAlloc_v2 on GPU 0: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory".
Status driver_error(const Driver& driver, const char* function, CUresult result, int ordinal);

/// "13.0" for 13000.
std::string version_text(int version);

}  // namespace epccl::device::cuda
