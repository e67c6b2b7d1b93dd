#include "runtime/executor/staged_input.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "device/host/host_copy.hpp"

namespace epccl::runtime {
namespace {

constexpr uint64_t alignment = 4 << 10;
constexpr uint64_t copied_at_once = 32 << 10;
// Of more a rank not all is left in the caches when peers come to read it, where the last-level cache does not keep it.
constexpr uint64_t kept_in_cache = 512 << 10;
// Of smaller blocks a system call each is never better.
constexpr uint64_t least_direct_block = 32 << 10;

}  // namespace

std::optional<transports::BufferRef> StagedInput::stage(const CompiledPlan& plan, const Call& call) {
  chosen_.reset();
  const plan::Extent& offered = plan.offered;
  if (offered.empty() || node_.my_call(call.sequence).inputs[0].has_window != 0) return std::nullopt;
  const uint64_t begin = (plan.scratch_bytes + alignment - 1) / alignment * alignment;
  const uint64_t room = node_.scratch_bytes(call.scratch());
  // Ranks that are threads of one process have the same addresses.
  if (begin > room || offered.end > room - begin || node_.is_one_process()) return std::nullopt;
  if (!is_better_staged(offered.end - offered.begin, call)) return std::nullopt;
  std::byte* const staged = node_.scratch(node_.local(), call.scratch()) + begin;
  const uint64_t bytes = offered.end - offered.begin;
  copy(staged + offered.begin, static_cast<const std::byte*>(call.input) + offered.begin, bytes,
       bytes > kept_in_cache && !copies_.keeps(2 * bytes + plan.output_bytes));
  return node_.describe_in_segment(staged, offered.end);
}

// Rows of tokens are small blocks, and an engine copies only what is mapped.
bool StagedInput::is_better_staged(uint64_t bytes, const Call& call) {
  if (call.rows != nullptr || call.offload ||
      bytes < least_direct_block * static_cast<uint64_t>(node_.local_size()))
    return true;
  chosen_ = {call.text, bytes, StagingChoice::kind(call.text, bytes), now_seconds()};
  return choice_.choose(chosen_->kind) == StagingChoice::Way::staged;
}

void StagedInput::call_over() {
  if (!chosen_) return;
  const double longest = node_.longest_call(chosen_->kind, now_seconds() - chosen_->begun);
  if (const auto found = choice_.took(longest, chosen_->bytes)) log(*found);
  chosen_.reset();
}

void StagedInput::log(const StagingChoice::Found& found) const {
  const auto microseconds = [this](double seconds_a_byte) {
    return seconds_a_byte * 1e6 * static_cast<double>(chosen_->bytes);
  };
  log::info(log::coll, rank_,
            "{}: peers cannot map the input; calls like it took {:.1f} us with a copy in staging memory, "
            "{:.1f} us read "
            "where it lies: it is {} from now on (EPCCL_STAGING)",
            chosen_->text, microseconds(found.staged), microseconds(found.direct),
            found.way == StagingChoice::Way::staged ? "copied" : "read");
}

void StagedInput::copy(std::byte* to, const std::byte* from, uint64_t bytes, bool past_cache) {
  if (past_cache) return device::copy_bytes(to, from, bytes, true);
  for (uint64_t at = 0; at < bytes; at += copied_at_once)
    copy_.copy(to + at, from + at, std::min(copied_at_once, bytes - at));
}

}  // namespace epccl::runtime
