// A thread_local object that is there also when the thread's other ones have ended: destructors of static objects, and what atexit()
// calls, may still use the library. Then it is one that nothing ends.
//   State& state = threads_own<State>();        one for each type
#pragma once

#include <memory>

namespace epccl {

template <typename T>
T& threads_own() {
  // Without destructors, these two outlive all that have one.
  thread_local constinit T* own = nullptr;
  thread_local constinit bool has_ended = false;
  struct Holder {
    std::unique_ptr<T> held = std::make_unique<T>();
    ~Holder() {
      held.reset();
      own = nullptr;
      has_ended = true;
    }
  };
  if (own != nullptr) return *own;
  if (has_ended) {
    own = std::make_unique<T>().release();
  } else {
    thread_local Holder holder;
    own = holder.held.get();
  }
  return *own;
}

}  // namespace epccl
