#include "transports/shm/node_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace epccl::transports {
namespace {

// Mappings of one peer's windows that are kept; more are possible, the oldest gives way.
constexpr size_t mappings_kept = 64;

// What peers read to find out whether they may read this process at all.
constexpr uint64_t probe_value = 0x65706363'6c70726fULL;
const uint64_t probe = probe_value;

socklen_t doorbell_address(const std::array<uint8_t, 16>& token, int local, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  // An abstract name (it starts with a zero byte): nothing in the file system, gone with the socket.
  std::string name = "epccl-";
  for (const uint8_t byte : token) name += fmt::format("{:02x}", byte);
  name += fmt::format("-{}", local);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

Result<std::unique_ptr<NodeMemory>> NodeMemory::open(NodeSegment segment, int local) {
  std::unique_ptr<NodeMemory> memory(new NodeMemory(std::move(segment), local));  // private constructor
  memory->doorbell_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!memory->doorbell_) return system_error(errno, "socket for the doorbell");
  sockaddr_un address{};
  const socklen_t length = doorbell_address(memory->segment_.handle().token, local, address);
  if (bind(memory->doorbell_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    return system_error(errno, "bind of the doorbell");
  memory->mappings_.resize(static_cast<size_t>(memory->local_size()));
  memory->segment_.control(local).pid.store(getpid(), std::memory_order_relaxed);
  memory->segment_.control(local).probe.store(reinterpret_cast<uint64_t>(&probe), std::memory_order_relaxed);
  return memory;
}

NodeMemory::~NodeMemory() {
  for (const auto& of_peer : mappings_)
    for (const Mapping& mapping : of_peer) munmap(mapping.address, mapping.size);
}

void NodeMemory::post(int slot, uint64_t value) {
  segment_.control(local_).counters[static_cast<size_t>(slot)].value.store(value, std::memory_order_release);
  notify();
}

void NodeMemory::set_done(uint64_t sequence) {
  segment_.control(local_).done.store(sequence, std::memory_order_release);
  notify();
}

void NodeMemory::notify() {
  // Pairs with the fence in announce_sleep: either the sleeper sees the post, or this sees the sleeper.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (segment_.header().sleepers.load(std::memory_order_relaxed) == 0) return;
  for (int local = 0; local < local_size(); ++local)
    if (local != local_) wake(local);
}

void NodeMemory::wake(int local) {
  RankControl& control = segment_.control(local);
  if (control.sleeping.load(std::memory_order_relaxed) == 0) return;
  const auto bit = static_cast<size_t>(local_);
  if ((control.awaited[bit / 64].load(std::memory_order_relaxed) >> (bit % 64) & 1) == 0) return;
  if (control.sleeping.exchange(0, std::memory_order_acq_rel) != 0) ring(local);
}

void NodeMemory::wake_self() { ring(local_); }

void NodeMemory::ring(int local) const {
  sockaddr_un address{};
  const socklen_t length = doorbell_address(segment_.handle().token, local, address);
  const char byte = 0;
  // Fails when the bell rings already (queue full) or its rank is gone: both are fine.
  (void)sendto(doorbell_.get(), &byte, 1, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&address), length);
}

void NodeMemory::announce_sleep(const LocalSet& awaited) {
  RankControl& control = segment_.control(local_);
  constexpr LocalSet low(~0ULL);
  control.awaited[0].store((awaited & low).to_ullong(), std::memory_order_relaxed);
  control.awaited[1].store((awaited >> 64 & low).to_ullong(), std::memory_order_relaxed);
  segment_.header().sleepers.fetch_add(1, std::memory_order_relaxed);
  control.sleeping.store(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void NodeMemory::finish_sleep() {
  segment_.control(local_).sleeping.store(0, std::memory_order_relaxed);
  segment_.header().sleepers.fetch_sub(1, std::memory_order_relaxed);
  char drained[64];
  while (recv(doorbell_.get(), drained, sizeof drained, MSG_DONTWAIT) > 0) {
  }
}

BufferRef NodeMemory::describe(const void* buffer, uint64_t bytes) {
  BufferRef ref;
  ref.address = reinterpret_cast<uint64_t>(buffer);
  ref.bytes = bytes;
  if (bytes == 0) return ref;
  if (const auto window = device::find_window(buffer, bytes)) {
    ref.has_window = 1;
    ref.window = *window;
  }
  return ref;
}

Result<const std::byte*> NodeMemory::address_of(int local, const BufferRef& buffer) {
  if (pid(local) == getpid()) return reinterpret_cast<const std::byte*>(buffer.address);
  if (buffer.has_window == 0) return static_cast<const std::byte*>(nullptr);
  auto& known = mappings_[static_cast<size_t>(local)];
  for (const Mapping& mapping : known)
    if (mapping.inode == buffer.window.inode && mapping.fd == buffer.window.fd && mapping.size == buffer.window.size)
      return static_cast<const std::byte*>(mapping.address + buffer.window.offset);
  EPCCL_ASSIGN(std::byte * address, device::map_window(buffer.window));
  if (known.size() >= mappings_kept) {
    munmap(known.front().address, known.front().size);
    known.erase(known.begin());
  }
  known.push_back({buffer.window.inode, buffer.window.fd, address, buffer.window.size});
  return static_cast<const std::byte*>(address + buffer.window.offset);
}

Status NodeMemory::read(int local, const BufferRef& buffer, uint64_t offset, void* destination, uint64_t bytes) const {
  auto* to = static_cast<std::byte*>(destination);
  uint64_t from = buffer.address + offset;
  while (bytes > 0) {
    iovec mine{to, bytes};
    iovec theirs{reinterpret_cast<void*>(from), bytes};  // NOLINT(performance-no-int-to-ptr): a peer's address
    const ssize_t count = process_vm_readv(pid(local), &mine, 1, &theirs, 1, 0);
    if (count <= 0)
      return system_error(count < 0 ? errno : EIO,
                          fmt::format("process_vm_readv of {} bytes from pid {} (local rank {})", bytes, pid(local), local));
    to += count;
    from += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
  return {};
}

bool NodeMemory::can_read_peers() const {
  for (int peer = 0; peer < local_size(); ++peer) {
    if (peer == local_) continue;
    const uint64_t address = segment_.control(peer).probe.load(std::memory_order_relaxed);
    uint64_t value = 0;
    iovec mine{&value, sizeof value};
    iovec theirs{reinterpret_cast<void*>(address), sizeof value};  // NOLINT(performance-no-int-to-ptr): a peer's address
    if (process_vm_readv(pid(peer), &mine, 1, &theirs, 1, 0) != sizeof value || value != probe_value) return false;
  }
  return true;
}

}  // namespace epccl::transports
