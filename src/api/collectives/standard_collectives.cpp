// epcclAllReduce and the other collectives beside alltoall: argument checks, then one call inward.
#include <cstring>

#include "algorithms/collectives/collective.hpp"
#include "api/collectives/input_copy.hpp"
#include "api/collectives/reductions.hpp"
#include "api/device/device_calls.hpp"
#include "api/groups/group.hpp"
#include "api/handles/arguments.hpp"
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"

namespace epccl::api {
namespace {

using algorithms::Collective;

/// The arguments of any of them; `op` and `root` where there are such.
struct Arguments {
  Collective kind;
  const void* sendbuff;
  void* recvbuff;
  size_t count;
  epcclDataType_t datatype;
  epcclRedOp_t op;
  int root;
  epcclComm_t comm;
  epcclStream_t stream;
};

/// Of the longest buffer of any rank.
uint64_t most_blocks(Collective kind, int ranks) {
  switch (kind) {
    case Collective::allreduce:
    case Collective::broadcast:
    case Collective::reduce:
      return 1;
    default:
      return static_cast<uint64_t>(ranks);
  }
}

/// Bytes of a rank's buffers.
struct Extents {
  uint64_t send, recv;
};

Extents extents_of(const runtime::Communicator& communicator, const algorithms::CollectiveSpec& call) {
  const auto bytes = [&](int blocks) { return static_cast<uint64_t>(blocks) * call.bytes; };
  return {bytes(algorithms::input_blocks(communicator.cluster(), call, communicator.rank())),
          bytes(algorithms::output_blocks(communicator.cluster(), call, communicator.rank()))};
}

/// Whether buffers overlap, and do not lie as in a call in place.
bool needs_copy(const Arguments& args, const Extents& bytes, const algorithms::CollectiveSpec& call,
                int rank) {
  if (!overlap(args.sendbuff, bytes.send, args.recvbuff, bytes.recv)) return false;
  const uint64_t own = static_cast<uint64_t>(rank) * call.bytes;
  const bool scatters = call.kind == Collective::reduce_scatter || call.kind == Collective::scatter;
  const bool gathers = call.kind == Collective::allgather || call.kind == Collective::gather;
  const auto from = reinterpret_cast<uintptr_t>(args.sendbuff),
             to = reinterpret_cast<uintptr_t>(args.recvbuff);
  return from + (scatters ? own : 0) != to + (gathers ? own : 0);
}

Status run(const Arguments& args) {
  EPCCL_ASSIGN(CommPtr communicator, find_usable_communicator(args.comm));
  EPCCL_ASSIGN(const uint64_t element, datatype_bytes(args.datatype));
  EPCCL_TRY(
      checked_bytes("count", args.count, element, most_blocks(args.kind, communicator->ranks())).status());
  if (algorithms::has_root(args.kind)) EPCCL_TRY(check_rank("root", args.root, communicator->ranks()));
  runtime::CollectiveCall call;
  call.what = {args.kind, args.count * element, args.root, element};
  Operation operation;
  if (algorithms::reduces(args.kind)) {
    EPCCL_ASSIGN(operation, find_operation(args.op, args.datatype, args.comm, communicator->ranks()));
    call.reduction = operation.reduction;
  }
  const Extents bytes = extents_of(*communicator, call.what);
  EPCCL_TRY(check_buffer("sendbuff", args.sendbuff, bytes.send));
  EPCCL_TRY(check_buffer("recvbuff", args.recvbuff, bytes.recv));
  const bool is_copied = needs_copy(args, bytes, call.what, communicator->rank());
  call.input = args.sendbuff;
  call.output = args.recvbuff;
  call.engines = communicator->engine_use();
  call.count = args.count;
  call.datatype = datatype_name(args.datatype);
  call.operation = operation.name;
  EPCCL_ASSIGN(device::Device * gpu,
               device_of(*communicator,
                         {{"sendbuff", args.sendbuff, bytes.send}, {"recvbuff", args.recvbuff, bytes.recv}},
                         args.stream));
  if (gpu != nullptr)
    return submit_on_device(*gpu, std::move(communicator), std::move(call), is_copied,
                            operation.device_scalar, args.stream);
  EPCCL_TRY(need_host_memory("the scalar of a reduction of host memory", operation.device_scalar));
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(args.stream));
  const InputCopy copy(is_copied ? bytes.send : 0);
  const auto work = [copy](runtime::Communicator& target, runtime::CollectiveCall& each, const void* scalar) {
    copy.take_input_of(each);
    if (scalar != nullptr) std::memcpy(&each.reduction->scalar_bits, scalar, each.what.unit);
    return target.collective(each);
  };
  runtime::Communicator* target = communicator.get();
  if (queue == nullptr && !in_group())
    return run_now(*target, [&] { return work(*target, call, operation.device_scalar); });
  CollectiveWork ready;
  if (in_group()) ready.predict = [target, call] { return target->predict_collective(call); };
  ready.run = [target, work, call = std::move(call), scalar = operation.device_scalar]() mutable {
    return work(*target, call, scalar);
  };
  return submit({std::move(communicator), queue, std::move(ready)});
}

epcclResult_t checked(const Arguments& args) {
  return guarded([&] { return refuse(run(args)); });
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclAllReduce(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                             epcclRedOp_t op, epcclComm_t comm, epcclStream_t stream) {
  return checked({Collective::allreduce, sendbuff, recvbuff, count, datatype, op, 0, comm, stream});
}

epcclResult_t epcclReduce(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                          epcclRedOp_t op, int root, epcclComm_t comm, epcclStream_t stream) {
  return checked({Collective::reduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream});
}

epcclResult_t epcclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                 epcclDataType_t datatype, epcclRedOp_t op, epcclComm_t comm,
                                 epcclStream_t stream) {
  return checked({Collective::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream});
}

epcclResult_t epcclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, epcclDataType_t datatype,
                             epcclComm_t comm, epcclStream_t stream) {
  return checked({Collective::allgather, sendbuff, recvbuff, sendcount, datatype, epcclSum, 0, comm, stream});
}

epcclResult_t epcclBroadcast(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                             int root, epcclComm_t comm, epcclStream_t stream) {
  return checked({Collective::broadcast, sendbuff, recvbuff, count, datatype, epcclSum, root, comm, stream});
}

epcclResult_t epcclGather(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                          int root, epcclComm_t comm, epcclStream_t stream) {
  return checked({Collective::gather, sendbuff, recvbuff, count, datatype, epcclSum, root, comm, stream});
}

epcclResult_t epcclScatter(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                           int root, epcclComm_t comm, epcclStream_t stream) {
  return checked({Collective::scatter, sendbuff, recvbuff, count, datatype, epcclSum, root, comm, stream});
}

epcclResult_t epcclRedOpCreatePreMulSum(epcclRedOp_t* op, void* scalar, epcclDataType_t datatype,
                                        epcclScalarResidence_t residence, epcclComm_t comm) {
  return guarded([&]() -> epccl::Status {
    if (op == nullptr) return {epccl::Code::invalid_argument, "op is NULL"};
    EPCCL_TRY(find_usable_communicator(comm).status());
    EPCCL_ASSIGN(*op, add_premul_sum(scalar, datatype, residence, comm));
    return {};
  });
}

epcclResult_t epcclRedOpDestroy(epcclRedOp_t op, epcclComm_t comm) {
  return guarded([&]() -> epccl::Status {
    EPCCL_TRY(find_communicator(comm).status());
    return remove_operation(op, comm);
  });
}
