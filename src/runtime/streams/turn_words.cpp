#include "runtime/streams/turn_words.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <map>

#include "base/never_destroyed.hpp"
#include "device/held_streams.hpp"

namespace epccl::runtime {
namespace {

// More than programs have calls under way: the device is told of them once, before streams wait for any.
constexpr size_t bytes_at_once = 16 * 4096;

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

// Shared, not private: a process that forks would have the pages copied under the device's feet.
Result<std::vector<TurnWords::Word>> TurnWords::make_words() {
  void* memory = mmap(nullptr, bytes_at_once, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error(errno, "mmap of signal words");
  if (Status status = device_.make_words_visible(memory, bytes_at_once); !status.ok()) {
    munmap(memory, bytes_at_once);
    return status;
  }
  auto* words = static_cast<device::SignalWord*>(memory);
  std::vector<Word> made;
  for (size_t i = 0; i < bytes_at_once / sizeof(device::SignalWord); i += 2)
    made.push_back({words + i, words + i + 1, 1});
  return made;
}

// The device is told of them without the lock: that may wait for what the device does, and end() must not.
Result<TurnWords::Word> TurnWords::take() {
  std::unique_lock lock(mutex_);
  std::erase_if(coming_, [this](const Word& word) {
    const bool has_come = word.come->load(std::memory_order_acquire) >= word.value;
    if (has_come) free_.push_back({word.word, word.come, word.value + 1});
    return has_come;
  });
  if (free_.empty()) {
    lock.unlock();
    const device::HeldStreams::Quiet quiet;
    EPCCL_ASSIGN(const std::vector<Word> made, make_words());
    lock.lock();
    free_.insert(free_.end(), made.begin(), made.end());
  }
  const Word word = free_.back();
  free_.pop_back();
  return word;
}

void TurnWords::end(const Word& word, bool is_coming) {
  word.word->store(word.value, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  if (is_coming) return coming_.push_back(word);
  free_.push_back({word.word, word.come, word.value + 1});
}

}  // namespace epccl::runtime
