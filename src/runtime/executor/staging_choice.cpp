#include "runtime/executor/staging_choice.hpp"

#include <bit>

namespace epccl::runtime {
namespace {

// For less than that nothing is changed.
constexpr double clearly = 0.9;

constexpr StagingChoice::Way other(StagingChoice::Way way) {
  return way == StagingChoice::Way::staged ? StagingChoice::Way::direct : StagingChoice::Way::staged;
}

}  // namespace

uint8_t StagingChoice::kind(uint64_t bytes) {
  return static_cast<uint8_t>(1 + std::bit_width(bytes));
}

StagingChoice::Way StagingChoice::choose(uint8_t kind) {
  kind_ = &kinds_[kind];
  return kind_->now();
}

void StagingChoice::took(double seconds) {
  kind_->took(seconds);
}

bool StagingChoice::Kind::is_trial() const {
  const unsigned number = calls / block;
  return number == 1 || (number > 0 && number % period == 0);
}

StagingChoice::Way StagingChoice::Kind::now() const {
  return is_trial() ? other(way) : way;
}

void StagingChoice::Kind::took(double seconds) {
  const unsigned at = calls % block;
  const bool was_trial = is_trial();
  const Way tried = now();
  ++calls;
  if (at < block - counted) {
    counted_seconds = 0;
    return;
  }
  counted_seconds += seconds;
  if (at < block - 1) return;
  block_seconds[static_cast<size_t>(tried)] = counted_seconds;
  if (was_trial && counted_seconds < clearly * block_seconds[static_cast<size_t>(way)]) way = tried;
}

}  // namespace epccl::runtime
