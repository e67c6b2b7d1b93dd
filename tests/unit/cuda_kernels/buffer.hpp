// Memory for kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>

namespace epccl::device::kernels::testing {

/// `bytes` at a given distance behind a 16-byte boundary. Nothing follows: a sanitizer sees what is read or written there.
class Buffer {
 public:
  Buffer(uint64_t bytes, uint64_t misaligned)
      : all_(new std::byte[misaligned + bytes]), before_(misaligned), bytes_(bytes) {
    std::fill_n(all_.get(), before_ + bytes_, guard);
  }
  Buffer(Buffer&&) = default;

  std::byte* data() { return all_.get() + before_; }
  const std::byte* data() const { return all_.get() + before_; }
  uint64_t size() const { return bytes_; }
  std::span<const std::byte> bytes() const { return {data(), bytes_}; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }

  void fill(std::mt19937_64& random) {
    for (uint64_t i = 0; i < bytes_; ++i) data()[i] = static_cast<std::byte>(random());
  }
  bool intact() const {
    return std::all_of(all_.get(), all_.get() + before_, [](std::byte byte) { return byte == guard; });
  }

 private:
  static constexpr std::byte guard{0xa5};
  std::unique_ptr<std::byte[]> all_;  // new gives memory that is aligned to 16
  uint64_t before_, bytes_;
};

}  // namespace epccl::device::kernels::testing
