// Posting, and waking those who sleep for it.
//
//   poster                                    sleeper
//   counter = value                           sleeper.reason[..].slot, value, locals; state = on_futex
//   fence                                     ++sleepers; fence
//   sleepers > 0: for each that has a         looks again at everything it waits for
//     reason with this slot, which now holds: futex(state == on_futex)
//     state -> awake, wake it                 state = awake; --sleepers
//
// The fences pair: either the sleeper sees the post, or the poster sees the sleeper. Of several posters that complete a
// reason together the last sees it complete.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>

#include "base/descriptor_limit.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/shm/node_socket.hpp"

namespace epccl::transports {
namespace {

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

Status NodeMemory::open_doorbell() {
  doorbell_ = open_within_limit([] { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!doorbell_) return descriptor_error(errno, "socket for the doorbell");
  const NodeSocket name(segment_.handle().token, local_);
  if (bind(doorbell_.get(), name.get(), name.length) != 0) return system_error(errno, "bind of the doorbell");
  return {};
}

void NodeMemory::post(int slot, uint64_t value) {
  segment_.counter(local_, slot).store(value, std::memory_order_release);
  posted(slot);
}

void NodeMemory::posted(int slot) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (segment_.header().sleepers.load(std::memory_order_relaxed) != 0) wake_waiting_for(slot);
}

void NodeMemory::wake_waiting_for(int slot) {
  for (int local = 0; local < local_size(); ++local) {
    const Sleeper& sleeper = segment_.header().sleeper[static_cast<size_t>(local)];
    if (sleeper.state.load(std::memory_order_acquire) == Sleeper::awake) continue;
    if (came_true(sleeper, slot)) wake(local);
  }
}

bool NodeMemory::came_true(const Sleeper& sleeper, int slot) const {
  const uint32_t count = sleeper.reasons.load(std::memory_order_relaxed);
  return std::any_of(sleeper.reason.begin(), sleeper.reason.begin() + count, [&](const auto& reason) {
    return reason.slot.load(std::memory_order_relaxed) == static_cast<uint32_t>(slot) && came_true(reason);
  });
}

bool NodeMemory::came_true(const Sleeper::Reason& reason) const {
  const uint64_t value = reason.value.load(std::memory_order_relaxed);
  const auto slot = static_cast<int>(reason.slot.load(std::memory_order_relaxed));
  for (size_t word = 0; word < reason.locals.size(); ++word)
    for (uint64_t left = reason.locals[word].load(std::memory_order_relaxed); left != 0; left &= left - 1)
      if (counter(static_cast<int>(word * 64) + __builtin_ctzll(left), slot) < value) return false;
  return true;
}

void NodeMemory::notify_message(int local) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (segment_.header().sleepers.load(std::memory_order_relaxed) == 0) return;
  const Sleeper& sleeper = segment_.header().sleeper[static_cast<size_t>(local)];
  // Alone: nobody waits for messages and a counter.
  if (sleeper.state.load(std::memory_order_acquire) != Sleeper::awake &&
      sleeper.reason[0].slot.load(std::memory_order_relaxed) == SleepFor::any_message)
    wake(local);
}

void NodeMemory::wake_self() {
  wake(local_);
  ring(local_);
}

void NodeMemory::wake(int local) {
  Sleeper& sleeper = segment_.header().sleeper[static_cast<size_t>(local)];
  switch (sleeper.state.exchange(Sleeper::awake, std::memory_order_acq_rel)) {
    case Sleeper::on_futex:
      futex(sleeper.state, FUTEX_WAKE, 1, nullptr);
      break;
    case Sleeper::on_doorbell:
      ring(local);
      break;
    default:
      break;
  }
}

void NodeMemory::ring(int local) const {
  const NodeSocket name(segment_.handle().token, local);
  const char byte = 0;
  // Fails when the bell rings already (queue full) or its rank is gone: both are fine; or from another network namespace, which was told
  // (beyond_bells()).
  (void)sendto(doorbell_.get(), &byte, 1, MSG_DONTWAIT, name.get(), name.length);
}

void SleepReasons::add(int slot, uint64_t value, int local) {
  SleepFor* const end = reasons_.data() + count_;
  SleepFor* reason =
      std::find_if(reasons_.data(), end, [slot](const SleepFor& it) { return it.slot == slot; });
  if (reason == end) {
    if (count_ == most) return;
    *reason = {slot, value, {}};
    ++count_;
  }
  if (value < reason->value) *reason = {slot, value, {}};
  if (value == reason->value) reason->add(local);
}

void NodeMemory::announce_sleep(const SleepReasons& reasons, Bed bed) {
  bed_ = bed;
  Sleeper& sleeper = segment_.header().sleeper[static_cast<size_t>(local_)];
  uint32_t count = 0;
  for (const SleepFor& reason : reasons.all()) {
    Sleeper::Reason& told = sleeper.reason[count++];
    told.slot.store(static_cast<uint32_t>(reason.slot), std::memory_order_relaxed);
    told.value.store(reason.value, std::memory_order_relaxed);
    for (size_t word = 0; word < reason.locals.size(); ++word)
      told.locals[word].store(reason.locals[word], std::memory_order_relaxed);
  }
  sleeper.reasons.store(count, std::memory_order_relaxed);
  sleeper.state.store(bed == Bed::futex ? Sleeper::on_futex : Sleeper::on_doorbell,
                      std::memory_order_release);
  segment_.header().sleepers.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void NodeMemory::sleep(double seconds) {
  double whole = 0;
  const double fraction = std::modf(seconds, &whole);
  const timespec timeout{static_cast<time_t>(whole), static_cast<long>(fraction * 1e9)};
  futex(segment_.header().sleeper[static_cast<size_t>(local_)].state, FUTEX_WAIT, Sleeper::on_futex,
        &timeout);
}

void NodeMemory::finish_sleep() {
  Sleeper& sleeper = segment_.header().sleeper[static_cast<size_t>(local_)];
  sleeper.state.store(Sleeper::awake, std::memory_order_relaxed);
  segment_.header().sleepers.fetch_sub(1, std::memory_order_relaxed);
  if (bed_ == Bed::futex) return;
  char drained[64];
  while (recv(doorbell_.get(), drained, sizeof drained, MSG_DONTWAIT) > 0) {
  }
}

}  // namespace epccl::transports
