// The data that is sent, and the proof that it arrived: every 64-bit word depends on source, destination,
// exchange and position, so that a block from elsewhere, from earlier or shifted does not pass. No byte of it
// is ever zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace epccl::perf {

/// Which block of which exchange. `exchange` counts the exchanges with fresh data of a whole run.
struct BlockId {
  int source = 0;
  int destination = 0;
  uint64_t exchange = 0;
};

/// Every byte of data is odd and this is even, so what was not written differs in every byte.
inline constexpr std::byte poison_byte{0xAA};

/// Writes the block's data.
void fill_block(std::span<std::byte> block, const BlockId& id);

void poison(std::span<std::byte> bytes);

/// What is wrong with a block: how many elements, and the first of them as hexadecimal numbers.
struct BlockCheck {
  uint64_t wrong = 0;
  uint64_t first = 0;  // index of the first wrong element in the block
  std::string expected, found;
  bool unwritten = false;  // the first wrong element still holds the poison
};

/// Compares a received block with what fill_block() wrote at its source; `element` is the datatype's size in
/// bytes.
BlockCheck check_block(std::span<const std::byte> block, const BlockId& id, size_t element);

/// The number that is an element's bytes, lowest first: "0x3f80".
std::string hexadecimal(const std::byte* element, size_t bytes);

/// Bytes that are no longer poison.
uint64_t count_unpoisoned(std::span<const std::byte> bytes);

}  // namespace epccl::perf
