// A thread's floating point as IEEE 754 has it by default.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace epccl::device {

/// While one exists, this thread rounds to nearest, ties to even, and keeps subnormals. Programs ask for something else
/// (torch.set_flush_denormal, -ffast-math at link time), threads inherit it, and the bits of a result would be those of the thread that
/// computed it: other ranks, and GPUs, have others. Where nothing else is asked for it reads one register.
class IeeeFloats {
 public:
  IeeeFloats() : found_(control()) {
    if ((found_ & deviations) != 0) set_control(found_ & ~deviations);
  }
  IeeeFloats(const IeeeFloats&) = delete;
  IeeeFloats& operator=(const IeeeFloats&) = delete;
  ~IeeeFloats() {
    if ((found_ & deviations) != 0) set_control(found_);
  }

 private:
#if defined(__x86_64__)
  using Control = uint32_t;
  static constexpr Control deviations = 0xe040;  // FTZ, rounding, DAZ
  static Control control() {
    return _mm_getcsr();
  }
  static void set_control(Control value) {
    _mm_setcsr(value);
  }
#elif defined(__aarch64__)
  using Control = uint64_t;
  static constexpr Control deviations =
      uint64_t{1} << 25 | uint64_t{1} << 24 | uint64_t{3} << 22 | uint64_t{1} << 19;  // DN, FZ, RMode, FZ16
  static Control control() {
    Control value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_control(Control value) {
    asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
  }
#else
  using Control = uint32_t;
  static constexpr Control deviations = 0;
  static Control control() {
    return 0;
  }
  static void set_control(Control) {}
#endif

  const Control found_;
};

}  // namespace epccl::device
