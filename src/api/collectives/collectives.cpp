// epcclAlltoall, epcclAlltoallv, epcclSend, epcclRecv, groups: argument checks, then one call inward.
#include <algorithm>

#include "api/collectives/input_copy.hpp"
#include "api/device/device_calls.hpp"
#include "api/groups/group.hpp"
#include "api/handles/arguments.hpp"
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"

namespace epccl::api {
namespace {

Status alltoall(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                epcclComm_t comm, epcclStream_t stream) {
  EPCCL_ASSIGN(CommPtr communicator, find_usable_communicator(comm));
  EPCCL_ASSIGN(const uint64_t element, datatype_bytes(datatype));
  const auto ranks = static_cast<uint64_t>(communicator->ranks());
  EPCCL_ASSIGN(const uint64_t bytes, checked_bytes("count", count, element, ranks));
  EPCCL_TRY(check_buffer("sendbuff", sendbuff, bytes));
  EPCCL_TRY(check_buffer("recvbuff", recvbuff, bytes));
  const bool is_copied = overlap(sendbuff, bytes, recvbuff, bytes);
  runtime::AlltoallCall call{
      sendbuff, recvbuff, count * element, count, datatype_name(datatype), communicator->engine_use()};
  EPCCL_ASSIGN(
      device::Device * gpu,
      device_of(*communicator, {{"sendbuff", sendbuff, bytes}, {"recvbuff", recvbuff, bytes}}, stream));
  if (gpu != nullptr) return submit_on_device(*gpu, std::move(communicator), call, is_copied, stream);
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(stream));
  runtime::Communicator* target = communicator.get();
  const InputCopy copy(is_copied ? bytes : 0);
  const auto work = [target, copy](runtime::AlltoallCall& each) {
    copy.take_input_of(each);
    return target->alltoall(each);
  };
  if (queue == nullptr && !in_group()) return run_now(*target, [&] { return work(call); });
  return submit(
      {std::move(communicator), queue,
       CollectiveWork{[work, call]() mutable { return work(call); },
                      [target, block = call.block_bytes] { return target->predict_alltoall(block); }}});
}

// Bytes and offsets of every block, and the extent of the buffer they lie in.
struct Blocks {
  std::vector<uint64_t> bytes, offsets;
  uint64_t extent = 0;
};

/// An argument with a number for each rank.
struct PerRank {
  const char* name;
  const size_t* values;

  Result<uint64_t> bytes(int rank, uint64_t element) const {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(values[rank]), element, &bytes) || bytes > INT64_MAX)
      return error(Code::invalid_argument, "{}[{}] is {}: x {} bytes overflows", name, rank, values[rank],
                   element);
    return bytes;
  }
};

Result<Blocks> read_blocks(const PerRank& counts, const PerRank& displs, int ranks, uint64_t element) {
  for (const PerRank& argument : {counts, displs})
    if (argument.values == nullptr) return error(Code::invalid_argument, "{} is NULL", argument.name);
  Blocks blocks;
  blocks.bytes.reserve(static_cast<size_t>(ranks));
  blocks.offsets.reserve(static_cast<size_t>(ranks));
  for (int peer = 0; peer < ranks; ++peer) {
    EPCCL_ASSIGN(const uint64_t bytes, counts.bytes(peer, element));
    EPCCL_ASSIGN(const uint64_t offset, displs.bytes(peer, element));
    blocks.bytes.push_back(bytes);
    blocks.offsets.push_back(offset);
    if (bytes == 0) continue;
    if (offset + bytes > most_bytes)
      return error(Code::invalid_argument,
                   "{}[{}] {} at {} {}: x {} bytes overflows the address space ({} bytes)", counts.name, peer,
                   counts.values[peer], displs.name, displs.values[peer], element, most_bytes);
    blocks.extent = std::max(blocks.extent, offset + bytes);
  }
  return blocks;
}

/// Mostly they are, and no copy of them needs to be sorted.
bool lie_in_order(const Blocks& blocks) {
  uint64_t end = 0;
  for (size_t peer = 0; peer < blocks.bytes.size(); ++peer) {
    if (blocks.bytes[peer] == 0) continue;
    if (blocks.offsets[peer] < end) return false;
    end = blocks.offsets[peer] + blocks.bytes[peer];
  }
  return true;
}

Status check_no_overlap(const Blocks& blocks) {
  if (lie_in_order(blocks)) return {};
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (size_t peer = 0; peer < blocks.bytes.size(); ++peer)
    if (blocks.bytes[peer] > 0) ranges.emplace_back(blocks.offsets[peer], blocks.bytes[peer]);
  std::ranges::sort(ranges);
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i - 1].first + ranges[i - 1].second > ranges[i].first)
      return error(Code::invalid_argument,
                   "blocks of recvbuff overlap: {} bytes at byte {}, and a block at byte {}",
                   ranges[i - 1].second, ranges[i - 1].first, ranges[i].first);
  return {};
}

