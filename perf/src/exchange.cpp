#include "perf/src/exchange.hpp"

#include "perf/src/check.hpp"
#include "perf/src/complaints.hpp"

namespace epccl::perf {

Exchange::Exchange(RowKey key, bool grouped, const CountMatrix& counts, int rank)
    : Call(std::move(key)), grouped_(grouped), rank_(rank) {
  for (int peer = 0; peer < counts.ranks(); ++peer) {
    sent_counts_.push_back(counts.at(rank_, peer));
    sent_offsets_.push_back(sent_elements_);
    sent_elements_ += sent_counts_.back();
    received_counts_.push_back(counts.at(peer, rank_));
    received_offsets_.push_back(received_elements_);
    received_elements_ += received_counts_.back();
  }
}

uint64_t Exchange::output_bytes(bool /*in_place*/) const {
  return received_elements_ * type().bytes;
}

Operands Exchange::place(const Buffer& input, const Buffer& output, bool /*in_place*/) const {
  const uint64_t received = output_bytes(false);
  return {input.first(input_bytes()), output.first(received), output.behind(received)};
}

Status Exchange::issue(Communicator& communicator, const Operands& operands, epcclStream_t stream) const {
  const epcclComm_t comm = communicator.get();
  const void* from = operands.input.data();
  void* to = operands.output.data();
  if (grouped_) return issue_group(comm, operands, stream);
  if (key().operation == Operation::alltoall) {
    return api_status("epcclAlltoall", epcclAlltoall(from, to, sent_counts_[0], type().id, comm, stream),
                      comm);
  }
  return api_status(
      "epcclAlltoallv",
      epcclAlltoallv(from, sent_counts_.data(), sent_offsets_.data(), to, received_counts_.data(),
                     received_offsets_.data(), type().id, comm, stream),
      comm);
}

Status Exchange::issue_group(epcclComm_t comm, const Operands& operands, epcclStream_t stream) const {
  const size_t bytes = type().bytes;
  EPCCL_TRY(api_status("epcclGroupStart", epcclGroupStart(), comm));
  for (size_t peer = 0; peer < sent_counts_.size(); ++peer) {
    const auto to = static_cast<int>(peer);
    EPCCL_TRY(api_status("epcclSend",
                         epcclSend(operands.input.data() + sent_offsets_[peer] * bytes, sent_counts_[peer],
                                   type().id, to, comm, stream),
                         comm));
    EPCCL_TRY(api_status("epcclRecv",
                         epcclRecv(operands.output.data() + received_offsets_[peer] * bytes,
                                   received_counts_[peer], type().id, to, comm, stream),
                         comm));
  }
  return api_status("epcclGroupEnd", epcclGroupEnd(), comm);
}

void Exchange::prepare(const Operands& operands, uint64_t number) const {
  const size_t bytes = type().bytes;
  for (size_t peer = 0; peer < sent_counts_.size(); ++peer) {
    fill_block(operands.input.subspan(sent_offsets_[peer] * bytes, sent_counts_[peer] * bytes),
               {rank_, static_cast<int>(peer), number});
  }
  poison(operands.output);
  poison(operands.guard);
}

uint64_t Exchange::check(const Operands& operands, uint64_t number, const std::string& title) const {
  const size_t bytes = type().bytes;
  Complaints complaints(rank_, type(), title);
  for (size_t peer = 0; peer < received_counts_.size(); ++peer) {
    const auto block =
        operands.output.subspan(received_offsets_[peer] * bytes, received_counts_[peer] * bytes);
    complaints.add(check_block(block, {static_cast<int>(peer), rank_, number}, bytes),
                   fmt::format("data from rank {}", peer), received_offsets_[peer], received_counts_[peer]);
  }
  complaints.add_guard(operands.guard);
  return complaints.wrong();
}

}  // namespace epccl::perf
