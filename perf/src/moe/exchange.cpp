#include "perf/src/moe/exchange.hpp"

#include <algorithm>
#include <cstdio>

#include "perf/src/check.hpp"

namespace epccl::perf::moe {
namespace {

constexpr float unwritten = -1;  // no weight and no scale

std::span<float> floats_of(const Buffer& buffer) {
  return {reinterpret_cast<float*>(buffer.bytes().data()), buffer.bytes().size() / sizeof(float)};
}

uint32_t terms_of_a_sum(const Options& options) {
  const bool weighted = options.weights && options.layout == Layout::expert_major;
  return options.shape.topk * (weighted ? largest_weight : 1);
}

}  // namespace

Case Case::make(const Options& options, const Routing& routing, const Placement& placement, int rank,
                uint32_t tokens, uint32_t max_tokens) {
  Case made;
  made.tokens = tokens;
  made.tables = all_tables(routing, placement.ranks(), tokens);
  made.received = received_rows(made.tables, placement, rank, options.layout, max_tokens,
                                options.capacity(max_tokens, placement.ranks()));
  made.copies = token_copies(made.tables, placement, copies_of(options.layout));
  return made;
}

Result<Memory> Memory::allocate(const Options& options, const std::vector<Case>& cases, int rank, Gpu* gpu) {
  size_t tokens = 0, slots = 0;
  for (const Case& each : cases) {
    tokens = std::max<size_t>(tokens, each.tables[static_cast<size_t>(rank)].tokens);
    slots = std::max<size_t>(slots, each.received.slots);
  }
  const size_t hidden = options.shape.hidden, row_bytes = hidden * options.type.bytes;
  Memory memory;
  EPCCL_ASSIGN(memory.tokens, Buffer::allocate(tokens * row_bytes, options.registered, gpu));
  EPCCL_ASSIGN(memory.received,
               Buffer::allocate(slots * (options.fp8 ? hidden : row_bytes), options.registered, gpu));
  EPCCL_ASSIGN(memory.rows, Buffer::allocate(options.fp8 ? slots * row_bytes : 0, options.registered, gpu));
  EPCCL_ASSIGN(memory.combined, Buffer::allocate(tokens * row_bytes, options.registered, gpu));
  // Also where they are empty: without an address they would not be given.
  const size_t width = options.weights ? options.shape.topk * sizeof(float) : 0;
  EPCCL_ASSIGN(memory.weights, Buffer::allocate(tokens * width, false, gpu));
  EPCCL_ASSIGN(memory.received_weights, Buffer::allocate(slots * width, false, gpu));
  const size_t scales = options.fp8 ? scales_of(hidden) * sizeof(float) : 0;
  EPCCL_ASSIGN(memory.received_scales, Buffer::allocate(slots * scales, false, gpu));
  return memory;
}

Status Memory::upload() const {
  for (const Buffer* buffer :
       {&tokens, &received, &rows, &combined, &weights, &received_weights, &received_scales})
    EPCCL_TRY(buffer->upload());
  return {};
}

Status Memory::download() const {
  for (const Buffer* buffer : {&received, &combined, &received_weights, &received_scales})
    EPCCL_TRY(buffer->download());
  return {};
}

Status Memory::register_with(Communicator& communicator) {
  for (const Buffer* buffer : {&tokens, &received, &rows, &combined}) {
    EPCCL_ASSIGN(Registration registration, Registration::make(communicator, *buffer));
    registrations.push_back(std::move(registration));
  }
  return {};
}

/// Counts what is wrong and describes the first of it.
class Exchange::Findings {
 public:
  Findings(int rank, const std::string& title) : rank_(rank), title_(title) {}

  void add(const RowCheck& check, const std::string& where) {
    if (check.wrong == 0) return;
    if (wrong_ == 0) {
      fmt::print(stderr, "epccl-perf: rank {}: {}: {}: {} wrong, first element {}: expected {}, found {}\n",
                 rank_, title_, where, check.wrong, check.first, check.expected, check.found);
    }
    wrong_ += check.wrong;
  }

  void add_number(float expected, float found, const std::string& where) {
    if (expected != found) add({1, 0, fmt::format("{}", expected), fmt::format("{}", found)}, where);
  }

  /// Bytes that nobody should have written.
  void add_written(uint64_t bytes, size_t element_bytes, const std::string& where) {
    if (bytes > 0) add({(bytes + element_bytes - 1) / element_bytes, 0, "nothing", "data"}, where);
  }

  uint64_t wrong() const { return wrong_; }

