// Numbers that tell this process's allocations from all others of the node, also after an address or a pid was used again.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace epccl::device::cuda {

/// Fills with random bytes of the system.
void fill_random(std::span<std::byte> bytes);

/// A generation for allocation number `number` of this process.
uint64_t make_generation(uint64_t number);

/// Of the process whose make_generation() made it.
uint64_t process_of(uint64_t generation);

/// Whether that is this process.
bool is_of_this_process(uint64_t generation);

}  // namespace epccl::device::cuda
