// GPU 0 of the double (or of the machine), and bytes on their way there and back.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../../device/results.hpp"
#include "device/gpus.hpp"

namespace epccl::device::test {

inline Device& gpu(int ordinal = 0) {
  return *take(cuda_device(ordinal));
}

#define EXPECT_OK(expression)                       \
  do {                                              \
    const ::epccl::Status status_ = (expression);   \
    EXPECT_TRUE(status_.ok()) << status_.message(); \
  } while (0)

/// Memory of a GPU, freed at the end.
class GpuMemory {
 public:
  explicit GpuMemory(uint64_t bytes, MemoryKind kind = MemoryKind::plain, Device& device = gpu())
      : device_(device), bytes_(bytes) {
    data_ = static_cast<std::byte*>(take(device.allocate(kind, bytes)));
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() {
    if (data_ != nullptr) EXPECT_OK(device_.free(data_));
  }
  void free_now() {
    EXPECT_OK(device_.free(data_));
    data_ = nullptr;
  }
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Device& device_;
  const uint64_t bytes_;
  std::byte* data_ = nullptr;
};

inline std::vector<std::byte> numbers(size_t count, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 7);
  return bytes;
}

inline void copy_now(void* to, const void* from, uint64_t bytes, Device& device = gpu()) {
  const auto queue = take(device.make_queue(QueueKind::copy_engine));
  const CopyWork work{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes};
  EXPECT_OK(queue->copy({&work, 1}));
  EXPECT_OK(queue->synchronize());
}

inline void put(std::byte* to, const std::vector<std::byte>& bytes) {
  copy_now(to, bytes.data(), bytes.size());
}

inline std::vector<std::byte> get(const std::byte* from, size_t count) {
  std::vector<std::byte> bytes(count);
  copy_now(bytes.data(), from, count);
  return bytes;
}

}  // namespace epccl::device::test
