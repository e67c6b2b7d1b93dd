#include "device/host/host_copy.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace epccl::device {
namespace {

#if defined(__x86_64__)
constexpr size_t line = 64;

__attribute__((target("avx2"))) void stream_lines(std::byte* destination, const std::byte* source,
                                                  size_t lines) {
  for (size_t i = 0; i < lines; ++i, source += line, destination += line) {
    _mm_prefetch(reinterpret_cast<const char*>(source + 8 * line), _MM_HINT_NTA);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(destination), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(destination + 32), high);
  }
  _mm_sfence();
}

bool can_stream() {
  static const bool value = __builtin_cpu_supports("avx2") != 0;
  return value;
}

void copy_streaming(std::byte* destination, const std::byte* source, size_t bytes) {
  const size_t head = std::min(bytes, (line - reinterpret_cast<uintptr_t>(destination) % line) % line);
  std::memcpy(destination, source, head);
  const size_t lines = (bytes - head) / line;
  stream_lines(destination + head, source + head, lines);
  const size_t done = head + lines * line;
  std::memcpy(destination + done, source + done, bytes - done);
}
#endif

}  // namespace

void copy_bytes(void* destination, const void* source, size_t bytes, bool streaming) {
#if defined(__x86_64__)
  if (streaming && can_stream())
    return copy_streaming(static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), bytes);
#endif
  (void)streaming;
  std::memcpy(destination, source, bytes);
}

void copy_rows(std::byte* destination, uint64_t destination_stride, const std::byte* source,
               uint64_t source_stride, size_t bytes, uint32_t rows, bool streaming) {
  for (uint32_t row = 0; row < rows; ++row, destination += destination_stride, source += source_stride)
    copy_bytes(destination, source, bytes, streaming);
}

}  // namespace epccl::device
