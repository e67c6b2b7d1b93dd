#include "perf/src/reduction_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "perf/src/names.hpp"
#include "perf/src/number_format.hpp"

namespace epccl::perf {
namespace {

/// Elements repeat after so many, a prime, so that a block that is shifted by a power of two does not fit; and each repetition
/// starts at another place, so that one shifted by repetitions does not either.
constexpr uint64_t places = 4093;

uint64_t start_of(uint64_t repetition) {
  return repetition * 1237 % places;
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

/// Calls visit(element, place, elements) for runs of elements whose places follow each other.
template <class Visit>
void for_each_run(uint64_t first, uint64_t count, const Visit& visit) {
  for (uint64_t at = first; at < first + count;) {
    const uint64_t in_repetition = at % places;
    const uint64_t place = (in_repetition + start_of(at / places)) % places;
    const uint64_t run = std::min({first + count - at, places - in_repetition, places - place});
    visit(at, place, run);
    at += run;
  }
}

uint64_t load(const std::byte* from, size_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, bytes);
  return bits;
}

int factor_of(int rank) {
  return rank % 2 == 0 ? 1 : 2;
}

/// Sums up to this are exact in a type of floats, and more than enough.
uint64_t largest_sum(const DataType& type) {
  return uint64_t{1} << std::min(precision_of(type), 40);
}

/// How much the operation may enlarge its inputs before it adds them.
uint64_t headroom(RedOp op) {
  return op == RedOp::mulsum ? 2 : 1;
}

/// A table as bytes, an element after the other.
std::vector<std::byte> packed(const std::vector<uint64_t>& values, size_t bytes) {
  std::vector<std::byte> table(values.size() * bytes);
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(table.data() + i * bytes, &values[i], bytes);
  return table;
}

}  // namespace

const char* to_string(RedOp op) {
  constexpr const char* names[] = {"sum", "prod", "max", "min", "avg", "mulsum"};
  return names[static_cast<size_t>(op)];
}

Result<std::vector<RedOp>> parse_redops(std::string_view text) {
  const auto known = {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min, RedOp::avg, RedOp::mulsum};
  return parse_names<RedOp>("--op", text, known, [](RedOp op) { return to_string(op); });
}

ReductionData::ReductionData(const DataType& type, RedOp op, int ranks, uint64_t exchange)
    : type_(type), op_(op), ranks_(ranks), seed_(mixed(0x9e3779b97f4a7c15 + exchange)), expected_(places) {
  if (!is_float(type)) {
    for (uint64_t place = 0; place < places; ++place) expected_[place] = integer_result(place);
    return;
  }
  const bool rounds = op == RedOp::avg && (!std::has_single_bit(static_cast<unsigned>(ranks)) || ranks > 64);
  const bool few = rounds || op == RedOp::max || op == RedOp::min;
  const uint64_t most_terms = few ? 2 : largest_sum(type) / 2 / headroom(op);
  terms_ = std::min(static_cast<uint64_t>(ranks), most_terms);
  exact_.resize(places);
  for (uint64_t place = 0; place < places; ++place) exact_[place] = float_result(place);
  if (rounds) {
    tolerance_ = static_cast<double>(terms_ + 1) * std::ldexp(1, -precision_of(type));
  } else {
    for (uint64_t place = 0; place < places; ++place) expected_[place] = encoded(type, exact_[place]);
  }
}

uint64_t ReductionData::scalar_bits(const DataType& type, int rank) {
  return is_float(type) ? encoded(type, factor_of(rank)) : static_cast<uint64_t>(factor_of(rank));
}

/// What a float's sum can hold is shared by those ranks that have a part in it; the others add zeros.
double ReductionData::float_input(int rank, uint64_t place) const {
  const uint64_t of_place = mixed(seed_ ^ (place * 2 + 1));
  const uint64_t random = mixed(of_place + static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15);
  const uint64_t turn = (static_cast<uint64_t>(rank) + of_place) % static_cast<uint64_t>(ranks_);
  const uint64_t most = largest_sum(type_);
  if (op_ == RedOp::max || op_ == RedOp::min) {
    const auto limit = static_cast<double>(most - 1);
    if (turn >= terms_) return op_ == RedOp::max ? -limit : limit;
    return static_cast<double>(random % (2 * most - 1)) - limit;
  }
  if (op_ == RedOp::prod) {
    constexpr uint64_t powers = 4;
    const double size = turn >= powers ? 1 : (random & 2) != 0 ? 2 : 0.5;
    return (random & 1) != 0 ? -size : size;
  }
  if (turn >= terms_) return 0;
  return static_cast<double>(1 + random % (most / terms_ / headroom(op_)));
}

uint64_t ReductionData::input_bits(int rank, uint64_t place) const {
  if (is_float(type_)) return encoded(type_, float_input(rank, place));
  const uint64_t of_place = mixed(seed_ ^ (place * 2 + 1));
  const uint64_t random = mixed(of_place + static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15);
  return truncated(type_, op_ == RedOp::prod ? random | 1 : random);
}

double ReductionData::float_result(uint64_t place) const {
  double result = float_input(0, place);
  if (op_ == RedOp::mulsum) result *= factor_of(0);
  for (int rank = 1; rank < ranks_; ++rank) {
    const double next = float_input(rank, place);
    if (op_ == RedOp::prod)
      result *= next;
    else if (op_ == RedOp::max)
      result = std::max(result, next);
    else if (op_ == RedOp::min)
      result = std::min(result, next);
    else
      result += op_ == RedOp::mulsum ? next * factor_of(rank) : next;
  }
  return op_ == RedOp::avg ? result / ranks_ : result;
}

uint64_t ReductionData::integer_result(uint64_t place) const {
  const auto larger = [&](uint64_t a, uint64_t b) {
    return is_signed(type_) ? signed_value(type_, a) > signed_value(type_, b) : a > b;
  };
  uint64_t result = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    uint64_t next = input_bits(rank, place);
    if (op_ == RedOp::mulsum) next *= static_cast<uint64_t>(factor_of(rank));
    if (rank == 0)
      result = next;
    else if (op_ == RedOp::prod)
      result *= next;
    else if (op_ == RedOp::max)
      result = larger(next, result) ? next : result;
    else if (op_ == RedOp::min)
      result = larger(result, next) ? next : result;
    else
      result += next;
  }
  result = truncated(type_, result);
  if (op_ != RedOp::avg) return result;
  if (!is_signed(type_)) return result / static_cast<uint64_t>(ranks_);
  return truncated(type_, static_cast<uint64_t>(signed_value(type_, result) / ranks_));
}

