#include "device/cuda/identity.hpp"

#include <sys/random.h>

#include <cstddef>

namespace epccl::device::cuda {
namespace {

constexpr int number_bits = 28;

uint64_t random_number() {
  uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

// CUDA does not outlive a fork(), so a child with its parent's number has nothing to be told apart.
uint64_t process_number() {
  static const uint64_t number = random_number() >> number_bits;
  return number;
}

}  // namespace

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got > 0) bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

uint64_t make_generation(uint64_t number) {
  return process_number() << number_bits | (number & ((uint64_t{1} << number_bits) - 1));
}

uint64_t process_of(uint64_t generation) {
  return generation >> number_bits;
}

bool is_of_this_process(uint64_t generation) {
  return process_of(generation) == process_number();
}

}  // namespace epccl::device::cuda
