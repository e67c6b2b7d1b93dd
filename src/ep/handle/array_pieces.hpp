// Many arrays in one piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epccl::ep {

inline constexpr uint64_t array_alignment = 16;

constexpr uint64_t whole_arrays(uint64_t bytes) {
  return (bytes + array_alignment - 1) / array_alignment * array_alignment;
}

/// Gives out a piece of memory to each array; with a null beginning it only counts.
class Pieces {
 public:
  explicit Pieces(std::byte* begin) : begin_(begin) {}
  template <typename T>
  void take(T*& pointer, uint64_t count) {
    if (begin_ != nullptr) pointer = reinterpret_cast<T*>(begin_ + bytes_);
    bytes_ += whole_arrays(count * sizeof(T));
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* begin_;
  uint64_t bytes_ = 0;
};

}  // namespace epccl::ep