void ReductionData::fill(std::span<std::byte> input, int rank) const {
  std::vector<uint64_t> values(places);
  for (uint64_t place = 0; place < places; ++place) values[place] = input_bits(rank, place);
  const std::vector<std::byte> table = packed(values, type_.bytes);
  for_each_run(0, input.size() / type_.bytes, [&](uint64_t element, uint64_t place, uint64_t run) {
    std::memcpy(input.data() + element * type_.bytes, table.data() + place * type_.bytes, run * type_.bytes);
  });
}

bool ReductionData::acceptable(uint64_t got, uint64_t place) const {
  if (tolerance_ == 0) return got == expected_[place];
  constexpr double smallest = 0x1p-14;  // below it float8 loses digits
  return std::abs(decoded(type_, got) - exact_[place]) <= tolerance_ * std::max(exact_[place], smallest);
}

std::string ReductionData::text_of(uint64_t bits) const {
  if (is_float(type_)) return fmt::format("{:g} ({:#x})", decoded(type_, bits), bits);
  return is_signed(type_) ? fmt::format("{}", signed_value(type_, bits)) : fmt::format("{}", bits);
}

BlockCheck ReductionData::check(std::span<const std::byte> output, uint64_t first_element) const {
  BlockCheck check;
  const size_t bytes = type_.bytes;
  const std::vector<std::byte> table = packed(expected_, bytes);
  for_each_run(first_element, output.size() / bytes, [&](uint64_t element, uint64_t place, uint64_t run) {
    const std::byte* got = output.data() + (element - first_element) * bytes;
    if (tolerance_ == 0 && std::memcmp(got, table.data() + place * bytes, run * bytes) == 0) return;
    for (uint64_t i = 0; i < run; ++i) {
      const uint64_t bits = load(got + i * bytes, bytes);
      if (acceptable(bits, place + i) || check.wrong++ > 0) continue;
      check.first = element + i - first_element;
      check.expected =
          tolerance_ == 0 ? text_of(expected_[place + i]) : fmt::format("about {:g}", exact_[place + i]);
      check.found = text_of(bits);
      check.unwritten = std::all_of(got + i * bytes, got + (i + 1) * bytes,
                                    [](std::byte byte) { return byte == poison_byte; });
    }
  });
  return check;
}

}  // namespace epccl::perf
