#include "scarce_memory.hpp"

#include <cstdlib>
#include <new>

namespace {

using epccl::tests::Shortage;

// Without initialisers that run: allocations come before all else.
thread_local constinit bool is_scarce = false;
thread_local constinit Shortage kind = Shortage::of_one;
thread_local constinit int left = 0, failed = 0;

bool fails() {
  if (!is_scarce || left-- > 0) return false;
  left = 0;
  if (kind == Shortage::of_one && failed > 0) return false;
  ++failed;
  return true;
}

void* allocate(size_t bytes) {
  if (fails()) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Not inline, or the compiler finds free() called for what `new` gave.
[[gnu::noinline]] void* operator new(size_t bytes) {
  return allocate(bytes);
}
[[gnu::noinline]] void* operator new[](size_t bytes) {
  return allocate(bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new[](size_t bytes, const std::nothrow_t& nothrow) noexcept {
  return operator new(bytes, nothrow);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

void epccl::tests::begin_shortage(int after, Shortage shortage) {
  left = after;
  failed = 0;
  kind = shortage;
  is_scarce = true;
}

int epccl::tests::end_shortage() {
  is_scarce = false;
  return failed;
}
