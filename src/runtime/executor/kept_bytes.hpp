// What is kept for the next call takes memory: of a program's vectors.
#pragma once

#include <cstddef>
#include <vector>

namespace epccl::runtime {

/// Of their elements, and of the places that they have for more.
template <typename... Element>
size_t kept_bytes(const std::vector<Element>&... vectors) {
  return (size_t{0} + ... + (vectors.capacity() * sizeof(Element)));
}

}  // namespace epccl::runtime
