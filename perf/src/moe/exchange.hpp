// One dispatch and combine of one number of tokens, as this rank calls and checks them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/src/buffers.hpp"
#include "perf/src/moe/ep_calls.hpp"
#include "perf/src/moe/expected_rows.hpp"
#include "perf/src/moe/options.hpp"
#include "perf/src/moe/token_data.hpp"

namespace epccl::perf::moe {

/// Who sends what where, for one number of tokens.
struct Case {
  uint32_t tokens = 0;            // of a rank, as asked for
  std::vector<TopkTable> tables;  // of all ranks
  ReceivedRows received;          // of this rank
  CountMatrix copies;             // rows that ranks receive from each other

  static Case make(const Options& options, const Routing& routing, const Placement& placement, int rank,
                   uint32_t tokens, uint32_t max_tokens);
};

/// Room for the largest case.
struct Memory {
  Buffer tokens;    // to be dispatched
  Buffer received;  // from a dispatch
  Buffer rows;      // to be combined, where that is not what was received: FP8
  Buffer combined;
  // Numbers of float32.
  Buffer weights, received_weights, received_scales;
  std::vector<Registration> registrations;

  static Result<Memory> allocate(const Options& options, const std::vector<Case>& cases, int rank, Gpu* gpu);
  // Between this program's data and what calls are given, where they are not the same.
  Status upload() const;
  Status download() const;
  Status register_with(Communicator& communicator);
};

class Exchange {
 public:
  Exchange(const Options& options, const Placement& placement, const Case& of, Memory& memory, int rank);

  const Case& of() const { return case_; }
  const TopkTable& mine() const { return case_.tables[static_cast<size_t>(rank_)]; }

  /// The layout of the case; error: the library expects another number of rows.
  Status update(EpHandle& handle) const;
  /// The same while it is captured (EpHandle::capture_on()).
  Status capture_update(EpHandle& handle) const { return handle.update(mine()).status(); }
  /// Before that, not to be timed: EpHandle::place().
  Status place_table(EpHandle& handle) const { return handle.place(mine()); }
  Status dispatch(EpHandle& handle, Until until = Until::complete) const;
  Status combine(EpHandle& handle, Until until = Until::complete) const;

  /// Fresh data, and poison where results are to come. `number` tells exchanges apart.
  Status prepare(uint64_t number);

  /// Wrong elements of this rank's results; the first is described on standard error. `title` says what was
  /// run.
  Result<uint64_t> check(uint64_t number, const std::string& title) const;

 private:
  class Findings;

  const Buffer& rows() const { return options_.fp8 ? memory_.rows : memory_.received; }
  bool weighted() const { return options_.weights && options_.layout == Layout::expert_major; }
  size_t value_bytes() const { return options_.fp8 ? 1 : options_.type.bytes; }
  size_t received_row_bytes() const { return options_.shape.hidden * value_bytes(); }
  size_t weights_per_row() const { return options_.layout == Layout::expert_major ? 1 : options_.shape.topk; }
  void fill_rows(uint64_t number) const;
  void check_received(uint64_t number, Findings& findings) const;
  void check_scales(const ReceivedRow& row, const std::vector<float>& expected, Findings& findings) const;
  void check_weights(const ReceivedRow& row, Findings& findings) const;
  void check_padding(uint64_t first, uint64_t end, Findings& findings) const;
  void check_gaps(Findings& findings) const;
  void check_combined(uint64_t number, Findings& findings) const;
  int factor_of(uint32_t token) const;

  const Options& options_;
  const Placement& placement_;
  const Case& case_;
  Memory& memory_;
  const int rank_;
  const TokenData data_;
};

}  // namespace epccl::perf::moe
