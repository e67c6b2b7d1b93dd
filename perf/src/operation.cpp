#include "perf/src/operation.hpp"

#include <algorithm>
#include <string>

namespace epccl::perf {
namespace {

constexpr const char* names[] = {"alltoall",  "alltoallv", "allgather", "reduce_scatter", "allreduce",
                                 "broadcast", "reduce",    "gather",    "scatter",        "sendrecv"};

std::string without_underscores(std::string_view text) {
  std::string result(text);
  result.erase(std::remove(result.begin(), result.end(), '_'), result.end());
  return result;
}

/// Whether a rank has a part of `count` of what the operation's size is about.
bool in_parts(Operation operation) {
  switch (operation) {
    case Operation::alltoall:
    case Operation::alltoallv:
    case Operation::allgather:
    case Operation::reduce_scatter:
    case Operation::gather:
    case Operation::scatter:
      return true;
    default:
      return false;
  }
}

}  // namespace

const char* to_string(Operation operation) {
  return names[static_cast<size_t>(operation)];
}

Result<Operation> parse_operation(std::string_view text) {
  std::string known;
  for (size_t i = 0; i < std::size(names); ++i) {
    if (without_underscores(text) == without_underscores(names[i])) return static_cast<Operation>(i);
    known += std::string(i == 0 ? "" : ", ") + names[i];
  }
  return error(Code::invalid_argument,
               "unknown operation \"{}\": want one of {}, dispatch, combine, moe or links", text, known);
}

bool is_alltoall(Operation operation) {
  return operation == Operation::alltoall || operation == Operation::alltoallv;
}

bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce ||
         operation == Operation::gather || operation == Operation::scatter;
}

bool reduces(Operation operation) {
  return operation == Operation::reduce_scatter || operation == Operation::allreduce ||
         operation == Operation::reduce;
}

bool has_in_place(Operation operation) {
  return !is_alltoall(operation) && operation != Operation::sendrecv;
}

uint64_t size_of_count(Operation operation, uint64_t count, int ranks) {
  return in_parts(operation) ? count * static_cast<uint64_t>(ranks) : count;
}

double bus_factor(Operation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (operation == Operation::allreduce) return 2 * others;
  return in_parts(operation) ? others : 1;
}

uint64_t Extent::whole() const {
  return std::max(input_in_place + input, output_in_place + output);
}

Extent extent_of(Operation operation, int rank, int ranks, int root, uint64_t count) {
  const uint64_t all = count * static_cast<uint64_t>(ranks), mine = count * static_cast<uint64_t>(rank);
  const bool at_root = rank == root;
  switch (operation) {
    case Operation::allgather:
      return {count, all, mine, 0};
    case Operation::reduce_scatter:
      return {all, count, 0, mine};
    case Operation::gather:
      return at_root ? Extent{count, all, mine, 0} : Extent{count, 0, 0, 0};
    case Operation::scatter:
      return at_root ? Extent{all, count, 0, mine} : Extent{0, count, 0, 0};
    case Operation::broadcast:
      return {at_root ? count : 0, count, 0, 0};
    case Operation::reduce:
      return {count, at_root ? count : 0, 0, 0};
    default:
      return {count, count, 0, 0};
  }
}

uint64_t least_link_elements(Operation operation, int root, uint64_t count, const std::vector<int>& node_of) {
  const int nodes = *std::max_element(node_of.begin(), node_of.end()) + 1;
  const size_t ranks = node_of.size();
  if (nodes == 1) return 0;
  std::vector<uint64_t> on_node(static_cast<size_t>(nodes)), leaving(static_cast<size_t>(nodes));
  for (size_t r = 0; r < ranks; ++r) {
    ++on_node[static_cast<size_t>(node_of[r])];
    if (node_of[r] != node_of[(r + 1) % ranks]) ++leaving[static_cast<size_t>(node_of[r])];
  }
  switch (operation) {
    case Operation::allgather:
    case Operation::reduce_scatter:
      return count * (ranks - *std::min_element(on_node.begin(), on_node.end()));
    case Operation::gather:
    case Operation::scatter:
      return count * (ranks - on_node[static_cast<size_t>(node_of[static_cast<size_t>(root)])]);
    case Operation::allreduce:
      return 2 * count * static_cast<uint64_t>(nodes - 1) / static_cast<uint64_t>(nodes);
    case Operation::sendrecv:
      return count * *std::max_element(leaving.begin(), leaving.end());
    default:
      return count;
  }
}

}  // namespace epccl::perf
