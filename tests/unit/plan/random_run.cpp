#include "random_run.hpp"

#include <bit>
#include <cstdlib>
#include <utility>

#include "plan/rows.hpp"

namespace epccl::plan::testing {
namespace {

constexpr uint32_t poison = 0xdeadbeef;

/// To bfloat16, ties to even.
float rounded(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000);
}

/// As plan.hpp says that sums are evaluated.
class Accumulator {
 public:
  void add(uint32_t row, uint8_t weight, uint8_t ends) {
    constexpr float weights[] = {0.3F, 0.7F, 1.9F, 2.3F};
    const auto value = std::bit_cast<float>(row);
    rank_ += weight == RowTerm::unweighted ? value : weights[weight % 4] * value;
    if ((ends & RowTerm::rank_sum) != 0) node_ += rounded(std::exchange(rank_, 0.0F));
    if ((ends & RowTerm::node_sum) != 0) total_ += rounded(std::exchange(node_, 0.0F));
  }
  uint32_t result() const { return std::bit_cast<uint32_t>(rounded(total_)); }

 private:
  float rank_ = 0, node_ = 0, total_ = 0;
};

}  // namespace

unsigned test_seed() {
  const char* given = std::getenv("EPCCL_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
}

RandomRun::RandomRun(const Plan& plan, uint64_t size, std::mt19937& random)
    : plan_(plan), random_(random), size_(size) {
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    state_.emplace_back(plan.ranks[rank].steps.size(), State::waiting);
    counters_.emplace_back(max_slots, 0);
    for (size_t buffer = 0; buffer < 3; ++buffer) memory_.emplace_back(size, poison);
    for (uint64_t at = 0; at < size; ++at) memory_[3 * rank][at] = input(static_cast<int>(rank), at);
  }
}

uint32_t RandomRun::input(int rank, uint64_t at) {
  return (0x3f80 + static_cast<uint32_t>(rank) * 64 + static_cast<uint32_t>(at)) << 16;
}

uint32_t RandomRun::sum(std::span<const RowSum::Term> terms, uint64_t at) {
  Accumulator result;
  for (const RowSum::Term& term : terms)
    result.add(input(term.rank, term.offset + at), term.weight, term.ends);
  return result.result();
}

bool RandomRun::run() {
  size_t left = 0;
  for (const RankPlan& rank : plan_.ranks) left += rank.steps.size();
  while (left > 0) {
    std::vector<std::pair<size_t, uint32_t>> possible;
    for (size_t rank = 0; rank < plan_.ranks.size(); ++rank)
      for (uint32_t index = 0; index < plan_.ranks[rank].steps.size(); ++index)
        if (can_move(rank, index)) possible.emplace_back(rank, index);
    if (possible.empty()) return false;
    const auto [rank, index] = possible[random_() % possible.size()];
    if (move(rank, index)) --left;
  }
  return true;
}

bool RandomRun::can_move(size_t rank, uint32_t index) const {
  const Step& step = plan_.ranks[rank].steps[index];
  if (state_[rank][index] == State::complete) return false;
  if (state_[rank][index] == State::started) return true;
  for (const uint32_t dependency : plan_.ranks[rank].dependencies_of(step))
    if (state_[rank][dependency] != State::complete) return false;
  if (step.kind == Kind::wait) return counters_[static_cast<size_t>(step.peer)][step.slot] >= step.value;
  if (step.kind == Kind::recv) return messages_.contains({step.peer, static_cast<int>(rank), step.tag});
  return true;
}

/// True when the step is complete.
bool RandomRun::move(size_t rank, uint32_t index) {
  const RankPlan& plan = plan_.ranks[rank];
  const Step& step = plan.steps[index];
  const auto key = std::tuple(static_cast<int>(rank), step.peer, step.tag);
  switch (step.kind) {
    case Kind::send:
      if (state_[rank][index] == State::waiting) {
        state_[rank][index] = State::started;
        // Its data may be on the way long before it is complete.
        if (random_() % 2 == 0) messages_[key] = read(step.source, step.bytes);
        return false;
      }
      messages_[key] = read(step.source, step.bytes);
      break;
    case Kind::recv:
      write(step.destination, messages_.at({step.peer, static_cast<int>(rank), step.tag}), step.bytes);
      break;
    case Kind::reduce:
      break;  // its plans are not run here
    case Kind::post:
      counters_[rank][step.slot] = step.value;
      break;
    case Kind::wait:
      break;
    case Kind::copy:
      copy(step);
      break;
    case Kind::move_rows:
      move_rows(plan, step);
      break;
    case Kind::reduce_rows:
      reduce_rows(plan, step);
      break;
  }
  state_[rank][index] = State::complete;
  return true;
}

void RandomRun::copy(const Step& step) {
  for (uint32_t row = 0; row < step.rows; ++row) {
    Location from = step.source, to = step.destination;
    from.offset += row * step.source_stride;
    to.offset += row * step.destination_stride;
    write(to, read(from, step.bytes), step.bytes);
  }
}

void RandomRun::move_rows(const RankPlan& plan, const Step& step) {
  for (uint32_t i = 0; i < step.rows; ++i)
    write(destination_rows(plan, step)[i], read(source_rows(plan, step)[i], step.bytes), step.bytes);
}

void RandomRun::reduce_rows(const RankPlan& plan, const Step& step) {
  for (uint32_t i = 0; i < step.rows; ++i) {
    std::vector<uint32_t> row;
    for (uint64_t at = 0; at < step.bytes; ++at) row.push_back(reduced(plan, step, step.first_sum + i, at));
    write(destination_rows(plan, step)[i], row, step.bytes);
  }
}

uint32_t RandomRun::reduced(const RankPlan& plan, const Step& step, uint32_t sum, uint64_t at) const {
  Accumulator result;
  for (const RowTerm& term : terms_of(*plan.tables, sum, 1)) {
    Location row = row_of(plan, step, term);
    row.offset += at;
    result.add(read(row, 1)[0], term.weight, term.ends);
  }
  return result.result();
}

std::vector<uint32_t> RandomRun::read(const Location& from, uint64_t bytes) const {
  std::vector<uint32_t> data(bytes, poison);
  for (uint64_t i = 0; i < bytes && from.offset + i < size_; ++i)
    data[i] = memory_[memory_of(from)][from.offset + i];
  return data;
}

void RandomRun::write(const Location& to, const std::vector<uint32_t>& data, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes && to.offset + i < size_; ++i)
    memory_[memory_of(to)][to.offset + i] = data[i];
}

}  // namespace epccl::plan::testing
