// Which library runs a call: EPCCL, or, for CUDA memory, the real NCCL.
#pragma once

#include <initializer_list>

#include "convert.hpp"
#include "cuda_driver.hpp"
#include "cuda_side.hpp"
#include "group.hpp"
#include "last_error.hpp"

namespace epccl::nccl {

struct Buffer {
  const char* name;
  const void* pointer;
};

/// A call that moves data, as far as the choice depends on it.
struct Call {
  const char* name;  // "ncclAllReduce"
  ncclComm_t comm;
  cudaStream_t stream;
  size_t count;
  std::initializer_list<Buffer> buffers;  // those that this rank reads or writes
};

/// Null: EPCCL runs it; else the side whose real communicator does. Error: CUDA memory without a real communicator, or a call
/// with both kinds of memory.
Result<CudaSidePtr> route(const Call& call);

/// Calls an entry point of the real library about one of its communicators, within its group where one is open.
template <typename Function, typename Invoke>
ncclResult_t call_real(const CudaSide& side, const char* name, Function function, Invoke invoke) {
  if (Status has = check_has(*side.library, function != nullptr, name); !has.ok()) return refuse_call(has);
  if (Status joined = join_group(*side.library); !joined.ok()) return refuse_call(joined);
  return note_call(from_real(invoke(function, side.real), side.real));
}

/// Runs `run_native()`, or `run_real(entry point, real communicator)`.
template <typename Native, typename Function, typename Real>
ncclResult_t run(const Call& call, Native run_native, Function RealNccl::*entry, Real run_real) {
  if (!cuda_possible()) return note_call(from_native(run_native()));
  const Result<CudaSidePtr> side = route(call);
  if (!side.ok()) return refuse_call(side.status());
  if (side.value() == nullptr) return note_call(from_native(run_native()));
  return call_real(*side.value(), call.name, side.value()->library->*entry, run_real);
}

}  // namespace epccl::nccl
