// What an alltoall or alltoallv must move, as far as one node knows it.
//
// A rank's plan depends on: its own counts and displacements, the counts and displacements of the ranks of its node
// (whose blocks it carries, or reads), and what remote ranks send to its node (which it relays). That is rows and
// columns of the count matrix for the node's ranks, never the whole matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::algorithms {

class Exchange {
 public:
  /// alltoall: every block has `block_bytes`, packed in rank order on both sides.
  static Exchange uniform(int ranks, uint64_t block_bytes);

  /// alltoallv, everything known (tests, simulations): bytes[s * ranks + d], blocks in rank order on both sides,
  /// so many bytes apart.
  static Exchange packed(int ranks, std::vector<uint64_t> bytes, uint64_t gap = 0);

  /// alltoallv as one node knows it. `rows[i]` and `input_offsets[i]` (ranks entries each) belong to `locals[i]`:
  /// what it sends to every rank, and from where in its input. `columns[i]`: what every rank sends to locals[i].
  /// `output_offsets[i]`: where locals[i] wants each source's block.
  static Exchange of_node(int ranks, const std::vector<int>& locals, std::vector<std::vector<uint64_t>> rows,
                          std::vector<std::vector<uint64_t>> input_offsets,
                          std::vector<std::vector<uint64_t>> columns,
                          std::vector<std::vector<uint64_t>> output_offsets);

  int ranks() const { return ranks_; }
  bool is_uniform() const { return uniform_; }

  /// Bytes from `source` to `destination`; one of them must be on the node.
  uint64_t bytes(int source, int destination) const {
    if (uniform_) return block_;
    const int row = row_of_[static_cast<size_t>(source)];
    if (row >= 0) return rows_[static_cast<size_t>(row)][static_cast<size_t>(destination)];
    return columns_[static_cast<size_t>(row_of_[static_cast<size_t>(destination)])]
                   [static_cast<size_t>(source)];
  }
  /// Where in `source`'s input the block for `destination` starts; `source` must be on the node.
  uint64_t input_offset(int source, int destination) const {
    if (uniform_) return block_ * static_cast<uint64_t>(destination);
    return input_offsets_[static_cast<size_t>(row_of_[static_cast<size_t>(source)])]
                         [static_cast<size_t>(destination)];
  }
  /// Where in `destination`'s output the block of `source` goes; `destination` must be on the node.
  uint64_t output_offset(int destination, int source) const {
    if (uniform_) return block_ * static_cast<uint64_t>(source);
    return output_offsets_[static_cast<size_t>(row_of_[static_cast<size_t>(destination)])]
                          [static_cast<size_t>(source)];
  }

  /// What the collective must do, for the verifier; only for uniform() and packed().
  std::vector<plan::Transfer> transfers() const;

 private:
  int ranks_ = 0;
  bool uniform_ = false;
  uint64_t block_ = 0;
  std::vector<int> row_of_;  // rank -> index into rows_/columns_/input_offsets_, -1 when not on the node
  std::vector<std::vector<uint64_t>> rows_, input_offsets_, columns_, output_offsets_;
};

}  // namespace epccl::algorithms
