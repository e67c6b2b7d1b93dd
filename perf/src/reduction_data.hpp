// What ranks reduce, and what must come out, by a definition of its own: the library's reductions are not used.
//
// Values are chosen so that no order of the operation rounds: small integers where floats are added, powers of two where they
// are multiplied; integers take any value and wrap. Only an average of floats over ranks that are no power of two rounds; there
// the result may be as far off as rounding each partial sum can bring it. Each element depends on rank, position and exchange.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "perf/src/check.hpp"
#include "perf/src/datatype.hpp"

namespace epccl::perf {

/// nccl-tests' names and order; mulsum is the sum of inputs that each rank multiplies by a scalar of its own.
enum class RedOp : uint8_t { sum, prod, max, min, avg, mulsum };
const char* to_string(RedOp op);
/// "all", or names separated by commas.
Result<std::vector<RedOp>> parse_redops(std::string_view text);

class ReductionData {
 public:
  /// `exchange` tells data apart, as in check.hpp.
  ReductionData(const DataType& type, RedOp op, int ranks, uint64_t exchange);

  /// Writes what `rank` contributes, from the first element on.
  void fill(std::span<std::byte> input, int rank) const;
  /// Compares results, of which the first is that of `first_element`.
  BlockCheck check(std::span<const std::byte> output, uint64_t first_element) const;

  /// The scalar of mulsum on `rank`, as bits of the type.
  static uint64_t scalar_bits(const DataType& type, int rank);

 private:
  uint64_t input_bits(int rank, uint64_t place) const;
  uint64_t integer_result(uint64_t place) const;
  double float_result(uint64_t place) const;
  double float_input(int rank, uint64_t place) const;
  bool acceptable(uint64_t got, uint64_t place) const;
  std::string text_of(uint64_t bits) const;

  DataType type_;
  RedOp op_;
  int ranks_;
  uint64_t seed_;
  uint64_t terms_ =
      0;  // floats: how many ranks make a difference to an element; the others have 0, or what is no largest
  std::vector<uint64_t> expected_;  // bits by place
  std::vector<double> exact_;       // floats: before they are rounded
  double tolerance_ = 0;            // of an average, relative to the result
};

}  // namespace epccl::perf
