// An alltoall whose bytes say where they come from, to see that a communicator works and who is who in it.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "epccl/epccl.h"
#include "ranks.hpp"

namespace epccl::tests {

/// What one rank brings to an alltoall and finds afterwards.
class Exchange {
 public:
  Exchange(int rank, int ranks, size_t count, int iteration = 0)
      : rank_(rank), ranks_(ranks), count_(count), iteration_(iteration) {
    const auto total = static_cast<size_t>(ranks) * count;
    input_.resize(total);
    output_.assign(total, poison);
    for (int peer = 0; peer < ranks; ++peer)
      for (size_t i = 0; i < count; ++i) input_[at(peer, i)] = unique_byte(rank, peer, i, iteration);
  }

  epcclResult_t start(epcclComm_t comm, epcclStream_t stream = nullptr) {
    return epcclAlltoall(input_.data(), output_.data(), count_, epcclUint8, comm, stream);
  }

  /// Bytes that are not what they must be.
  size_t wrong() const {
    size_t wrong = 0;
    for (int peer = 0; peer < ranks_; ++peer)
      for (size_t i = 0; i < count_; ++i)
        wrong += output_[at(peer, i)] != unique_byte(peer, rank_, i, iteration_);
    return wrong;
  }

 private:
  size_t at(int peer, size_t i) const { return static_cast<size_t>(peer) * count_ + i; }

  int rank_, ranks_;
  size_t count_;
  int iteration_;
  std::vector<uint8_t> input_, output_;
};

/// Where a communicator says this rank is.
struct Place {
  int rank = -1, ranks = -1;
};
inline Place place_in(epcclComm_t comm) {
  Place place;
  epcclCommUserRank(comm, &place.rank);
  epcclCommCount(comm, &place.ranks);
  return place;
}

/// The communicator has `ranks` ranks, this one is `rank`, and they can exchange data.
inline void expect_works(epcclComm_t comm, int rank, int ranks) {
  const Place place = place_in(comm);
  EXPECT_EQ(place.rank, rank);
  EXPECT_EQ(place.ranks, ranks);
  for (const size_t count : {10, 2000, 100'000}) {
    Exchange exchange(rank, ranks, count);
    EXPECT_EQ(exchange.start(comm), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(exchange.wrong(), 0U);
  }
}

}  // namespace epccl::tests
