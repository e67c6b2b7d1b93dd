#include "perf/src/collective.hpp"

#include <utility>

#include "perf/src/complaints.hpp"
#include "perf/src/reduction_data.hpp"

namespace epccl::perf {
namespace {

epcclRedOp_t own_operation(RedOp op) {
  switch (op) {
    case RedOp::prod:
      return epcclProd;
    case RedOp::max:
      return epcclMax;
    case RedOp::min:
      return epcclMin;
    case RedOp::avg:
      return epcclAvg;
    default:
      return epcclSum;
  }
}

}  // namespace

Result<ReduceOperation> ReduceOperation::make(Communicator& communicator, RedOp op, const DataType& type,
                                              uint64_t scalar) {
  ReduceOperation made(own_operation(op));
  if (op != RedOp::mulsum) return made;
  const epcclResult_t result =
      epcclRedOpCreatePreMulSum(&made.op_, &scalar, type.id, epcclScalarHostImmediate, communicator.get());
  EPCCL_TRY(api_status("epcclRedOpCreatePreMulSum", result, communicator.get()));
  made.owner_ = &communicator;
  return made;
}

ReduceOperation::ReduceOperation(ReduceOperation&& other) noexcept
    : op_(other.op_), owner_(std::exchange(other.owner_, nullptr)) {}

ReduceOperation& ReduceOperation::operator=(ReduceOperation&& other) noexcept {
  std::swap(op_, other.op_);
  std::swap(owner_, other.owner_);
  return *this;
}

ReduceOperation::~ReduceOperation() {
  // An aborted communicator has forgotten its operations.
  if (owner_ != nullptr && owner_->get() != nullptr) static_cast<void>(epcclRedOpDestroy(op_, owner_->get()));
}

Collective::Collective(RowKey key, int rank)
    : Call(std::move(key)),
      rank_(rank),
      extent_(
          extent_of(this->key().operation, rank, this->key().ranks, this->key().root, this->key().count)) {}

uint64_t Collective::output_bytes(bool in_place) const {
  return (in_place ? extent_.whole() : extent_.output) * type().bytes;
}

Operands Collective::place(const Buffer& input, const Buffer& output, bool in_place) const {
  const size_t bytes = type().bytes;
  const uint64_t all = output_bytes(in_place);
  if (!in_place) return {input.first(input_bytes()), output.first(all), output.behind(all)};
  const auto whole = output.first(all);
  return {whole.subspan(extent_.input_in_place * bytes, input_bytes()),
          whole.subspan(extent_.output_in_place * bytes, extent_.output * bytes), output.behind(all)};
}

Status Collective::attach(Communicator& communicator) {
  reduce_operation_.reset();
  if (!reduces(key().operation)) return {};
  EPCCL_ASSIGN(ReduceOperation made, ReduceOperation::make(communicator, *key().redop, type(),
                                                           ReductionData::scalar_bits(type(), rank_)));
  reduce_operation_ = std::move(made);
  return {};
}

Status Collective::exchange_in_ring(epcclComm_t comm, const Operands& operands, epcclStream_t stream) const {
  const int ranks = key().ranks, next = (rank_ + 1) % ranks, before = (rank_ + ranks - 1) % ranks;
  EPCCL_TRY(api_status("epcclGroupStart", epcclGroupStart(), comm));
  const epcclResult_t sent = epcclSend(operands.input.data(), key().count, type().id, next, comm, stream);
  const epcclResult_t received =
      epcclRecv(operands.output.data(), key().count, type().id, before, comm, stream);
  const Status ended = api_status("epcclGroupEnd", epcclGroupEnd(), comm);
  EPCCL_TRY(api_status("epcclSend", sent, comm));
  EPCCL_TRY(api_status("epcclRecv", received, comm));
  return ended;
}

Status Collective::issue(Communicator& communicator, const Operands& operands, epcclStream_t stream) const {
  const epcclComm_t comm = communicator.get();
  const void* from = operands.input.data();
  void* to = operands.output.data();
  const size_t count = key().count;
  const epcclDataType_t id = type().id;
  const int root = key().root;
  const auto op = [this] { return reduce_operation_->get(); };
  switch (key().operation) {
    case Operation::allgather:
      return api_status("epcclAllGather", epcclAllGather(from, to, count, id, comm, stream), comm);
    case Operation::reduce_scatter:
      return api_status("epcclReduceScatter", epcclReduceScatter(from, to, count, id, op(), comm, stream),
                        comm);
    case Operation::allreduce:
      return api_status("epcclAllReduce", epcclAllReduce(from, to, count, id, op(), comm, stream), comm);
    case Operation::broadcast:
      return api_status("epcclBroadcast", epcclBroadcast(from, to, count, id, root, comm, stream), comm);
    case Operation::reduce:
      return api_status("epcclReduce", epcclReduce(from, to, count, id, op(), root, comm, stream), comm);
    case Operation::gather:
      return api_status("epcclGather", epcclGather(from, to, count, id, root, comm, stream), comm);
    case Operation::scatter:
      return api_status("epcclScatter", epcclScatter(from, to, count, id, root, comm, stream), comm);
    default:
      return exchange_in_ring(comm, operands, stream);
  }
}

std::vector<BlockId> Collective::sent_blocks(uint64_t number) const {
  std::vector<BlockId> blocks;
  if (key().operation == Operation::scatter) {
    for (int peer = 0; rank_ == key().root && peer < key().ranks; ++peer)
      blocks.push_back({rank_, peer, number});
  } else if (extent_.input > 0) {
    blocks.push_back({rank_, 0, number});
  }
  return blocks;
}

std::vector<BlockId> Collective::received_blocks(uint64_t number) const {
  switch (key().operation) {
    case Operation::broadcast:
      return {{key().root, 0, number}};
    case Operation::scatter:
      return {{key().root, rank_, number}};
    case Operation::sendrecv:
      return {{(rank_ + key().ranks - 1) % key().ranks, 0, number}};
    default:
      break;
  }
  std::vector<BlockId> blocks;
  if (extent_.output > 0)
    for (int peer = 0; peer < key().ranks; ++peer) blocks.push_back({peer, 0, number});
  return blocks;
}

void Collective::prepare(const Operands& operands, uint64_t number) const {
  poison(operands.output);  // before there is data where both are one
  poison(operands.guard);
  if (reduces(key().operation))
    return ReductionData(type(), *key().redop, key().ranks, number).fill(operands.input, rank_);
  const size_t bytes = key().count * type().bytes;
  size_t at = 0;
  for (const BlockId& block : sent_blocks(number)) {
    fill_block(operands.input.subspan(at, bytes), block);
    at += bytes;
  }
}

uint64_t Collective::check(const Operands& operands, uint64_t number, const std::string& title) const {
  Complaints complaints(rank_, type(), title);
  const uint64_t count = key().count;
  if (reduces(key().operation)) {
    const uint64_t first =
        key().operation == Operation::reduce_scatter ? static_cast<uint64_t>(rank_) * count : 0;
    const ReductionData data(type(), *key().redop, key().ranks, number);
    complaints.add(data.check(operands.output, first), "result", 0, extent_.output);
  } else {
    uint64_t at = 0;
    for (const BlockId& block : received_blocks(number)) {
      const auto part = operands.output.subspan(at * type().bytes, count * type().bytes);
      complaints.add(check_block(part, block, type().bytes), fmt::format("data from rank {}", block.source),
                     at, count);
      at += count;
    }
  }
  complaints.add_guard(operands.guard);
  return complaints.wrong();
}

}  // namespace epccl::perf
