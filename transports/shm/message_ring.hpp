// The rings of small slots between the ranks of a node: one ring per ordered pair, one writer and one reader each.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transports/shm/node_segment.hpp"

namespace epccl::transports {

struct RingSlot {
  enum class Kind : uint32_t {
    whole,     // all of a small message
    fragment,  // `length` bytes at `offset` of a message; fragments of one message follow each other
    buffer,    // a description of the sender's buffer: the reader copies from it and answers `taken`
    taken,     // the buffer `operation` may be overwritten
    offer,     // as `buffer`, of memory that only a device can read; the reader answers `taken` or `declined`
    declined,  // the reader cannot read the buffer `operation`: it wants the message itself
  };
  static constexpr size_t capacity = 4096;

  Kind kind = Kind::whole;
  uint32_t length = 0;
  uint64_t key = 0;
  uint64_t bytes = 0;  // of the whole message
  uint64_t offset = 0;
  uint64_t operation = 0;
  BufferRef buffer;
  alignas(64) std::array<std::byte, capacity> payload;
};

struct MessageRing {
  static constexpr uint32_t slots = 8;

  alignas(64) std::atomic<uint32_t> written;
  alignas(64) std::atomic<uint32_t> read;
  std::array<RingSlot, slots> slot;

  /// For the writer: the next free slot, null when the ring is full.
  RingSlot* free_slot() {
    const uint32_t at = written.load(std::memory_order_relaxed);
    return at - read.load(std::memory_order_acquire) == slots ? nullptr : &slot[at % slots];
  }
  void publish() { written.store(written.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

  /// For the reader: the oldest slot, null when the ring is empty.
  RingSlot* front() {
    const uint32_t at = read.load(std::memory_order_relaxed);
    return at == written.load(std::memory_order_acquire) ? nullptr : &slot[at % slots];
  }
  /// For the reader: how many slots hold something, at least.
  uint32_t filled() const {
    return written.load(std::memory_order_acquire) - read.load(std::memory_order_relaxed);
  }
  void pop() { read.store(read.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
};

inline uint64_t message_rings_bytes(int local_size) {
  return static_cast<uint64_t>(local_size) * static_cast<uint64_t>(local_size) * sizeof(MessageRing);
}

}  // namespace epccl::transports
