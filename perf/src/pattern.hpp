// Who sends how much to whom: matrices of counts for alltoall and alltoallv, in elements, the same on every
// rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace epccl::perf {

/// Counts of every rank pair. at(s, d): elements that rank s sends to rank d.
class CountMatrix {
 public:
  CountMatrix() = default;
  explicit CountMatrix(int ranks)
      : ranks_(ranks), counts_(static_cast<size_t>(ranks) * static_cast<size_t>(ranks)) {}

  int ranks() const { return ranks_; }
  uint64_t& at(int source, int destination) { return counts_[index(source, destination)]; }
  uint64_t at(int source, int destination) const { return counts_[index(source, destination)]; }
  /// Elements that `source` sends, that `destination` receives.
  uint64_t sent_by(int source) const;
  uint64_t received_by(int destination) const;
  /// What the rank that sends most sends.
  uint64_t largest_sent() const;
  friend bool operator==(const CountMatrix&, const CountMatrix&) = default;

 private:
  size_t index(int source, int destination) const {
    return static_cast<size_t>(source) * static_cast<size_t>(ranks_) + static_cast<size_t>(destination);
  }

  int ranks_ = 0;
  std::vector<uint64_t> counts_;
};

/// `count` elements for every pair, each rank's own included.
CountMatrix uniform_counts(int ranks, uint64_t count);

/// Every rank sends exactly ranks * count elements, split over destinations d in proportion to 1 / (1 +
/// d)^exponent: rank 0 is the hottest. Rounding remainders go to the first destinations.
CountMatrix zipf_counts(int ranks, uint64_t count, double exponent);

/// The matrix in proportion, so that the rank that sends most sends `largest` elements at most; counts round
/// down.
CountMatrix scaled_counts(const CountMatrix& matrix, uint64_t largest);

/// Reads `ranks` lines of `ranks` counts, line = source, column = destination, separated by white space,
/// commas or semicolons; empty lines, what follows a '#' and a byte order mark do not count. Errors name `name`, line and
/// column.
Result<CountMatrix> parse_counts(std::string_view text, const std::string& name, int ranks);
Result<CountMatrix> load_counts(const std::string& path, int ranks);

/// `uniform`, `zipf:<exponent>` or `file:<path>`.
struct Pattern {
  enum class Kind : uint8_t { uniform, zipf, file };
  Kind kind = Kind::uniform;
  double exponent = 0;
  std::string path;
};
Result<Pattern> parse_pattern(std::string_view text);

}  // namespace epccl::perf
