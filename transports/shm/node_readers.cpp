// Why a rank gave up; who copies from memory that a rank has offered to its node, and whose queues use the buffers of a call. A reader says so before it
// looks whether the offer still holds, and an owner ends its offers before it looks for readers: so one of them sees the other.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::transports {
namespace {

/// Also false of a process that has ended and that nobody has waited for. A kernel that cannot tell: true.
bool is_alive(pid_t pid) {
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!handle) return errno != ESRCH;
  pollfd ended{handle.get(), POLLIN, 0};
  return poll(&ended, 1, 0) <= 0;
}

}  // namespace

bool NodeMemory::lives(int local) const {
  return is_alive(pid(local));
}

void NodeMemory::say_why(std::string_view why, Reason reason) {
  GaveUpReason& told = segment_.header().reason;
  uint32_t state = GaveUpReason::unknown;
  if (!told.state.compare_exchange_strong(state, GaveUpReason::being_written)) {
    // Who says next that it gave up shall not be asked why before there is an answer. The writer may have died.
    for (int i = 0; i < 100 && told.state.load(std::memory_order_acquire) != GaveUpReason::known; ++i)
      usleep(50);
    return;
  }
  const size_t length = why.copy(told.text.data(), told.text.size() - 1);
  told.text[length] = 0;
  told.reason = reason;
  told.state.store(GaveUpReason::known, std::memory_order_release);
}

Status NodeMemory::why_gave_up() const {
  const GaveUpReason& told = segment_.header().reason;
  if (told.state.load(std::memory_order_acquire) != GaveUpReason::known)
    return {Code::remote_error, "a rank of this node gave up"};
  return {Code::remote_error, told.reason,
          std::string(told.text.data(), strnlen(told.text.data(), told.text.size()))};
}

bool NodeMemory::begin_reading(int local) {
  segment_.control(local_).reading[static_cast<size_t>(local)].fetch_add(1, std::memory_order_seq_cst);
  if (segment_.control(local).offers_are_over.load(std::memory_order_seq_cst) == 0) return true;
  end_reading(local);
  return false;
}

void NodeMemory::end_reading(int local) {
  segment_.control(local_).reading[static_cast<size_t>(local)].fetch_sub(1, std::memory_order_release);
}

void NodeMemory::end_offers() {
  segment_.control(local_).offers_are_over.store(1, std::memory_order_seq_cst);
}

int NodeMemory::end_offers_and_wait(double seconds) {
  end_offers();
  const double until = now_seconds() + seconds;
  int still = reader();
  for (; still >= 0 && now_seconds() < until; still = reader()) usleep(100);
  return still;
}

int NodeMemory::reader() const {
  for (int peer = 0; peer < local_size(); ++peer) {
    const auto& reading = segment_.control(peer).reading[static_cast<size_t>(local_)];
    if (reading.load(std::memory_order_seq_cst) > 0 && is_alive(pid(peer))) return peer;
  }
  return -1;
}

bool NodeMemory::begin_use(uint64_t sequence) {
  segment_.control(local_).uses_peers.store(sequence, std::memory_order_seq_cst);
  return !gave_up();
}

void NodeMemory::end_use() {
  segment_.control(local_).uses_peers.store(0, std::memory_order_release);
}

int NodeMemory::peer_that_uses(uint64_t sequence) const {
  const auto uses = [&](int peer) {
    const uint64_t used = segment_.control(peer).uses_peers.load(std::memory_order_seq_cst);
    return used != 0 && used == sequence;
  };
  for (int peer = 0; peer < local_size(); ++peer)
    if (peer != local_ && uses(peer) && is_alive(pid(peer))) return peer;
  return -1;
}

}  // namespace epccl::transports
