#include "transports/shm/node_memory.hpp"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/namespaces.hpp"

namespace epccl::transports {
namespace {

// A layer's handle has two windows, so a model has hundreds. A process may have 65530 mappings in all, and several communicators.
size_t windows_kept(int peers) {
  return std::clamp<size_t>(8192 / static_cast<size_t>(peers), 64, 1024);
}

// What peers read, and where they write, to find out whether they may use this process's memory at all.
struct PeerProbe {
  uint64_t value = 0x65706363'6c70726fULL;
  uint64_t room = 0;
};
PeerProbe probe;

// A system call of one kind may be refused and that of the other not.
bool can_use_probe(pid_t peer, uint64_t address) {
  uint64_t value = 0;
  iovec mine{&value, sizeof value};
  // NOLINTBEGIN(performance-no-int-to-ptr): a peer's addresses
  iovec from{reinterpret_cast<void*>(address + offsetof(PeerProbe, value)), sizeof value};
  iovec to{reinterpret_cast<void*>(address + offsetof(PeerProbe, room)), sizeof value};
  // NOLINTEND(performance-no-int-to-ptr)
  return process_vm_readv(peer, &mine, 1, &from, 1, 0) == sizeof value && value == PeerProbe().value &&
         process_vm_writev(peer, &mine, 1, &to, 1, 0) == sizeof value;
}

}  // namespace

Result<std::unique_ptr<NodeMemory>> NodeMemory::open(NodeSegment segment, int local) {
  std::unique_ptr<NodeMemory> memory(new NodeMemory(std::move(segment), local));  // private constructor
  EPCCL_TRY(memory->open_doorbell());
  for (int peer = 0; peer < memory->local_size(); ++peer)
    memory->windows_.emplace_back(windows_kept(memory->local_size()));
  struct stat door {};
  if (fstat(memory->doorbell_.get(), &door) != 0) return system_error(errno, "fstat of the doorbell");
  RankControl& control = memory->segment_.control(local);
  control.pid.store(getpid(), std::memory_order_relaxed);
  control.probe.store(reinterpret_cast<uint64_t>(&probe), std::memory_order_relaxed);
  control.door_fd.store(memory->doorbell_.get(), std::memory_order_relaxed);
  control.door_inode.store(door.st_ino, std::memory_order_relaxed);
  control.network.store(own_namespace("net"), std::memory_order_relaxed);
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
  for (int peer = 0; peer < local_size(); ++peer)
    if (peer != local_ &&
        !can_use_probe(pid(peer), segment_.control(peer).probe.load(std::memory_order_relaxed)))
      return false;
  return true;
}

// As allocations are found, by way of a descriptor that each rank has.
bool NodeMemory::can_open_peers() const {
  if (was_handed_segment_) return false;
  for (int peer = 0; peer < local_size(); ++peer) {
    if (is_of_this_process(peer)) continue;
    const RankControl& control = segment_.control(peer);
    const std::string path =
        fmt::format("/proc/{}/fd/{}", pid(peer), control.door_fd.load(std::memory_order_relaxed));
    struct stat door {};
    if (stat(path.c_str(), &door) != 0 || door.st_ino != control.door_inode.load(std::memory_order_relaxed))
      return false;
  }
  return true;
}

Status NodeMemory::hand_over() {
  if (hand_over_ != nullptr) return {};
  EPCCL_ASSIGN(hand_over_, HandOver::start(segment_, local_));
  for (int peer = 0; peer < local_size(); ++peer)
    windows_[static_cast<size_t>(peer)].open_by(
        [this, peer, is_shut_out = false](const device::WindowRef& place) mutable {
          return open_or_ask(peer, place, is_shut_out);
        });
  return {};
}

// Who was handed one window need not try to open the next.
Result<UniqueFd> NodeMemory::open_or_ask(int local, const device::WindowRef& place, bool& is_shut_out) const {
  if (is_shut_out) return ask_for_window(segment_.handle(), local, place, patience_);
  Result<UniqueFd> opened = device::open_window(place);
  if (opened.ok()) return opened;
  Result<UniqueFd> handed = ask_for_window(segment_.handle(), local, place, patience_);
  is_shut_out = handed.ok();
  if (handed.ok()) return handed;
  const Status& why = handed.status();
  return error(why.code(), why.reason(), "{}; nor is it handed over: {}", opened.status().message(),
               why.message());
}

int NodeMemory::beyond_bells() const {
  const auto network_of = [this](int local) {
    return segment_.control(local).network.load(std::memory_order_relaxed);
  };
  const uint64_t mine = network_of(local_);
  for (int peer = 0; peer < local_size(); ++peer)
    if (mine != 0 && network_of(peer) != 0 && network_of(peer) != mine) return peer;
  return -1;
}

}  // namespace epccl::transports
