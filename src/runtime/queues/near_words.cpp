#include "runtime/queues/near_words.hpp"

#include <atomic>

namespace epccl::runtime {

WaitingKernel take_waiting_kernel(int most) {
  static std::atomic<int> waiting{0};
  if (waiting.fetch_add(1) < most) return {&waiting, [](std::atomic<int>* all) { all->fetch_sub(1); }};
  waiting.fetch_sub(1);
  return nullptr;
}

}  // namespace epccl::runtime