Status alltoallv(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
                 const size_t* recvcounts, const size_t* rdispls, epcclDataType_t datatype, epcclComm_t comm,
                 epcclStream_t stream) {
  EPCCL_ASSIGN(CommPtr communicator, find_usable_communicator(comm));
  EPCCL_ASSIGN(const uint64_t element, datatype_bytes(datatype));
  EPCCL_ASSIGN(Blocks send,
               read_blocks({"sendcounts", sendcounts}, {"sdispls", sdispls}, communicator->ranks(), element));
  EPCCL_ASSIGN(Blocks recv,
               read_blocks({"recvcounts", recvcounts}, {"rdispls", rdispls}, communicator->ranks(), element));
  EPCCL_TRY(check_buffer("sendbuff", sendbuff, send.extent));
  EPCCL_TRY(check_buffer("recvbuff", recvbuff, recv.extent));
  EPCCL_TRY(check_no_overlap(recv));
  const bool is_copied = overlap(sendbuff, send.extent, recvbuff, recv.extent);
  runtime::AlltoallvCall call{sendbuff,
                              recvbuff,
                              std::move(send.bytes),
                              std::move(send.offsets),
                              std::move(recv.bytes),
                              std::move(recv.offsets),
                              datatype_name(datatype),
                              communicator->engine_use()};
  EPCCL_ASSIGN(device::Device * gpu,
               device_of(*communicator,
                         {{"sendbuff", sendbuff, send.extent}, {"recvbuff", recvbuff, recv.extent}}, stream));
  if (gpu != nullptr)
    return submit_on_device(*gpu, std::move(communicator), std::move(call), is_copied, stream);
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(stream));
  runtime::Communicator* target = communicator.get();
  const InputCopy copy(is_copied ? send.extent : 0);
  const auto work = [target, copy](runtime::AlltoallvCall& each) {
    copy.take_input_of(each);
    return target->alltoallv(each);
  };
  if (queue == nullptr && !in_group()) return run_now(*target, [&] { return work(call); });
  const uint64_t mean = call.mean();
  return submit({std::move(communicator), queue,
                 CollectiveWork{[work, call = std::move(call)]() mutable { return work(call); },
                                [target, mean] { return target->predict_alltoall(mean); }}});
}

Status point_to_point(bool is_send, const void* source, void* destination, size_t count,
                      epcclDataType_t datatype, int peer, epcclComm_t comm, epcclStream_t stream) {
  EPCCL_ASSIGN(CommPtr communicator, find_usable_communicator(comm));
  EPCCL_ASSIGN(const uint64_t element, datatype_bytes(datatype));
  EPCCL_ASSIGN(const uint64_t bytes, checked_bytes("count", count, element, 1));
  EPCCL_TRY(check_buffer(is_send ? "sendbuff" : "recvbuff", is_send ? source : destination, bytes));
  EPCCL_TRY(check_rank("peer", peer, communicator->ranks()));
  if (peer == communicator->rank() && !in_group() && !communicator->revoked() && communicator->failure().ok())
    return error(Code::invalid_usage,
                 "rank {}: a message to itself that is not in a group, where its other end would be", peer);
  runtime::P2pOperation operation{is_send, source, destination, bytes, peer, count, datatype_name(datatype)};
  EPCCL_ASSIGN(device::Device * gpu,
               device_of_message(*communicator, is_send ? source : destination, bytes, stream));
  if (gpu != nullptr) return submit_on_device(*gpu, std::move(communicator), std::move(operation), stream);
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(stream));
  return submit(std::move(communicator), queue, std::move(operation));
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclAlltoall(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                            epcclComm_t comm, epcclStream_t stream) {
  return guarded([&] { return refuse(alltoall(sendbuff, recvbuff, count, datatype, comm, stream)); });
}

epcclResult_t epcclAlltoallv(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                             void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                             epcclDataType_t datatype, epcclComm_t comm, epcclStream_t stream) {
  return guarded([&] {
    return refuse(
        alltoallv(sendbuff, sendcounts, sdispls, recvbuff, recvcounts, rdispls, datatype, comm, stream));
  });
}

epcclResult_t epcclSend(const void* sendbuff, size_t count, epcclDataType_t datatype, int peer,
                        epcclComm_t comm, epcclStream_t stream) {
  return guarded(
      [&] { return refuse(point_to_point(true, sendbuff, nullptr, count, datatype, peer, comm, stream)); });
}

epcclResult_t epcclRecv(void* recvbuff, size_t count, epcclDataType_t datatype, int peer, epcclComm_t comm,
                        epcclStream_t stream) {
  return guarded(
      [&] { return refuse(point_to_point(false, nullptr, recvbuff, count, datatype, peer, comm, stream)); });
}

epcclResult_t epcclGroupStart(void) {
  return guarded(group_start);
}
epcclResult_t epcclGroupEnd(void) {
  return guarded([] { return group_end(); });
}
epcclResult_t epcclGroupEndBeside(void (*beside)(void* argument), void* argument) {
  return guarded([&] {
    if (beside == nullptr) return group_end();
    return group_end([&] { beside(argument); });
  });
}
