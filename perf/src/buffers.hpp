// Memory of the measured calls.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "perf/src/communicator.hpp"
#include "perf/src/gpu.hpp"

namespace epccl::perf {

/// Frees what Buffer allocates.
struct FreeBuffer {
  bool registered = false;
  Gpu* gpu = nullptr;  // whose memory it is; null: the host's
  void operator()(std::byte* memory) const;
};

/// A buffer with a guard behind it, which holds poison as long as nobody writes past the end. Touched when
/// allocated. One on a GPU has a twin on the host, which this program reads and writes.
class Buffer {
 public:
  static constexpr size_t guard_bytes = 64;

  /// `registered`: of epcclMemAlloc; otherwise ordinary memory, aligned to 64 bytes.
  /// `gpu`: null: the host's.
  static Result<Buffer> allocate(size_t bytes, bool registered, Gpu* gpu = nullptr);

  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }
  /// The first `used` bytes, and the guard behind them.
  std::span<std::byte> first(size_t used) const { return {memory_.get(), used}; }
  std::span<std::byte> behind(size_t used) const { return {memory_.get() + used, guard_bytes}; }

  /// What the library is given for a place in bytes().
  std::byte* there(const std::byte* here) const {
    return (on_gpu_ != nullptr ? on_gpu_.get() : memory_.get()) + (here - memory_.get());
  }
  std::byte* there() const { return there(memory_.get()); }
  // Guard included; on the host nothing.
  Status upload() const;
  Status download() const;

 private:
  std::unique_ptr<std::byte, FreeBuffer> memory_, on_gpu_;
  Gpu* gpu_ = nullptr;
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
