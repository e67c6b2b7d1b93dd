// Windows that a group's calls borrow: what stands in for arrays that the node's other ranks cannot map.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "ep/handle/window.hpp"

namespace epccl::ep {

/// Keeps what is given back: peers have it mapped, and its pages are there. At most as many windows as were ever lent at a time, each
/// about as large as the largest that was asked for. Any thread.
class WindowPool {
 public:
  /// Given back at its end. The pool must live for as long.
  class Loan {
   public:
    Loan() = default;
    Loan(WindowPool& pool, Window window) : pool_(&pool), window_(std::move(window)) {}
    Loan(Loan&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), window_(std::move(other.window_)) {}
    Loan& operator=(Loan&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(window_, other.window_);
      return *this;
    }
    ~Loan() {
      if (pool_ != nullptr) pool_->take_back(std::move(window_));
    }

    template <typename T>
    T* as() const {
      return window_.as<T>();
    }

   private:
    WindowPool* pool_ = nullptr;
    Window window_;
  };

  /// At least `bytes` and at least one, of undefined content. Error: out of memory.
  Result<Loan> lend(size_t bytes);

 private:
  /// `window`: nothing, where there is none to keep.
  void take_back(Window window);

  std::mutex mutex_;
  size_t lent_ = 0;
  std::vector<Window> idle_;  // by size; with room for those that are lent
};

}  // namespace epccl::ep
