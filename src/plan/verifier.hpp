// Proves a plan right for every schedule, or says what is wrong with it.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "plan/link_bytes.hpp"
#include "plan/plan.hpp"

namespace epccl::plan {

/// What a plan is made of; tests compare it with closed forms.
struct VerifyReport {
  uint64_t steps = 0;
  uint64_t dependencies = 0;
  uint32_t depth = 0;  // steps on the longest chain of steps that must follow each other
  LinkBytes links;
};

/// Proves, for every order in which the ranks may run their steps:
///   - every step is well formed (well_formed.hpp), every message has both ends with equal bytes;
///   - counters only grow and are posted in order; every wait is released; no deadlock, whether transports
///   buffer or not;
///   - what ranks read or write in the input and output of others on their node is complete before these have done their last step;
///   - no two steps race for the same bytes; nothing is read before it is written;
///   - at the end every output byte that is in `expected` is the right input byte, every row that is in
///   `sums` is the sum of those terms in that order, each written once, and no other byte is written.
/// A sum may be made in parts: a term of a sum may be a row that holds the sum of one node's terms.
/// `expected` and `sums` may come in any order; what has zero bytes is ignored. `report`, when given, is
/// filled as far as the proof gets. Codes: internal_error for a wrong plan, with algorithm, rank, step and
/// bytes; invalid_argument for an `expected` that contradicts itself.
Status verify(const Plan& plan, std::span<const Transfer> expected, VerifyReport* report = nullptr);
Status verify(const Plan& plan, std::span<const Transfer> expected, std::span<const RowSum> sums,
              std::span<const uint64_t> inputs, VerifyReport* report = nullptr);

/// A rank's buffers where they are one memory: where its input begins in it, and its output.
struct InPlace {
  uint64_t input = 0, output = 0;
};

/// As verify(), of a call in which the rank's buffers lie as `buffers` says, an entry a rank. Of plans without token rows.
Status verify_in_place(const Plan& plan, std::span<const Transfer> expected, std::span<const RowSum> sums,
                       std::span<const InPlace> buffers);

}  // namespace epccl::plan
