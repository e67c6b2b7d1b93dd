#include "runtime/comm/turn_words.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <map>

#include "base/never_destroyed.hpp"

namespace epccl::runtime {
namespace {

constexpr size_t page_bytes = 4096;

struct All {
  std::mutex mutex;
  std::map<device::Device*, TurnWords> by_device;
};

}  // namespace

TurnWords& TurnWords::of(device::Device& device) {
  static NeverDestroyed<All> all;
  const std::lock_guard lock(all->mutex);
  return all->by_device.try_emplace(&device, device).first->second;
}

Status TurnWords::add_page() {
  void* memory = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error(errno, "mmap of a page of signal words");
  if (Status status = device_.make_words_visible(memory, page_bytes); !status.ok()) {
    munmap(memory, page_bytes);
    return status;
  }
  auto* words = static_cast<device::SignalWord*>(memory);
  for (size_t i = 0; i < page_bytes / sizeof(device::SignalWord); ++i) free_.push_back({words + i, 1});
  return {};
}

Result<TurnWords::Word> TurnWords::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) EPCCL_TRY(add_page());
  const Word word = free_.back();
  free_.pop_back();
  return word;
}

void TurnWords::end(const Word& word) {
  word.word->store(word.value, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  free_.push_back({word.word, word.value + 1});
}

}  // namespace epccl::runtime
