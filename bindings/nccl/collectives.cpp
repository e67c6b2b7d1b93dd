// Collectives, sends and receives. For the choice of library, a call's buffers are those that this rank reads or writes.
#include "entry_points.hpp"
#include "reduction_ops.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

// A bad communicator or root is for the callee to refuse: no rank is the root of it then.
bool is_root(ncclComm_t comm, int root) {
  int rank = -1;
  return epcclCommUserRank(native(comm), &rank) == epcclSuccess && rank == root;
}

}  // namespace

ncclResult_t AllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return run(
      {"ncclAllReduce", comm, stream, count, {{"sendbuff", sendbuff}, {"recvbuff", recvbuff}}},
      [&](epcclStream_t its) {
        return epcclAllReduce(sendbuff, recvbuff, count, native(datatype), native_op(op, comm), native(comm),
                              its);
      },
      &RealNccl::AllReduce,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, recvbuff, count, datatype, real_op(op, comm), real, stream);
      });
}

ncclResult_t ReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return run(
      {"ncclReduceScatter", comm, stream, recvcount, {{"sendbuff", sendbuff}, {"recvbuff", recvbuff}}},
      [&](epcclStream_t its) {
        return epcclReduceScatter(sendbuff, recvbuff, recvcount, native(datatype), native_op(op, comm),
                                  native(comm), its);
      },
      &RealNccl::ReduceScatter,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, recvbuff, recvcount, datatype, real_op(op, comm), real, stream);
      });
}

ncclResult_t Reduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const void* const written = cuda_possible() && is_root(comm, root) ? recvbuff : nullptr;
  return run(
      {"ncclReduce", comm, stream, count, {{"sendbuff", sendbuff}, {"recvbuff", written}}},
      [&](epcclStream_t its) {
        return epcclReduce(sendbuff, recvbuff, count, native(datatype), native_op(op, comm), root,
                           native(comm), its);
      },
      &RealNccl::Reduce,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, recvbuff, count, datatype, real_op(op, comm), root, real, stream);
      });
}

ncclResult_t Broadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  const void* const read = cuda_possible() && is_root(comm, root) ? sendbuff : nullptr;
  return run(
      {"ncclBroadcast", comm, stream, count, {{"sendbuff", read}, {"recvbuff", recvbuff}}},
      [&](epcclStream_t its) {
        return epcclBroadcast(sendbuff, recvbuff, count, native(datatype), root, native(comm), its);
      },
      &RealNccl::Broadcast,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, recvbuff, count, datatype, root, real, stream);
      });
}

ncclResult_t Bcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                   cudaStream_t stream) {
  return run(
      {"ncclBcast", comm, stream, count, {{"buff", buff}}},
      [&](epcclStream_t its) {
        return epcclBroadcast(buff, buff, count, native(datatype), root, native(comm), its);
      },
      &RealNccl::Bcast,
      [&](auto function, ncclComm_t real) { return function(buff, count, datatype, root, real, stream); });
}

ncclResult_t AllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                       ncclComm_t comm, cudaStream_t stream) {
  return run(
      {"ncclAllGather", comm, stream, sendcount, {{"sendbuff", sendbuff}, {"recvbuff", recvbuff}}},
      [&](epcclStream_t its) {
        return epcclAllGather(sendbuff, recvbuff, sendcount, native(datatype), native(comm), its);
      },
      &RealNccl::AllGather,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, recvbuff, sendcount, datatype, real, stream);
      });
}

ncclResult_t AlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                      ncclComm_t comm, cudaStream_t stream) {
  return run(
      {"ncclAlltoAll", comm, stream, count, {{"sendbuff", sendbuff}, {"recvbuff", recvbuff}}, What::alltoall},
      [&](epcclStream_t its) {
        return epcclAlltoall(sendbuff, recvbuff, count, native(datatype), native(comm), its);
      },
      &RealNccl::AlltoAll,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, recvbuff, count, datatype, real, stream);
      });
}

ncclResult_t Gather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  const void* const written = cuda_possible() && is_root(comm, root) ? recvbuff : nullptr;
  return run(
      {"ncclGather", comm, stream, count, {{"sendbuff", sendbuff}, {"recvbuff", written}}},
      [&](epcclStream_t its) {
        return epcclGather(sendbuff, recvbuff, count, native(datatype), root, native(comm), its);
      },
      &RealNccl::Gather,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, recvbuff, count, datatype, root, real, stream);
      });
}

ncclResult_t Scatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                     ncclComm_t comm, cudaStream_t stream) {
  const void* const read = cuda_possible() && is_root(comm, root) ? sendbuff : nullptr;
  return run(
      {"ncclScatter", comm, stream, count, {{"sendbuff", read}, {"recvbuff", recvbuff}}},
      [&](epcclStream_t its) {
        return epcclScatter(sendbuff, recvbuff, count, native(datatype), root, native(comm), its);
      },
      &RealNccl::Scatter,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, recvbuff, count, datatype, root, real, stream);
      });
}

ncclResult_t Send(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return run(
      {"ncclSend", comm, stream, count, {{"sendbuff", sendbuff}}, What::message},
      [&](epcclStream_t its) {
        return epcclSend(sendbuff, count, native(datatype), peer, native(comm), its);
      },
      &RealNccl::Send,
      [&](auto function, ncclComm_t real) {
        return function(sendbuff, count, datatype, peer, real, stream);
      });
}

ncclResult_t Recv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return run(
      {"ncclRecv", comm, stream, count, {{"recvbuff", recvbuff}}, What::message},
      [&](epcclStream_t its) {
        return epcclRecv(recvbuff, count, native(datatype), peer, native(comm), its);
      },
      &RealNccl::Recv,
      [&](auto function, ncclComm_t real) {
        return function(recvbuff, count, datatype, peer, real, stream);
      });
}

}  // namespace epccl::nccl
