// Memory of the measured calls.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "perf/src/communicator.hpp"

namespace epccl::perf {

/// Frees what Buffer allocates.
struct FreeBuffer {
  bool registered = false;
  void operator()(std::byte* memory) const;
};

/// A buffer with a guard behind it, which holds poison as long as nobody writes past the end. Touched when
/// allocated.
class Buffer {
 public:
  static constexpr size_t guard_bytes = 64;

  /// `registered`: of epcclMemAlloc; otherwise ordinary memory, aligned to 64 bytes.
  static Result<Buffer> allocate(size_t bytes, bool registered);

  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }
  /// The first `used` bytes, and the guard behind them.
  std::span<std::byte> first(size_t used) const { return {memory_.get(), used}; }
  std::span<std::byte> behind(size_t used) const { return {memory_.get() + used, guard_bytes}; }

 private:
  std::unique_ptr<std::byte, FreeBuffer> memory_;
  size_t size_ = 0;  // without the guard
};

/// epcclCommRegister, taken back with this; `communicator` must live longer.
class Registration {
 public:
  static Result<Registration> make(Communicator& communicator, const Buffer& buffer);
  Registration(Registration&& other) noexcept;
  Registration& operator=(Registration&&) = delete;
  ~Registration();

 private:
  Registration(Communicator& communicator, void* handle) : communicator_(&communicator), handle_(handle) {}

  Communicator* communicator_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace epccl::perf
