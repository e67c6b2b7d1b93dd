#include "runtime/executor/staging_choice.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace epccl::runtime {
namespace {

// For less than that nothing is changed.
constexpr double clearly = 0.9;

constexpr StagingChoice::Way other(StagingChoice::Way way) {
  return way == StagingChoice::Way::staged ? StagingChoice::Way::direct : StagingChoice::Way::staged;
}

constexpr int bits_of_width = 7;
constexpr std::array<std::string_view, 10> operations{"alltoall",  "alltoallv", "allgather", "reduce_scatter",
                                                      "allreduce", "broadcast", "reduce",    "gather",
                                                      "scatter",   "ep"};

// One that is not among them has what is left.
constexpr uint16_t number_of(std::string_view operation) {
  return static_cast<uint16_t>(std::ranges::find(operations, operation) - operations.begin() + 1);
}

}  // namespace

uint16_t StagingChoice::kind(std::string_view text, uint64_t bytes) {
  return static_cast<uint16_t>(number_of(text.substr(0, text.find(' '))) << bits_of_width |
                               std::bit_width(bytes));
}

StagingChoice::Way StagingChoice::choose(uint16_t kind) {
  kind_ = nullptr;
  if (use_ != StagingUse::automatic) return use_ == StagingUse::always ? Way::staged : Way::direct;
  kind_ = &kinds_[kind];
  return kind_->now();
}

std::optional<StagingChoice::Found> StagingChoice::took(double seconds, uint64_t bytes) {
  if (kind_ == nullptr) return std::nullopt;
  return kind_->took(seconds / static_cast<double>(std::max<uint64_t>(bytes, 1)));
}

bool StagingChoice::Kind::is_trial() const {
  const unsigned number = calls / block;
  return number == 1 || (number > 0 && number % period == 0);
}

StagingChoice::Way StagingChoice::Kind::now() const {
  return is_trial() ? other(way) : way;
}

std::optional<StagingChoice::Found> StagingChoice::Kind::took(double seconds_a_byte) {
  const unsigned at = calls % block;
  const bool was_trial = is_trial(), was_first = calls / block == 1;
  const Way tried = now();
  ++calls;
  if (at < block - StagingChoice::counted) {
    counted = 0;
    return std::nullopt;
  }
  counted += seconds_a_byte;
  if (at < block - 1) return std::nullopt;
  of_block[static_cast<size_t>(tried)] = counted / StagingChoice::counted;
  if (!was_trial) return std::nullopt;
  const bool changes = of_block[static_cast<size_t>(tried)] < clearly * of_block[static_cast<size_t>(way)];
  if (changes) way = tried;
  if (!changes && !was_first) return std::nullopt;
  return Found{way, of_block[0], of_block[1]};
}

}  // namespace epccl::runtime
