// Memory of the library that the node's other ranks can map.
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.hpp"
#include "device/host/host_memory.hpp"

namespace epccl::ep {

class Window {
 public:
  Window() = default;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  Window(Window&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Window& operator=(Window&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Window() {
    if (data_ != nullptr) static_cast<void>(device::free_window(data_));
  }

  /// At least `size` bytes, of undefined content. No rank may still be using what was there before.
  Status reserve(size_t size) {
    if (size <= size_) return {};
    Window larger;
    EPCCL_ASSIGN(larger.data_, device::allocate_window(size));
    larger.size_ = size;
    std::swap(*this, larger);
    return {};
  }

  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace epccl::ep
