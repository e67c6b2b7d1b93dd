// A GPU with a stream that can be held, as streams are held while a collective waits for other ranks: it waits for a word that only the
// host writes. Over the driver itself, nothing of the library.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/kernels/launch.hpp"

namespace epccl::device::probe {

/// Ends the question with an exception that names the call and the error.
void check(CUresult result, const char* call);
#define EPCCL_PROBE(call) ::epccl::device::probe::check((call), #call)

/// What questions are asked about. Of a process of its own, which ends without undoing any of it: that could wait for ever.
class Lab {
 public:
  static constexpr size_t large = 64 << 20, small = 4096, pageable_bytes = 1 << 20;

  /// Everything is used once, so that no answer contains what the first use of it takes.
  Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;
  ~Lab() = default;

  /// The context becomes the calling thread's.
  void enter() const;
  CUstream make_stream(int priority) const;

  /// `stream` goes no further until release().
  void hold(CUstream stream) const;
  /// A plain store: no call of the driver.
  void release() const { word_->store(1, std::memory_order_release); }
  /// A word that nobody waits for.
  void post(CUstream stream) const;

  bool has_kernels() const { return rows_ != nullptr; }
  /// One that has run before.
  void launch(CUstream stream) const;
  /// One that has not, loaded as far as the driver likes; and its first run.
  CUfunction find_unused() const;
  void launch_unused(CUfunction kernel, CUstream stream) const;

  CUstream held = nullptr, other = nullptr;  // of the lowest priority
  CUstream own = nullptr;                    // of the priority of the library's streams
  int lowest_priority = 0, own_priority = 0, highest_priority = 0;
  CUdeviceptr from = 0, to = 0;  // `large` bytes of the GPU each
  CUdeviceptr pinned = 0, also_pinned = 0;
  std::byte* pageable = nullptr;
  CUipcMemHandle lent{};  // by another process, where a question is of its memory

 private:
  void make_memory();
  void make_word();
  void load_kernels();
  void use_all() const;

  CUcontext context_ = nullptr;
  std::atomic<uint64_t>* word_ = nullptr;
  CUdeviceptr device_word_ = 0;
  CUmodule rows_ = nullptr;  // null: built without nvcc
  CUfunction move_ = nullptr;
};

}  // namespace epccl::device::probe
