#include "ep/handle/window_pool.hpp"

#include <algorithm>
#include <bit>

namespace epccl::ep {
namespace {

// Calls of one layer differ a little: so the next one finds room, too.
size_t with_reserve(size_t bytes) {
  const size_t step = std::max<size_t>(std::bit_floor(bytes) / 8, 4 << 10);
  return (bytes + step - 1) / step * step;
}

}  // namespace

Result<WindowPool::Loan> WindowPool::lend(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  Window window;
  {
    const std::lock_guard lock(mutex_);
    // Here memory may run out, in the destructor of a loan it may not.
    idle_.reserve(idle_.size() + lent_ + 1);
    ++lent_;
    auto fits = std::ranges::lower_bound(idle_, bytes, {}, &Window::size);
    // What is too small makes way for what is made now.
    if (fits == idle_.end() && !idle_.empty()) --fits;
    if (fits != idle_.end()) {
      window = std::move(*fits);
      idle_.erase(fits);
    }
  }
  if (window.size() < bytes) {
    window = Window();
    if (Status made = window.reserve(with_reserve(bytes)); !made.ok()) {
      take_back(Window());
      return made;
    }
  }
  return Loan(*this, std::move(window));
}

void WindowPool::take_back(Window window) {
  const std::lock_guard lock(mutex_);
  --lent_;
  if (window.size() == 0) return;
  idle_.insert(std::ranges::upper_bound(idle_, window.size(), {}, &Window::size), std::move(window));
}

}  // namespace epccl::ep