 private:
  int rank_;
  const std::string& title_;
  uint64_t wrong_ = 0;
};

Exchange::Exchange(const Options& options, const Placement& placement, const Case& of, Memory& memory,
                   int rank)
    : options_(options),
      placement_(placement),
      case_(of),
      memory_(memory),
      rank_(rank),
      data_(options.type, options.shape.hidden, largest_exact_value(options.type, terms_of_a_sum(options))) {
  for (uint32_t token = 0; options.weights && token < mine().tokens; ++token) {
    for (uint32_t k = 0; k < mine().topk; ++k)
      floats_of(memory_.weights)[size_t{token} * mine().topk + k] =
          static_cast<float>(weight_of(rank_, token, k));
  }
}

Status Exchange::update(EpHandle& handle) const {
  EPCCL_ASSIGN(const uint64_t rows, handle.update(mine()));
  if (rows == case_.received.slots) return {};
  return error(Code::internal_error,
               "epcclEpUpdateHandle: rank {} is to receive {} rows, but its routing has {}", rank_, rows,
               case_.received.slots);
}

Status Exchange::dispatch(EpHandle& handle, Until until) const {
  const size_t tokens = mine().tokens, slots = case_.received.slots, hidden = options_.shape.hidden;
  DispatchArrays arrays;
  arrays.tokens = {memory_.tokens.there(), tokens, hidden, options_.type.id};
  arrays.received = {memory_.received.there(), slots, hidden,
                     options_.fp8 ? epcclFloat8e4m3 : options_.type.id};
  if (options_.weights) {
    const bool one = options_.layout == Layout::expert_major;
    arrays.weights = {memory_.weights.there(), tokens, options_.shape.topk};
    arrays.received_weights = {memory_.received_weights.there(), slots, one ? 0 : options_.shape.topk};
  }
  if (options_.fp8) arrays.received_scales = {memory_.received_scales.there(), slots, scales_of(hidden)};
  return handle.dispatch(arrays, until);
}

Status Exchange::combine(EpHandle& handle, Until until) const {
  CombineArrays arrays;
  arrays.rows = {rows().there(), case_.received.slots, options_.shape.hidden, options_.type.id};
  arrays.combined = {memory_.combined.there(), mine().tokens, options_.shape.hidden, options_.type.id};
  arrays.weighted = weighted();
  return handle.combine(arrays, until);
}

Status Exchange::prepare(uint64_t number) {
  for (uint32_t token = 0; token < mine().tokens; ++token) {
    std::byte* const row = memory_.tokens.bytes().data() + token * data_.row_bytes();
    if (options_.fp8)
      data_.write_quantisable({rank_, token, number}, row);
    else
      data_.write({rank_, token, number}, 1, row);
  }
  poison(memory_.received.first(case_.received.slots * received_row_bytes() + Buffer::guard_bytes));
  poison(memory_.combined.first(mine().tokens * data_.row_bytes() + Buffer::guard_bytes));
  std::ranges::fill(floats_of(memory_.received_weights), unwritten);
  std::ranges::fill(floats_of(memory_.received_scales), unwritten);
  const bool rows_are_received = options_.operation == Operation::moe && !options_.fp8;
  if (options_.combines() && !rows_are_received) fill_rows(number);
  return memory_.upload();
}

/// As if the experts gave back what they got.
void Exchange::fill_rows(uint64_t number) const {
  for (const ReceivedRow& row : case_.received.rows)
    data_.write({row.source, row.token, number}, 1, rows().bytes().data() + row.slot * data_.row_bytes());
}

Result<uint64_t> Exchange::check(uint64_t number, const std::string& title) const {
  EPCCL_TRY(memory_.download());
  Findings findings(rank_, title);
  if (options_.dispatches()) check_received(number, findings);
  if (options_.combines()) check_combined(number, findings);
  return findings.wrong();
}

void Exchange::check_received(uint64_t number, Findings& findings) const {
  std::vector<std::byte> expected(received_row_bytes());
  std::vector<float> scales(scales_of(options_.shape.hidden));
  for (const ReceivedRow& row : case_.received.rows) {
    const TokenId id{row.source, row.token, number};
    if (options_.fp8)
      data_.write_quantised(id, expected.data(), scales.data());
    else
      data_.write(id, 1, expected.data());
    const std::byte* const found = memory_.received.bytes().data() + row.slot * expected.size();
    findings.add(compare_rows(expected, found, value_bytes()),
                 fmt::format("dispatched row {} (token {} of rank {})", row.slot, row.token, row.source));
    if (options_.fp8) check_scales(row, scales, findings);
    if (options_.weights) check_weights(row, findings);
  }
  check_gaps(findings);
}

void Exchange::check_scales(const ReceivedRow& row, const std::vector<float>& expected,
                            Findings& findings) const {
  const float* const found = floats_of(memory_.received_scales).data() + row.slot * expected.size();
  for (size_t i = 0; i < expected.size(); ++i)
    findings.add_number(expected[i], found[i], fmt::format("scale {} of dispatched row {}", i, row.slot));
}

void Exchange::check_weights(const ReceivedRow& row, Findings& findings) const {
  const float* const found = floats_of(memory_.received_weights).data() + row.slot * weights_per_row();
  const auto experts = case_.tables[static_cast<size_t>(row.source)].row(row.token);
  for (uint32_t i = 0; i < weights_per_row(); ++i) {
    const uint32_t k = options_.layout == Layout::expert_major ? row.k : i;
    const bool here = experts[k] >= 0 && placement_.owner(experts[k]) == rank_;
    const int expected = here ? weight_of(row.source, row.token, k) : 0;
    findings.add_number(static_cast<float>(expected), found[i],
                        fmt::format("weight {} of dispatched row {}", i, row.slot));
  }
}

/// Scales and weights of rows that are no token's: expert-major clears the scales with the rows, and weights are always 0.
void Exchange::check_padding(uint64_t first, uint64_t end, Findings& findings) const {
  const size_t scales = scales_of(options_.shape.hidden);
  const float kept = options_.layout == Layout::expert_major ? 0 : unwritten;
  for (uint64_t slot = first; slot < end; ++slot) {
    for (size_t i = 0; options_.fp8 && !options_.undefined_padding && i < scales; ++i)
      findings.add_number(kept, floats_of(memory_.received_scales)[slot * scales + i],
                          fmt::format("scale {} of row {}, which is no token's", i, slot));
    for (uint32_t i = 0; options_.weights && i < weights_per_row(); ++i)
      findings.add_number(0, floats_of(memory_.received_weights)[slot * weights_per_row() + i],
                          fmt::format("weight {} of row {}, which is no token's", i, slot));
  }
}

/// Rows that are no token's, and what is behind the last.
void Exchange::check_gaps(Findings& findings) const {
  const size_t row_bytes = received_row_bytes();
  // Rank-major leaves them alone, expert-major clears them, if anybody cares.
  const auto count_wrong = [this](std::span<const std::byte> gap) -> uint64_t {
    if (options_.undefined_padding) return 0;
    return options_.layout == Layout::expert_major
               ? gap.size() - static_cast<uint64_t>(std::ranges::count(gap, std::byte{0}))
               : count_unpoisoned(gap);
  };
  uint64_t next = 0;
  const auto skip_to = [&](uint64_t slot) {
    const auto gap = memory_.received.bytes().subspan(next * row_bytes, (slot - next) * row_bytes);
    if (slot > next) {
      check_padding(next, slot, findings);
      findings.add_written(count_wrong(gap), value_bytes(),
                           fmt::format("dispatched rows {} to {}, which are no token's", next, slot - 1));
    }
    next = slot + 1;
  };
  for (const ReceivedRow& row : case_.received.rows) skip_to(row.slot);
  skip_to(case_.received.slots);
  findings.add_written(count_unpoisoned(memory_.received.behind(case_.received.slots * row_bytes)),
                       value_bytes(), "behind the dispatched rows");
}

int Exchange::factor_of(uint32_t token) const {
  const auto experts = mine().row(token);
  if (!weighted()) return static_cast<int>(returned_rows(experts, placement_, options_.layout));
  int sum = 0;
  for (uint32_t k = 0; k < experts.size(); ++k) sum += experts[k] >= 0 ? weight_of(rank_, token, k) : 0;
  return sum;
}

void Exchange::check_combined(uint64_t number, Findings& findings) const {
  std::vector<std::byte> expected(data_.row_bytes());
  for (uint32_t token = 0; token < mine().tokens; ++token) {
    data_.write({rank_, token, number}, factor_of(token), expected.data());
    findings.add(compare_rows(expected, memory_.combined.bytes().data() + token * expected.size(),
                              options_.type.bytes),
                 fmt::format("combined token {}", token));
  }
  findings.add_written(count_unpoisoned(memory_.combined.behind(mine().tokens * data_.row_bytes())),
                       options_.type.bytes, "behind the combined tokens");
}

}  // namespace epccl::perf::moe
