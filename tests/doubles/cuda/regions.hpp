// Where the double's memory lies: regions of addresses, as programs see them, and descriptors with the bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "state.hpp"

namespace fake_cuda {

inline constexpr uint64_t page = 4096, big_page = uint64_t{2} << 20;

uint64_t round_up(uint64_t bytes, uint64_t unit);
void* pointer(uint64_t address);

/// Bytes of a GPU.
long memory_limit();
/// Whether it has room for so many more.
bool fits(uint64_t bytes);
/// Of pinned memory.
bool fits_pinned(uint64_t bytes);

/// A descriptor of so many bytes; -1: there is none.
int make_memory(uint64_t bytes);
uint64_t inode_of(int fd);

/// Fills memory of so many bytes, or its beginning, as memory is that is not cleared for who gets it.
void leave_something(void* memory, uint64_t bytes);

/// Maps the descriptor's bytes behind the reserved addresses (or right there).
bool attach(Region& region);
void detach(const Region& region);

void add_region(Region region);
/// Takes the region out; its addresses stay dead.
std::optional<Region> take_region(uint64_t base, Where where, bool is_import);

/// Addresses that nobody can touch.
uint64_t reserve(uint64_t bytes);
/// The same, or those of freed memory of that size, where the program asked for that.
uint64_t addresses_for(uint64_t bytes);

}  // namespace fake_cuda
