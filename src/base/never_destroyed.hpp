// A static object whose destructor never runs: threads, and destructors of other static objects, may use it
// until the very end of the process.  `static NeverDestroyed<State> state; state->...`
#pragma once

#include <memory>
#include <new>
#include <utility>

namespace epccl {

template <typename T>
class NeverDestroyed {
 public:
  template <typename... Args>
  explicit NeverDestroyed(Args&&... args) {
    std::construct_at(get(), std::forward<Args>(args)...);
  }
  NeverDestroyed(const NeverDestroyed&) = delete;
  NeverDestroyed& operator=(const NeverDestroyed&) = delete;

  T* get() { return std::launder(reinterpret_cast<T*>(storage_)); }
  T* operator->() { return get(); }
  T& operator*() { return *get(); }

 private:
  alignas(T) unsigned char storage_[sizeof(T)];
};

}  // namespace epccl
