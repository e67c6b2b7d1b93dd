// Loops over lists of numbers that a layout consists of, with the vector instructions of this machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace epccl::device {

/// to[i] = from[i] + 1. Returns whether every number was between -1 and limit - 1; if not, `to` is undefined.
bool number_from_one(std::span<const int64_t> from, uint32_t limit, uint32_t* to);
bool number_from_one(std::span<const int32_t> from, uint32_t limit, uint32_t* to);

/// Takes words apart that are sorted by their upper halves: lower[i] is the lower half of words[i], with bit 0 set where the
/// upper half is another than before, `upper` are the upper halves, each once. Both have room for words.size(), and may be
/// overwritten as far as that. Bit 0 of all words, and the highest bit, must be 0. Returns how many upper halves there are.
size_t split_runs(std::span<const uint64_t> words, uint32_t* lower, uint32_t* upper);

/// The indices of masks that have `bit` set, ascending. `to` has room for masks.size(), and may be overwritten as far as that.
/// Returns how many there are.
size_t indices_with_bit(std::span<const uint64_t> masks, unsigned bit, uint32_t* to);

/// Whether each number is larger than the one before, and the last below `limit`, which is at most 2^31.
bool ascend_below(std::span<const uint32_t> numbers, uint32_t limit);

/// What must hold for every word; limits are at most 2^31.
struct WordLimits {
  uint32_t limit = 0;         // of the word
  uint32_t mask = 0;          // some of its bits,
  uint32_t masked_limit = 0;  // and the limit of these
};
/// Whether all words are below the limits. `odd`: how many words have bit 0 set.
bool words_fit(std::span<const uint32_t> words, const WordLimits& limits, size_t& odd);

}  // namespace epccl::device
