#include "transports/shm/node_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace epccl::transports {
namespace {

// A layer's handle has two windows, so a model has hundreds. A process may have 65530 mappings in all, and several communicators.
size_t windows_kept(int peers) {
  return std::clamp<size_t>(8192 / static_cast<size_t>(peers), 64, 1024);
}

// What peers read to find out whether they may read this process at all.
constexpr uint64_t probe_value = 0x65706363'6c70726fULL;
const uint64_t probe = probe_value;

}  // namespace

Result<std::unique_ptr<NodeMemory>> NodeMemory::open(NodeSegment segment, int local) {
  std::unique_ptr<NodeMemory> memory(new NodeMemory(std::move(segment), local));  // private constructor
  EPCCL_TRY(memory->open_doorbell());
  for (int peer = 0; peer < memory->local_size(); ++peer)
    memory->windows_.emplace_back(windows_kept(memory->local_size()));
  memory->segment_.control(local).pid.store(getpid(), std::memory_order_relaxed);
  memory->segment_.control(local).probe.store(reinterpret_cast<uint64_t>(&probe), std::memory_order_relaxed);
  return memory;
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

BufferRef NodeMemory::describe_in_segment(const std::byte* part, uint64_t bytes) const {
  BufferRef ref;
  ref.address = reinterpret_cast<uint64_t>(part);
  ref.bytes = bytes;
  ref.in_segment = segment_.offset_of(part);
  return ref;
}

Result<std::byte*> NodeMemory::address_of(int local, const BufferRef& buffer) {
  if (buffer.in_segment != 0) return segment_.at(buffer.in_segment);
  if (pid(local) == pid_)
    return reinterpret_cast<std::byte*>(buffer.address);  // NOLINT(performance-no-int-to-ptr)
  if (buffer.has_window == 0) return static_cast<std::byte*>(nullptr);
  return windows_[static_cast<size_t>(local)].address_of(buffer.window, buffer.bytes);
}

Status NodeMemory::read(int local, const BufferRef& buffer, uint64_t offset, void* destination,
                        uint64_t bytes) const {
  return transfer(local, false, static_cast<std::byte*>(destination), buffer.address + offset, bytes);
}

Status NodeMemory::write(int local, const BufferRef& buffer, uint64_t offset, const void* source,
                         uint64_t bytes) const {
  return transfer(local, true, static_cast<std::byte*>(const_cast<void*>(source)), buffer.address + offset,
                  bytes);
}

// A process or memory that is gone is the other rank's failure: the control line may know more of it.
Status NodeMemory::access_error(int local, bool is_write, const std::string& what, int cause) const {
  Status status = system_error(
      cause, fmt::format("{} of {}, pid {} (local rank {})",
                         is_write ? "process_vm_writev" : "process_vm_readv", what, pid(local), local));
  return cause == ESRCH || cause == EFAULT ? Status(Code::remote_error, status.message()) : status;
}

Status NodeMemory::transfer(int local, bool is_write, std::byte* mine, uint64_t theirs,
                            uint64_t bytes) const {
  while (bytes > 0) {
    iovec here{mine, bytes};
    iovec there{reinterpret_cast<void*>(theirs),
                bytes};  // NOLINT(performance-no-int-to-ptr): a peer's address
    const ssize_t count = is_write ? process_vm_writev(pid(local), &here, 1, &there, 1, 0)
                                   : process_vm_readv(pid(local), &here, 1, &there, 1, 0);
    if (count <= 0)
      return access_error(local, is_write, fmt::format("{} bytes", bytes), count < 0 ? errno : EIO);
    mine += count;
    theirs += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
  return {};
}

std::vector<pid_t> NodeMemory::other_processes() const {
  std::vector<pid_t> others;
  for (int local = 0; local < local_size(); ++local)
    if (pid(local) != pid(this->local()) && std::ranges::find(others, pid(local)) == others.end())
      others.push_back(pid(local));
  return others;
}

// A transfer that was cut short is taken up again where it stopped.
Status NodeMemory::transfer_pieces(int local, bool is_write, std::span<iovec> mine,
                                   std::span<iovec> theirs) const {
  while (!mine.empty()) {
    const ssize_t count =
        is_write ? process_vm_writev(pid(local), mine.data(), mine.size(), theirs.data(), theirs.size(), 0)
                 : process_vm_readv(pid(local), mine.data(), mine.size(), theirs.data(), theirs.size(), 0);
    if (count <= 0)
      return access_error(local, is_write, fmt::format("{} pieces", mine.size()), count < 0 ? errno : EIO);
    auto done = static_cast<size_t>(count);
    while (!mine.empty() && done >= mine.front().iov_len) {
      done -= mine.front().iov_len;
      mine = mine.subspan(1);
      theirs = theirs.subspan(1);
    }
    if (done == 0) continue;
    for (iovec* piece : {&mine.front(), &theirs.front()}) {
      piece->iov_base = static_cast<std::byte*>(piece->iov_base) + done;
      piece->iov_len -= done;
    }
  }
  return {};
}

bool NodeMemory::meets_on_core(int core) {
  segment_.control(local_).core.store(core + 1, std::memory_order_relaxed);
  for (int peer = 0; peer < local_size(); ++peer)
    if (peer != local_ && segment_.control(peer).core.load(std::memory_order_relaxed) == core + 1)
      return true;
  return false;
}

double NodeMemory::longest_call(uint16_t kind, double seconds) {
  constexpr int kind_at = 48;
  constexpr uint64_t most = (uint64_t{1} << kind_at) - 1;
  const uint64_t mine = std::min(static_cast<uint64_t>(seconds * 1e9), most);
  segment_.control(local_).took.store(uint64_t{kind} << kind_at | mine, std::memory_order_relaxed);
  uint64_t longest = mine;
  for (int peer = 0; peer < local_size(); ++peer) {
    const uint64_t theirs = segment_.control(peer).took.load(std::memory_order_relaxed);
    if (theirs >> kind_at == kind) longest = std::max(longest, theirs & most);
  }
  return static_cast<double>(longest) * 1e-9;
}

bool NodeMemory::can_read_peers() const {
  for (int peer = 0; peer < local_size(); ++peer) {
    if (peer == local_) continue;
    const uint64_t address = segment_.control(peer).probe.load(std::memory_order_relaxed);
    uint64_t value = 0;
    iovec mine{&value, sizeof value};
    iovec theirs{reinterpret_cast<void*>(address),
                 sizeof value};  // NOLINT(performance-no-int-to-ptr): a peer's address
    if (process_vm_readv(pid(peer), &mine, 1, &theirs, 1, 0) != sizeof value || value != probe_value)
      return false;
  }
  return true;
}

}  // namespace epccl::transports
