#include "perf/src/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "perf/src/random.hpp"

namespace epccl::perf {
namespace {

constexpr uint64_t no_zero_byte = 0x0101010101010101;

uint64_t seed_of(const BlockId& id) {
  return mix(static_cast<uint64_t>(id.source), static_cast<uint64_t>(id.destination), id.exchange);
}

/// Word `index` of a block. One multiplication: this runs at memory speed.
inline uint64_t word_at(uint64_t seed, uint64_t index) {
  uint64_t x = seed + index * golden;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93;
  return (x ^ (x >> 32)) | no_zero_byte;
}

/// Wrong elements among `bytes` (at most a word) of a block; the first of a block is described.
void compare_word(const std::byte* got, uint64_t want, size_t bytes, uint64_t first_element, size_t element,
                  BlockCheck& check) {
  std::array<std::byte, 8> wanted{};
  std::memcpy(wanted.data(), &want, wanted.size());
  for (size_t at = 0; at < bytes; at += element) {
    if (std::memcmp(got + at, wanted.data() + at, element) == 0) continue;
    if (check.wrong++ > 0) continue;
    check.first = first_element + at / element;
    check.expected = hexadecimal(wanted.data() + at, element);
    check.found = hexadecimal(got + at, element);
    check.unwritten = std::all_of(got + at, got + at + element, [](std::byte b) { return b == poison_byte; });
  }
}

}  // namespace

std::string hexadecimal(const std::byte* element, size_t bytes) {
  std::string text = "0x";
  for (size_t i = bytes; i-- > 0;)
    text += fmt::format("{:02x}", static_cast<unsigned>(element[i]));  // little endian
  return text;
}

void fill_block(std::span<std::byte> block, const BlockId& id) {
  const uint64_t seed = seed_of(id);
  const size_t words = block.size() / 8;
  std::byte* out = block.data();
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = word_at(seed, i);
    std::memcpy(out + 8 * i, &word, 8);
  }
  if (const size_t rest = block.size() % 8; rest > 0) {
    const uint64_t word = word_at(seed, words);
    std::memcpy(out + 8 * words, &word, rest);
  }
}

void poison(std::span<std::byte> bytes) {
  std::fill(bytes.begin(), bytes.end(), poison_byte);
}

BlockCheck check_block(std::span<const std::byte> block, const BlockId& id, size_t element) {
  BlockCheck check;
  const uint64_t seed = seed_of(id);
  const size_t words = block.size() / 8;
  const std::byte* in = block.data();
  for (size_t i = 0; i < words; ++i) {
    const uint64_t want = word_at(seed, i);
    uint64_t got = 0;
    std::memcpy(&got, in + 8 * i, 8);
    if (got != want) compare_word(in + 8 * i, want, 8, 8 * i / element, element, check);
  }
  if (const size_t rest = block.size() % 8; rest > 0) {
    compare_word(in + 8 * words, word_at(seed, words), rest, 8 * words / element, element, check);
  }
  return check;
}

uint64_t count_unpoisoned(std::span<const std::byte> bytes) {
  return static_cast<uint64_t>(
      std::count_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != poison_byte; }));
}

}  // namespace epccl::perf
