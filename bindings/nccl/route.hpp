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

enum class What { collective, alltoall, message, registration };

/// A call that moves data, as far as the choice depends on it.
struct Call {
  const char* name;  // "ncclAllReduce"
  ncclComm_t comm;
  cudaStream_t stream;
  size_t count;
  std::initializer_list<Buffer> buffers;  // those that this rank reads or writes
  What what = What::collective;
};

enum class Runner {
  epccl,          // on host memory
  epccl_on_cuda,  // on CUDA memory
  real,
  nobody,  // a collective that moves nothing
};

struct Route {
  Runner runner = Runner::epccl;
  CudaSidePtr side;  // with Runner::real
};

/// Error: CUDA memory without a real communicator that is needed, or a call with both kinds of memory.
Result<Route> route(const Call& call);

/// Calls an entry point of the real library about one of its communicators, within its group where one is open.
template <typename Function, typename Invoke>
ncclResult_t call_real(CudaSide& side, const char* name, Function function, Invoke invoke) {
  if (Status at_rest = check_at_rest(name, side); !at_rest.ok()) return refuse_call(at_rest);
  if (Status has = check_has(*side.library, function != nullptr, name); !has.ok()) return refuse_call(has);
  if (Status joined = join_group(*side.library); !joined.ok()) return refuse_call(joined);
  return note_call(from_real(invoke(function, side.real)));
}

/// An error where there is no such communicator.
inline ncclResult_t check_comm(ncclComm_t comm) {
  int rank = 0;
  return from_native(epcclCommUserRank(native(comm), &rank));
}

/// Runs `run_native(stream)`, or `run_real(entry point, real communicator)`.
template <typename Native, typename Function, typename Real>
ncclResult_t run(const Call& call, Native run_native, Function RealNccl::*entry, Real run_real) {
  if (!cuda_possible()) return note_call(from_native(run_native(native(call.stream))));
  const Result<Route> route_of_call = route(call);
  if (!route_of_call.ok()) return refuse_call(route_of_call.status());
  const CudaSidePtr& side = route_of_call->side;
  switch (route_of_call->runner) {
    case Runner::epccl:
      break;
    case Runner::epccl_on_cuda:
      return note_cuda_call(from_native(run_native(native_cuda(call.stream))));
    case Runner::real:
      return call_real(*side, call.name, side->library->*entry, run_real);
    case Runner::nobody:
      return note_call(check_comm(call.comm));
  }
  return note_call(from_native(run_native(native(call.stream))));
}

}  // namespace epccl::nccl
