#include "perf/src/exchange.hpp"

#include <cstdio>

#include "perf/src/check.hpp"

namespace epccl::perf {

Exchange::Exchange(Operation operation, DataType type, CountMatrix counts, int rank)
    : operation_(operation), type_(type), counts_(std::move(counts)), rank_(rank) {
  for (int peer = 0; peer < counts_.ranks(); ++peer) {
    sent_counts_.push_back(counts_.at(rank_, peer));
    sent_offsets_.push_back(sent_elements_);
    sent_elements_ += sent_counts_.back();
    received_counts_.push_back(counts_.at(peer, rank_));
    received_offsets_.push_back(received_elements_);
    received_elements_ += received_counts_.back();
  }
}

Status Exchange::call(Communicator& communicator, const Buffer& input, const Buffer& output,
                      epcclStream_t stream) const {
  const epcclComm_t comm = communicator.get();
  const void* from = input.bytes().data();
  void* to = output.bytes().data();
  if (operation_ == Operation::alltoall) {
    EPCCL_TRY(
        api_status("epcclAlltoall", epcclAlltoall(from, to, sent_counts_[0], type_.id, comm, stream), comm));
  } else {
    EPCCL_TRY(
        api_status("epcclAlltoallv",
                   epcclAlltoallv(from, sent_counts_.data(), sent_offsets_.data(), to,
                                  received_counts_.data(), received_offsets_.data(), type_.id, comm, stream),
                   comm));
  }
  if (stream == nullptr) return {};
  return api_status("epcclStreamSynchronize", epcclStreamSynchronize(stream), comm);
}

void Exchange::prepare(const Buffer& input, const Buffer& output, uint64_t number) const {
  for (size_t peer = 0; peer < sent_counts_.size(); ++peer) {
    fill_block(input.bytes().subspan(sent_offsets_[peer] * type_.bytes, sent_counts_[peer] * type_.bytes),
               {rank_, static_cast<int>(peer), number});
  }
  poison(output.first(received_bytes() + Buffer::guard_bytes));
}

uint64_t Exchange::check(const Buffer& output, uint64_t number, const std::string& title) const {
  uint64_t wrong = 0;
  for (size_t peer = 0; peer < received_counts_.size(); ++peer) {
    const auto block =
        output.bytes().subspan(received_offsets_[peer] * type_.bytes, received_counts_[peer] * type_.bytes);
    const BlockCheck found = check_block(block, {static_cast<int>(peer), rank_, number}, type_.bytes);
    if (wrong == 0 && found.wrong > 0) {
      fmt::print(stderr,
                 "epccl-perf: rank {}: {}: wrong data from rank {}: {} of its {} elements, first element {} "
                 "(byte {} of "
                 "the output): expected {}, found {}{}\n",
                 rank_, title, peer, found.wrong, received_counts_[peer], found.first,
                 (received_offsets_[peer] + found.first) * type_.bytes, found.expected, found.found,
                 found.unwritten ? " (never written)" : "");
    }
    wrong += found.wrong;
  }
  const uint64_t behind = count_unpoisoned(output.behind(received_bytes()));
  if (behind > 0) {
    fmt::print(stderr, "epccl-perf: rank {}: {}: {} of the {} bytes behind the output were written\n", rank_,
               title, behind, Buffer::guard_bytes);
  }
  return wrong + (behind + type_.bytes - 1) / type_.bytes;
}

}  // namespace epccl::perf
