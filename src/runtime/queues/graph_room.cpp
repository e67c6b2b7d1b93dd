#include "runtime/queues/graph_room.hpp"

#include <algorithm>
#include <cstring>

#include "base/never_destroyed.hpp"

namespace epccl::runtime {
namespace {

constexpr uint64_t page_bytes = 4096;
constexpr size_t names_kept = 4096;

/// Of this process, by where their memory begins.
struct Rooms {
  std::mutex mutex;
  std::map<const void*, std::weak_ptr<GraphRoom>> rooms;
};
Rooms& all() {
  static NeverDestroyed<Rooms> instance;
  return *instance;
}

uint64_t whole_pages(uint64_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

}  // namespace

Result<std::shared_ptr<GraphRoom>> GraphRoom::make(device::Device& device, int local_size,
                                                   uint64_t scratch_bytes) {
  std::shared_ptr<GraphRoom> room(new GraphRoom(device));  // private constructor
  EPCCL_TRY(room->allocate(local_size, scratch_bytes));
  const std::lock_guard lock(all().mutex);
  all().rooms[room->memory_] = room;
  return room;
}

std::shared_ptr<GraphRoom> GraphRoom::at(const void* memory) {
  const std::lock_guard lock(all().mutex);
  const auto known = all().rooms.find(memory);
  return known == all().rooms.end() ? nullptr : known->second.lock();
}

Status GraphRoom::allocate(int local_size, uint64_t scratch_bytes) {
  const uint64_t words =
      static_cast<uint64_t>(local_size) * transports::node_counters * sizeof(device::SignalWord);
  scratch_offset_ = words_offset + whole_pages(words);
  bytes_ = scratch_offset_ + scratch_bytes;
  EPCCL_ASSIGN(void* memory, device_.allocate(device::MemoryKind::shareable, bytes_));
  memory_ = static_cast<std::byte*>(memory);
  EPCCL_ASSIGN(void* pinned, device_.allocate(device::MemoryKind::pinned, scratch_offset_));
  pinned_ = static_cast<std::byte*>(pinned);
  EPCCL_TRY(clear(scratch_offset_));
  report_ = new (pinned_) device::kernels::ReplayReport{};
  host_calls_ = new (pinned_ + host_calls_offset) device::kernels::HostCallReport{};
  replays_.emplace([this] { return is_replaying(); },
                   [this] { return host_calls_in_graphs_.load() > 0 && !has_given_up(); });
  return {};
}

Status GraphRoom::clear(uint64_t bytes) {
  std::memset(pinned_, 0, bytes);
  EPCCL_ASSIGN(const auto queue, device_.make_queue(device::QueueKind::copy_engine));
  const device::CopyWork zeros{memory_, pinned_, bytes};
  EPCCL_TRY(queue->copy({&zeros, 1}));
  return queue->synchronize();
}

GraphRoom::~GraphRoom() {
  {
    const std::lock_guard lock(all().mutex);
    all().rooms.erase(memory_);
  }
  replays_.reset();  // it reads what is freed here
  queues_.clear();
  if (memory_ != nullptr) static_cast<void>(device_.free(memory_));
  if (pinned_ != nullptr) static_cast<void>(device_.free(pinned_));
}

bool GraphRoom::has_given_up() const {
  return std::atomic_ref(report_->given_up).load(std::memory_order_acquire) != 0;
}

std::shared_ptr<const void> GraphRoom::count_host_call() {
  host_calls_in_graphs_.fetch_add(1);
  return {this, [this](const void*) {
            // A graph's end may be where no call of the driver is possible.
            if (host_calls_in_graphs_.fetch_sub(1) == 1) device::HeldStreams::retry_beside();
          }};
}

bool GraphRoom::is_replaying() const {
  const auto read = [](uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); };
  if (has_given_up()) return false;
  return read(report_->over) != read(report_->begun) || read(host_calls_->over) != read(host_calls_->come);
}

void GraphRoom::give_up() {
  std::atomic_ref(report_->given_up).store(1, std::memory_order_release);
}

Result<GraphRoom::Found> GraphRoom::find(int local, const device::MemoryHandle& handle, uint64_t bytes) {
  std::erase_if(mappings_, [](const Mapping& it) { return it.memory.expired(); });
  const auto known = std::ranges::find_if(mappings_, [&](const Mapping& it) {
    return it.local == local && it.base == handle.base && it.generation == handle.generation &&
           it.offset <= handle.offset;
  });
  uint64_t mapped_from = handle.offset;
  std::shared_ptr<const device::MappedMemory> memory;
  if (known != mappings_.end()) memory = known->memory.lock();
  if (memory != nullptr) {
    mapped_from = known->offset;
  } else {
    EPCCL_ASSIGN(memory, device_.import_memory(handle));
    mappings_.push_back({local, handle.base, handle.generation, handle.offset, memory});
  }
  const uint64_t offset = handle.offset - mapped_from;
  if (offset + bytes > memory->bytes())
    return error(Code::internal_error, "{} bytes of a peer's memory, of which {} are mapped", offset + bytes,
                 memory->bytes());
  return Found{memory->data() + offset, memory};
}

// Queues of a capture that is over do not capture any more; those of one that failed still do, until the program has ended it.
Result<GraphRoom::Queues*> GraphRoom::queues_of(uint64_t capture) {
  const auto same = std::ranges::find(queues_, capture, [](const auto& it) { return it->capture; });
  if (same != queues_.end()) return same->get();
  const auto is_free = [](const std::unique_ptr<Queues>& it) {
    const auto now = it->control->capture();
    return now.ok() && *now == 0;
  };
  if (const auto found = std::ranges::find_if(queues_, is_free); found != queues_.end()) {
    (*found)->capture = capture;
    return found->get();
  }
  auto made = std::make_unique<Queues>();
  made->capture = capture;
  EPCCL_ASSIGN(made->control, device_.make_queue(device::QueueKind::compute));
  return queues_.emplace_back(std::move(made)).get();
}

Result<device::QueueEvent*> GraphRoom::event(size_t index) {
  while (events_.size() <= index) {
    EPCCL_ASSIGN(auto made, device_.make_event());
    events_.push_back(std::move(made));
  }
  return events_[index].get();
}

void GraphRoom::name_call(uint64_t call, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (names_.size() >= names_kept) names_.erase(names_.begin());
  names_[call] = text;
}

std::string GraphRoom::name_of(uint64_t call) const {
  const std::lock_guard lock(mutex_);
  const auto known = names_.find(call);
  return known == names_.end() ? fmt::format("captured call {}", call)
                               : fmt::format("captured call {} ({})", call, known->second);
}

}  // namespace epccl::runtime
