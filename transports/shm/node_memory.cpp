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

uint64_t sleep_code(int local, int counter) {
  const int whose = counter == SleepFor::any_message ? 0 : local;
  return static_cast<uint64_t>(whose) << 32 | static_cast<uint64_t>(counter + 1);
}

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
  segment_.counter(local_, slot).store(value, std::memory_order_release);
  // Pairs with the fence in announce_sleep: either the sleeper sees the post, or this sees the sleeper.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (segment_.header().sleepers.load(std::memory_order_relaxed) != 0) wake_waiting_for(slot, value);
}

void NodeMemory::wake_waiting_for(int counter, uint64_t value) {
  const uint64_t what = sleep_code(local_, counter);
  for (int local = 0; local < local_size(); ++local) {
    Sleeper& sleeper = segment_.header().sleeper[static_cast<size_t>(local)];
    if (sleeper.what.load(std::memory_order_acquire) != what) continue;
    if (sleeper.value.load(std::memory_order_relaxed) > value) continue;
    if (sleeper.what.exchange(0, std::memory_order_acq_rel) == what) ring(local);
  }
}

void NodeMemory::notify_message(int local) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (segment_.header().sleepers.load(std::memory_order_relaxed) == 0) return;
  Sleeper& sleeper = segment_.header().sleeper[static_cast<size_t>(local)];
  const uint64_t what = sleep_code(0, SleepFor::any_message);
  if (sleeper.what.load(std::memory_order_acquire) == what && sleeper.what.exchange(0) == what) ring(local);
}

void NodeMemory::wake_self() { ring(local_); }

void NodeMemory::ring(int local) const {
  sockaddr_un address{};
  const socklen_t length = doorbell_address(segment_.handle().token, local, address);
  const char byte = 0;
  // Fails when the bell rings already (queue full) or its rank is gone: both are fine.
  (void)sendto(doorbell_.get(), &byte, 1, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&address), length);
}

void NodeMemory::announce_sleep(const SleepFor& reason) {
  Sleeper& sleeper = segment_.header().sleeper[static_cast<size_t>(local_)];
  sleeper.value.store(reason.value, std::memory_order_relaxed);
  sleeper.what.store(sleep_code(reason.local, reason.counter), std::memory_order_release);
  segment_.header().sleepers.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void NodeMemory::finish_sleep() {
  segment_.header().sleeper[static_cast<size_t>(local_)].what.store(0, std::memory_order_relaxed);
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

Result<std::byte*> NodeMemory::address_of(int local, const BufferRef& buffer) {
  if (pid(local) == getpid()) return reinterpret_cast<std::byte*>(buffer.address);  // NOLINT(performance-no-int-to-ptr)
  if (buffer.has_window == 0) return static_cast<std::byte*>(nullptr);
  auto& known = mappings_[static_cast<size_t>(local)];
  for (const Mapping& mapping : known)
    if (mapping.inode == buffer.window.inode && mapping.fd == buffer.window.fd && mapping.size == buffer.window.size)
      return mapping.address + buffer.window.offset;
  EPCCL_ASSIGN(std::byte * address, device::map_window(buffer.window));
  if (known.size() >= mappings_kept) {
    munmap(known.front().address, known.front().size);
    known.erase(known.begin());
  }
  known.push_back({buffer.window.inode, buffer.window.fd, address, buffer.window.size});
  return address + buffer.window.offset;
}

Status NodeMemory::read(int local, const BufferRef& buffer, uint64_t offset, void* destination, uint64_t bytes) const {
  return transfer(local, false, static_cast<std::byte*>(destination), buffer.address + offset, bytes);
}

Status NodeMemory::write(int local, const BufferRef& buffer, uint64_t offset, const void* source, uint64_t bytes) const {
  return transfer(local, true, static_cast<std::byte*>(const_cast<void*>(source)), buffer.address + offset, bytes);
}

Status NodeMemory::transfer(int local, bool is_write, std::byte* mine, uint64_t theirs, uint64_t bytes) const {
  while (bytes > 0) {
    iovec here{mine, bytes};
    iovec there{reinterpret_cast<void*>(theirs), bytes};  // NOLINT(performance-no-int-to-ptr): a peer's address
    const ssize_t count = is_write ? process_vm_writev(pid(local), &here, 1, &there, 1, 0)
                                   : process_vm_readv(pid(local), &here, 1, &there, 1, 0);
    if (count <= 0)
      return system_error(count < 0 ? errno : EIO,
                          fmt::format("{} of {} bytes, pid {} (local rank {})",
                                      is_write ? "process_vm_writev" : "process_vm_readv", bytes, pid(local), local));
    mine += count;
    theirs += static_cast<uint64_t>(count);
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
