// The collectives that nccl-tests knows, with its definitions of sizes and bandwidths.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace epccl::perf {

enum class Operation : uint8_t {
  alltoall,
  alltoallv,
  allgather,
  reduce_scatter,
  allreduce,
  broadcast,
  reduce,
  gather,
  scatter,
  sendrecv,  // every rank sends to the next and receives from the one before, around the ring
};
const char* to_string(Operation operation);
/// By name; underscores do not matter.
Result<Operation> parse_operation(std::string_view text);

bool is_alltoall(Operation operation);
bool has_root(Operation operation);
bool reduces(Operation operation);
/// Whether there is an in-place form.
bool has_in_place(Operation operation);

/// The size, in elements, of a call with this count argument, which is of the whole where every rank has all of it, else of one rank's
/// part.
uint64_t size_of_count(Operation operation, uint64_t count, int ranks);

/// busbw = algbw x this.
double bus_factor(Operation operation, int ranks);

/// What a rank reads and writes, in elements, and where that lies within its one buffer when the call is in place.
struct Extent {
  uint64_t input = 0, output = 0;
  uint64_t input_in_place = 0, output_in_place = 0;  // offsets
  uint64_t whole() const;                            // elements of that buffer
};
/// Not for alltoall and alltoallv.
Extent extent_of(Operation operation, int rank, int ranks, int root, uint64_t count);

/// What the busiest link carries at least, whatever the algorithm; a node has one link each way. node_of[r] is rank r's node.
/// Not for alltoall and alltoallv (wire.hpp).
uint64_t least_link_elements(Operation operation, int root, uint64_t count, const std::vector<int>& node_of);

}  // namespace epccl::perf
